//! The renewals of many holds in one statement.

use super::failure::failure;
use super::opening::Opening;
use super::statement::{Asks, Statement, Value};
use crate::failure::{Cause, Failure};
use crate::micros::in_micros;
use crate::pool::Pool;
use crate::renewals::{Renewed, Renews, Wish};
use async_trait::async_trait;
use fencelock_core::{ErrorKind, Result};
use sqlx::Row as _;
use sqlx::mysql::MySqlRow;
use std::collections::{BTreeMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A connection of its own, since a renewal must not wait behind acquires.
pub(crate) struct Renewer {
    pool: Pool<Opening>,
    /// Until when locked rows are looked for before each renewal: waiting for one would take a second.
    careful: Mutex<Option<Instant>>,
}

/// For how long rows are looked at first, once one was locked.
const CAREFUL: Duration = Duration::from_secs(30);

/// A wish, as the table knows it.
struct Hold {
    /// Its place among the wishes.
    place: usize,
    name: Vec<u8>,
    claim: [u8; 16],
}

impl Renewer {
    pub(crate) fn new(pool: Pool<Opening>) -> Self {
        Self { pool, careful: Mutex::default() }
    }

    /// A statement on as many rows as there are holds. The number of places is a
    /// power of two, so that few statements have to be prepared; the last hold fills them up.
    fn statement(&self, sql: &str, holds: &[Hold], first: usize) -> (Statement, usize) {
        let places = holds.len().next_power_of_two();
        let list = |from: usize| {
            let places: Vec<_> = (from..from + places).map(|n| format!("${n}")).collect();
            places.join(", ")
        };
        let sql = sql.replace("{names}", &list(first)).replace("{claims}", &list(first + places));
        (self.pool.opens().schema.statement(&sql), places)
    }

    fn values<'h>(holds: &'h [Hold], places: usize, before: Option<i64>) -> Vec<Value<'h>> {
        let all = || (0..places).filter_map(|n| holds.get(n).or(holds.last()));
        let names = all().map(|hold| Value::Bytes(&hold.name));
        before.map(Value::Number).into_iter().chain(names).chain(all().map(|hold| Value::Bytes(&hold.claim))).collect()
    }

    async fn rows(&self, sql: &str, holds: &[Hold]) -> Result<HashSet<Vec<u8>>, Failure> {
        let (statement, places) = self.statement(sql, holds, 1);
        let seat = self.pool.seat().await.map_err(unsent)?;
        let rows = seat.send(Asks(statement.with(Self::values(holds, places, None)))).await?;
        rows.iter().map(|row: &MySqlRow| row.try_get(0)).collect::<sqlx::Result<_>>().map_err(failure)
    }

    fn is_careful(&self) -> bool {
        let until = *self.careful.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() < until)
    }

    fn be_careful(&self) {
        *self.careful.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + CAREFUL);
    }

    /// Renews holds of one ttl; each that is not among the answers does not hold its lock.
    async fn update(&self, ttl: i64, holds: &[Hold]) -> Result<HashSet<Vec<u8>>, Failure> {
        let sql = include_str!("sql/renew.sql");
        // Only MariaDB can do without waiting.
        let sql = match self.pool.opens().mariadb {
            true => sql.replace("UPDATE", "SET STATEMENT innodb_lock_wait_timeout = 0 FOR UPDATE"),
            false => sql.to_owned(),
        };
        let (statement, places) = self.statement(&sql, holds, 2);
        let seat = self.pool.seat().await.map_err(unsent)?;
        let done = seat.send(statement.with(Self::values(holds, places, Some(ttl)))).await?;
        if usize::try_from(done.rows_affected()) == Ok(holds.len()) {
            return Ok(holds.iter().map(|hold| hold.claim.to_vec()).collect());
        }
        // A claim that is alive now was so then, since nothing revives one: it has been renewed.
        self.rows(include_str!("sql/alive.sql"), holds).await
    }

    /// The same without the rows that another transaction has to itself.
    async fn update_others(&self, ttl: i64, holds: Vec<Hold>, outcomes: &mut [Renewed]) -> Result<(), Failure> {
        let ours = self.rows(include_str!("sql/lockable.sql"), &holds).await?;
        let all = self.rows(include_str!("sql/alive.sql"), &holds).await?;
        // Neither locked by others nor alive: it is another's, or nobody's.
        let (holds, others): (Vec<_>, Vec<_>) = holds
            .into_iter()
            .partition(|hold| ours.contains(hold.claim.as_slice()) || !all.contains(hold.claim.as_slice()));
        if others.is_empty() && self.is_careful() {
            *self.careful.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        if !holds.is_empty() {
            let renewed = self.update(ttl, &holds).await?;
            tell(outcomes, &holds, &renewed);
        }
        Ok(())
    }
}

/// What came before anything was sent.
fn unsent(e: fencelock_core::Error) -> Failure {
    Failure { error: e, ..Failure::new(ErrorKind::Unavailable, "") }
}

fn tell(outcomes: &mut [Renewed], holds: &[Hold], renewed: &HashSet<Vec<u8>>) {
    for hold in holds {
        if let Some(outcome) = outcomes.get_mut(hold.place) {
            *outcome = if renewed.contains(hold.claim.as_slice()) { Renewed::Yes } else { Renewed::No };
        }
    }
}

#[async_trait]
impl Renews for Renewer {
    fn engine(&self) -> &'static str {
        "mysql"
    }

    async fn renew(&self, batch: &[Wish]) -> Result<Vec<Renewed>> {
        let mut by_ttl: BTreeMap<i64, Vec<Hold>> = BTreeMap::new();
        for (place, wish) in batch.iter().enumerate() {
            let name = wish.claim.name().as_str().as_bytes().to_vec();
            let hold = Hold { place, name, claim: wish.claim.id().to_bytes() };
            by_ttl.entry(in_micros(wish.server_ttl)).or_default().push(hold);
        }
        let mut outcomes = vec![Renewed::Locked; batch.len()];
        for (ttl, holds) in by_ttl {
            if self.is_careful() {
                self.update_others(ttl, holds, &mut outcomes).await?;
                continue;
            }
            match self.update(ttl, &holds).await {
                Ok(renewed) => tell(&mut outcomes, &holds, &renewed),
                Err(failure) if failure.cause == Cause::Locked => {
                    self.be_careful();
                    self.update_others(ttl, holds, &mut outcomes).await?;
                }
                Err(failure) => return Err(failure.into()),
            }
        }
        Ok(outcomes)
    }
}
