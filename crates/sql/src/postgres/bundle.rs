//! Acquires, and releases, of many locks in one statement.

use super::ears::Ears;
use super::failure::failure;
use super::handing::within;
use super::opening::Opening;
use super::statement::{Ready, Statement, Value};
use super::store::{met, number, outcome};
use crate::bundle::{Asked, Many, Sent, Told};
use crate::failure::Failure;
use crate::micros::in_micros;
use crate::pool::{Pool, Seat};
use crate::table::Outcome;
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// How long a statement for many waits for a row that another transaction has to itself, in milliseconds. After it each asks by
/// itself, so that the others do not wait for that one.
const WAIT: &str = "20";

/// The lock table, for many at a time.
pub(crate) struct Crowd {
    opening: Arc<Opening>,
    commands: Arc<Pool<Opening>>,
    ears: Option<Arc<Ears>>,
    channel: String,
    acquire: Statement,
    free: Statement,
}

impl Crowd {
    pub(crate) fn new(commands: &Arc<Pool<Opening>>, ears: Option<&Arc<Ears>>, channel: &str) -> Self {
        let opening = Arc::clone(commands.opens());
        let sql = |text| opening.schema.statement(text);
        let (acquire, free) = (sql(include_str!("sql/acquire_many.sql")), sql(include_str!("sql/free_many.sql")));
        let (commands, ears, channel) = (Arc::clone(commands), ears.cloned(), channel.to_owned());
        Self { opening, commands, ears, channel, acquire, free }
    }

    async fn seat<A>(&self) -> Result<Seat<'_, Opening>, Sent<A>> {
        self.commands.seat().await.map_err(Sent::NeverLeft)
    }

    /// The rows; or what failed, and how for all.
    async fn rows<A>(&self, seat: Seat<'_, Opening>, ready: Ready<'_, '_>) -> Result<(Vec<PgRow>, bool), Sent<A>> {
        match seat.send_known(ready).await {
            (Ok(rows), is_settled) => Ok((rows, is_settled)),
            (Err(failure), true) if !failure.reopen => {
                tracing::debug!(target: "fencelock", engine = "postgres", error = %failure.error, "each asks by itself");
                Err(Sent::NotDone)
            }
            (Err(failure), is_settled) => Err(Sent::Failed(failure.error, is_settled)),
        }
    }
}

fn bytes<'v>(asked: &[&Asked], of: impl Fn(&Asked) -> Vec<u8>) -> Value<'v> {
    Value::ManyBytes(asked.iter().map(|asked| of(asked)).collect())
}

fn numbers<'v>(asked: &[&Asked], of: impl Fn(&Asked) -> i64) -> Value<'v> {
    Value::ManyNumbers(asked.iter().map(|asked| of(asked)).collect())
}

fn names<'v>(asked: &[&Asked]) -> Value<'v> {
    bytes(asked, |asked| asked.claim.name().as_str().as_bytes().to_vec())
}

fn ids<'v>(asked: &[&Asked]) -> Value<'v> {
    bytes(asked, |asked| asked.claim.id().to_bytes().to_vec())
}

fn unread<A>(cause: sqlx::Error, is_settled: bool) -> Sent<A> {
    Sent::Failed(failure(cause).error, is_settled)
}

impl Many for Crowd {
    type Taken = Outcome;

    const GOES_ON: bool = true;

    fn limit(&self) -> Duration {
        self.opening.config.server.request_timeout
    }

    async fn take(&self, asked: &[&Asked]) -> Sent<Outcome> {
        let note = |asked: &Asked| asked.claim.note().map_or_else(Vec::new, |note| format!("n{note}").into_bytes());
        let values = vec![
            names(asked),
            ids(asked),
            numbers(asked, |asked| number(asked.claim.id())),
            numbers(asked, |asked| in_micros(asked.claim.server_ttl())),
            numbers(asked, |asked| in_micros(asked.claim.lock_delay())),
            bytes(asked, |asked| asked.claim.holder().as_bytes().to_vec()),
            bytes(asked, note),
            Value::Number(self.opening.config.server.least_token()),
            Value::Text(Some(WAIT)),
        ];
        let ready = self.opening.ready(&self.acquire, values);
        let seat = match self.seat().await {
            Ok(seat) => seat,
            Err(failed) => return failed,
        };
        let sent_at: Vec<_> = asked.iter().map(|asked| asked.claim.now()).collect();
        let (rows, is_settled) = match self.rows(seat, ready).await {
            Ok(answered) => answered,
            Err(failed) => return failed,
        };
        let by_id = rows.iter().map(|row| Ok((row.try_get::<Vec<u8>, _>("id")?, row)));
        let by_id = match by_id.collect::<sqlx::Result<HashMap<_, _>>>() {
            Ok(by_id) => by_id,
            Err(cause) => return unread(cause, is_settled),
        };
        let told = asked.iter().zip(sent_at).map(|(asked, sent_at)| {
            let claim = &asked.claim;
            let Some(row) = by_id.get(claim.id().to_bytes().as_slice()) else { return Told::Apart };
            if let (Some(ears), Some(met)) = (&self.ears, met(Some(row), claim)) {
                ears.has_held(claim.name(), met);
            }
            outcome(Some(row), claim, sent_at).map_or_else(|e| Told::Failed(failure(e).error), Told::Answer)
        });
        Sent::Told(told.collect(), is_settled)
    }

    async fn free(&self, asked: &[&Asked]) -> Sent<bool> {
        let tokens = |of: usize| numbers(asked, move |asked| within(asked.token).get(of).copied().unwrap_or_default());
        let values = vec![
            names(asked),
            ids(asked),
            tokens(0),
            tokens(1),
            Value::Text(Some(&self.channel)),
            Value::Text(self.opening.secret.as_deref()),
            Value::Text(Some(WAIT)),
        ];
        let ready = self.opening.ready(&self.free, values);
        let seat = match self.seat().await {
            Ok(seat) => seat,
            Err(failed) => return failed,
        };
        let (rows, is_settled) = match self.rows(seat, ready).await {
            Ok(answered) => answered,
            Err(failed) => return failed,
        };
        let freed = match rows.iter().map(|row| row.try_get("claim_id")).collect::<sqlx::Result<HashSet<Vec<u8>>>>() {
            Ok(freed) => freed,
            Err(cause) => return unread(cause, is_settled),
        };
        // Others wait for what this client holds: the next release can hand it on.
        let told = |row: &PgRow| row.try_get::<Option<String>, _>("told").ok().flatten().is_some();
        if let Some(ears) = self.ears.as_ref().filter(|_| rows.iter().any(told)) {
            ears.start();
        }
        let told = asked.iter().map(|asked| {
            match freed.contains(asked.claim.id().to_bytes().as_slice()) {
                // A second answer cannot tell that the first had freed it.
                false if !is_settled => Told::Failed(Failure::no_answer(self.limit()).error),
                freed => Told::Answer(freed),
            }
        });
        Sent::Told(told.collect(), is_settled)
    }
}
