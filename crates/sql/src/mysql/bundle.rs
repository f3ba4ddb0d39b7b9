//! Acquires, and releases, of many locks in one statement, on MariaDB since 10.5: MySQL cannot tell of many rows what became of
//! them, nor be told not to wait for a row that another transaction has to itself, and all the others would wait with it.

use super::failure::failure;
use super::opening::Opening;
use super::statement::{Asks, Statement, Value};
use super::store::outcome;
use crate::bundle::{Asked, MOST, Many, Sent, Told};
use crate::failure::Failure;
use crate::micros::in_micros;
use crate::pool::{Pool, Seat, Sends};
use crate::table::Outcome;
use fencelock_core::{ClaimId, FencingToken, Moment};
use sqlx::Row as _;
use sqlx::mysql::{MySqlConnection, MySqlRow};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// What one wish has in the statement.
const PARTS: usize = 6;

/// The lock table, for many at a time.
pub(crate) struct Crowd {
    commands: Arc<Pool<Opening>>,
    /// For so many at the most, of which each has twice as many as the one before it.
    acquire: Vec<Statement>,
    free: Vec<Statement>,
    look: Vec<Statement>,
}

/// How many places the statements have.
fn sizes() -> impl Iterator<Item = usize> {
    (0..=MOST.ilog2()).map(|power| 1 << power)
}

/// The statement that has room for so many.
fn fitting(statements: &[Statement], many: usize) -> Option<&Statement> {
    statements.get(usize::try_from(many.next_power_of_two().ilog2()).ok()?)
}

/// `$first, $second, …`, so many of them.
fn places(first: usize, many: usize) -> String {
    let places: Vec<_> = (first..first + many).map(|n| format!("${n}")).collect();
    places.join(", ")
}

/// A mark, names and claims, in as many places as a statement has: the last fill them up.
fn listed<'v>(mark: i64, asked: &'v [&Asked], ids: &'v [[u8; 16]]) -> Vec<Value<'v>> {
    let all = || 0..asked.len().next_power_of_two();
    let name = |n| asked.get(n).or(asked.last()).map(|asked| Value::Bytes(asked.claim.name().as_str().as_bytes()));
    let id = |n| ids.get(n).or(ids.last()).map(|id| Value::Bytes(id));
    [Value::Number(mark)].into_iter().chain(all().filter_map(name)).chain(all().filter_map(id)).collect()
}

fn ids(asked: &[&Asked]) -> Vec<[u8; 16]> {
    asked.iter().map(|asked| asked.claim.id().to_bytes()).collect()
}

impl Crowd {
    pub(crate) fn new(commands: &Arc<Pool<Opening>>) -> Self {
        let schema = &commands.opens().schema;
        let acquire = |n: usize| schema.statement(&include_str!("sql/acquire_many.sql").replace("{rows}", &rows(n)));
        let listed = |text: &'static str| {
            let list = move |n| text.replace("{names}", &places(2, n)).replace("{claims}", &places(2 + n, n));
            sizes().map(|n| schema.statement(&list(n))).collect()
        };
        Self {
            commands: Arc::clone(commands),
            acquire: sizes().map(acquire).collect(),
            free: listed(include_str!("sql/free_many.sql")),
            look: listed(include_str!("sql/look_many.sql")),
        }
    }

    async fn seat<A>(&self) -> Result<Seat<'_, Opening>, Sent<A>> {
        self.commands.seat().await.map_err(Sent::NeverLeft)
    }

    /// The answer; or what failed, and how for all.
    async fn send<A, S: Sends<MySqlConnection>>(
        &self,
        seat: Seat<'_, Opening>,
        statement: S,
    ) -> Result<(S::Answer, bool), Sent<A>> {
        match seat.send_known(statement).await {
            (Ok(answer), is_settled) => Ok((answer, is_settled)),
            (Err(failure), true) if !failure.reopen => {
                tracing::debug!(target: "fencelock", engine = "mysql", error = %failure.error, "each asks by itself");
                Err(Sent::NotDone)
            }
            (Err(failure), is_settled) => Err(Sent::Failed(failure.error, is_settled)),
        }
    }

    /// Which of them the statement of this mark has freed, of those whose locks nobody has taken since.
    async fn look(&self, values: Vec<Value<'_>>, many: usize) -> Result<HashSet<Vec<u8>>, Failure> {
        let Some(statement) = fitting(&self.look, many) else { return Ok(HashSet::new()) };
        let seat = self.commands.seat().await.map_err(Failure::before)?;
        let rows = seat.send(Asks(statement.with(values))).await?;
        rows.iter().map(|row| row.try_get("claim_id")).collect::<sqlx::Result<_>>().map_err(failure)
    }
}

/// The rows of so many.
fn rows(many: usize) -> String {
    let row = |k: usize| {
        let [name, id, ttl, delay, holder, note] = std::array::from_fn(|part| format!("${}", 2 + k * PARTS + part));
        // What is the same for all is found out by the first.
        let (name, floor) = match k {
            0 => (
                include_str!("sql/may_insert.sql").replace("{name}", &name).replace("{claims}", &claims(many)),
                include_str!("sql/first.sql"),
            ),
            _ => (name, "@fencelock_floor"),
        };
        let token = format!("GREATEST($1, {{now}}, CAST({} AS SIGNED))", floor.trim());
        format!("({name}, {id}, {token}, {{now}} + {ttl}, {ttl}, {delay}, {holder}, {note}, {{now}})")
    };
    (0..many).map(row).collect::<Vec<_>>().join(",\n  ")
}

/// The places of so many claims in that.
fn claims(many: usize) -> String {
    (0..many).map(|k| format!("${}", 3 + k * PARTS)).collect::<Vec<_>>().join(", ")
}

impl Many for Crowd {
    type Taken = Outcome;

    const GOES_ON: bool = true;

    fn limit(&self) -> Duration {
        self.commands.opens().config.server.request_timeout
    }

    async fn take(&self, asked: &[&Asked]) -> Sent<Outcome> {
        let Some(statement) = fitting(&self.acquire, asked.len()) else { return Sent::NotDone };
        let ids = ids(asked);
        let places = asked.len().next_power_of_two();
        let mut values = Vec::with_capacity(1 + places * PARTS);
        values.push(Value::Number(self.commands.opens().config.server.least_token()));
        // The last fills what is left: who holds a lock may ask for it again.
        let all = (0..places).filter_map(|n| asked.get(n).or(asked.last()).zip(ids.get(n).or(ids.last())));
        for (asked, id) in all {
            let claim = &asked.claim;
            values.extend([
                Value::Bytes(claim.name().as_str().as_bytes()),
                Value::Bytes(id),
                Value::Number(in_micros(claim.server_ttl())),
                Value::Number(in_micros(claim.lock_delay())),
                Value::Text(Some(claim.holder())),
                Value::Text(claim.note().map(|note| &**note)),
            ]);
        }
        let seat = match self.seat().await {
            Ok(seat) => seat,
            Err(failed) => return failed,
        };
        let sent_at: Vec<_> = asked.iter().map(|asked| asked.claim.now()).collect();
        let (rows, is_settled) = match self.send(seat, Asks(statement.with(values))).await {
            Ok(answered) => answered,
            Err(failed) => return failed,
        };
        let by_name = rows.into_iter().map(|row| Ok((row.try_get("name")?, row)));
        match by_name.collect::<sqlx::Result<Rows>>() {
            Ok(rows) => {
                let told = asked.iter().zip(sent_at).map(|(asked, sent_at)| told(&rows, asked, sent_at));
                Sent::Told(told.collect(), is_settled)
            }
            Err(cause) => Sent::Failed(failure(cause).error, is_settled),
        }
    }

    async fn free(&self, asked: &[&Asked]) -> Sent<bool> {
        let (Some(statement), Ok(mark)) = (fitting(&self.free, asked.len()), ClaimId::random()) else {
            return Sent::NotDone;
        };
        let [a, b, c, d, e, f, g, h, ..] = mark.to_bytes();
        // Not negative, which marks what is being granted.
        let (mark, ids) = (i64::from_be_bytes([a, b, c, d, e, f, g, h]) & i64::MAX, ids(asked));
        let values = listed(mark, asked, &ids);
        let seat = match self.seat().await {
            Ok(seat) => seat,
            Err(failed) => return failed,
        };
        let (count, is_settled) = match self.send(seat, statement.with(values.clone())).await {
            Ok((done, is_settled)) => (usize::try_from(done.rows_affected()).unwrap_or(0), is_settled),
            Err(failed) => return failed,
        };
        if count == asked.len() || (count == 0 && is_settled) {
            return Sent::Told(asked.iter().map(|_| Told::Answer(count > 0)).collect(), is_settled);
        }
        let freed = match self.look(values, asked.len()).await {
            Ok(freed) => freed,
            Err(failure) => return Sent::Failed(failure.error, false),
        };
        // Where more were freed than are seen so, another has taken one of them since: whose it was nobody knows.
        let all_seen = is_settled && freed.len() == count;
        let told = ids.iter().map(|id| match freed.contains(id.as_slice()) {
            false if !all_seen => Told::Failed(Failure::no_answer(self.limit()).error),
            is_freed => Told::Answer(is_freed),
        });
        Sent::Told(told.collect(), is_settled)
    }
}

/// Rows by their names.
type Rows = HashMap<Vec<u8>, MySqlRow>;

/// What one who asked is told. Who is dead, or met somebody who was quicker, finds that out by itself.
fn told(rows: &Rows, asked: &Asked, sent_at: Moment) -> Told<Outcome> {
    let claim = &asked.claim;
    let Some(row) = rows.get(claim.name().as_str().as_bytes()) else { return Told::Apart };
    let read = || -> sqlx::Result<Told<Outcome>> {
        let (expires_at, now): (i64, i64) = (row.try_get("expires_at")?, row.try_get("now")?);
        if row.try_get::<&[u8], _>("claim_id")? == claim.id().to_bytes() && expires_at > now {
            let token = u64::try_from(row.try_get::<i64, _>("token")?).unwrap_or(0);
            return Ok(Told::Answer(Outcome::Granted(sent_at, FencingToken::new(token))));
        }
        Ok(match outcome(Some(row), claim)? {
            held @ Outcome::Held(_) => Told::Answer(held),
            _ => Told::Apart,
        })
    };
    read().unwrap_or_else(|e| Told::Failed(failure(e).error))
}
