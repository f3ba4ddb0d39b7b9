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

/// A connection of its own, since a renewal must not wait behind acquires.
pub(crate) struct Renewer {
    pool: Pool<Opening>,
}

/// A wish, as the table knows it.
struct Hold {
    /// Its place among the wishes.
    place: usize,
    name: Vec<u8>,
    claim: [u8; 16],
}

impl Renewer {
    pub(crate) fn new(pool: Pool<Opening>) -> Self {
        Self { pool }
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

    /// Renews holds of one ttl; each that is not among the answers does not hold its lock.
    async fn update(&self, ttl: i64, holds: &[Hold]) -> Result<HashSet<Vec<u8>>, Failure> {
        let (statement, places) = self.statement(include_str!("sql/renew.sql"), holds, 2);
        let seat = self.pool.seat().await.map_err(unsent)?;
        let done = seat.send(statement.with(Self::values(holds, places, Some(ttl)))).await?;
        if usize::try_from(done.rows_affected()) == Ok(holds.len()) {
            return Ok(holds.iter().map(|hold| hold.claim.to_vec()).collect());
        }
        // A claim that is alive now was so then, since nothing revives one: it has been renewed.
        self.rows(include_str!("sql/alive.sql"), holds).await
    }

    /// The same, when another transaction has some of the rows to itself: without those.
    async fn update_others(&self, ttl: i64, holds: Vec<Hold>, outcomes: &mut [Renewed]) -> Result<(), Failure> {
        let rows = self.rows(include_str!("sql/lockable.sql"), &holds).await?;
        let ours: Vec<_> = holds.into_iter().filter(|hold| rows.contains(hold.claim.as_slice())).collect();
        if ours.is_empty() {
            return Ok(());
        }
        let renewed = self.update(ttl, &ours).await?;
        tell(outcomes, &ours, &renewed);
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
            match self.update(ttl, &holds).await {
                Ok(renewed) => tell(&mut outcomes, &holds, &renewed),
                Err(failure) if failure.cause == Cause::Locked => {
                    self.update_others(ttl, holds, &mut outcomes).await?;
                }
                Err(failure) => return Err(failure.into()),
            }
        }
        Ok(outcomes)
    }
}
