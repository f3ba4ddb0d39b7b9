//! The statements on the lock table.

use super::PostgresConfig;
use super::bundle::Crowd;
use super::ears::Ears;
use super::failure::failure;
use super::notice::{Waiting, hex};
use super::opening::{LOCK_WAIT, Opening};
use super::places::Shared;
use super::renew::Renewer;
use super::statement::{Statement, Value};
use crate::bundle::{Bundled, Trip, Way};
use crate::failure::{Cause, Failure};
use crate::met::Met;
use crate::micros::{in_micros, micros};
use crate::pool::Pool;
use crate::renewals::Renewals;
use crate::table::{LockTable, Outcome, Place, is_closed};
use async_trait::async_trait;
use fencelock_core::{
    Attempt, Claim, ClaimId, Error, ErrorKind, FencingToken, Guarantees, Hints, HolderInfo, LockName, Moment, Polling,
    Result,
};
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A void outlasts any statement that may still be on its way.
const VOID: Duration = Duration::from_secs(60);
/// When to look again for a lock whose row another transaction has to itself.
const AGAIN: Duration = Duration::from_millis(100);

/// How long an undo waits at once for an engine's statements that do not see it yet,
/// which the server bounds by the request's time-out. It is asked for again after that.
const LONG: Duration = Duration::from_secs(3);

/// Whose statements are waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    Engines,
    Everybodys,
}

/// The lock table of one database.
pub(crate) struct Store {
    pub(super) opening: Arc<Opening>,
    pub(super) commands: Arc<Pool<Opening>>,
    pub(super) together: Bundled<Crowd>,
    met: Met,
    renewals: Arc<Renewals<Renewer>>,
    pub(super) ears: Option<Arc<Ears>>,
    pub(super) channel: String,
    /// How long a statement waits for a row, as the server is told.
    wait: String,
    pub(super) statements: Statements,
}

/// One waiter's word to the others.
struct Telling {
    payload: String,
    round: i64,
}

pub(super) struct Statements {
    acquire: Acquires,
    /// The same where tokens are reserved: `$10` besides the holder's, and the row has the last of them.
    reserve: Acquires,
    look: Statement,
    pub(super) free: Statement,
    pub(super) hand: Statement,
    force: Statement,
    void: Statement,
    clean: Statement,
    list: Statement,
    inspect: Statement,
    pub(super) window: Statement,
    pub(super) floor: Statement,
    writers: Statement,
    pub(super) purge: Statement,
    lock: Statement,
}

/// An acquire that waits for nobody, one that will wait, and one that tells others that it does.
struct Acquires {
    tries: Statement,
    waits: Statement,
    tells: Statement,
}

impl Store {
    pub(crate) async fn open(config: PostgresConfig) -> Result<Arc<Self>> {
        let (opening, first, second) = Opening::first(config).await?;
        let opening = Arc::new(opening);
        let server = &opening.config.server;
        let limit = server.request_timeout;
        let renewals = Renewals::new(Renewer::new(Pool::new(Arc::clone(&opening), 1, Some(second), limit)));
        let commands = Arc::new(Pool::new(Arc::clone(&opening), server.connections, Some(first), limit));
        let sql = |text: &str| opening.schema.statement(text);
        let acquires = |reserve: &str, next: usize| {
            let acquire = include_str!("sql/acquire.sql").replace("{reserve}", reserve);
            let then = |rest: &str| sql(&acquire.replace("{then}", rest));
            let waits = include_str!("sql/waits.sql");
            let tells = include_str!("sql/tells.sql").replace("{channel}", &format!("${next}"));
            let tells = tells.replace("{telling}", &format!("${}", next + 1));
            Acquires {
                tries: then(&format!("\n{}", include_str!("sql/tries.sql"))),
                waits: then(&waits.replace("{told}", "")),
                tells: then(&waits.replace("{told}", tells.trim_end())),
            }
        };
        let statements = Statements {
            acquire: acquires("", 10),
            reserve: acquires(" + $10", 11),
            look: sql(include_str!("sql/look.sql")),
            free: sql(include_str!("sql/free.sql")),
            hand: sql(include_str!("sql/hand.sql")),
            force: sql(include_str!("sql/force.sql")),
            void: sql(include_str!("sql/void.sql")),
            clean: sql(include_str!("sql/clean.sql")),
            list: sql(include_str!("sql/list.sql")),
            inspect: sql(include_str!("sql/inspect.sql")),
            window: sql(include_str!("sql/window.sql")),
            floor: sql(include_str!("sql/floor.sql")),
            writers: sql(include_str!("sql/writers.sql")),
            purge: sql(include_str!("sql/purge.sql")),
            lock: sql(include_str!("sql/lock.sql")),
        };
        let channel = super::ears::channel(&server.table);
        let ears = (!opening.pooled)
            .then(|| Ears::new(opening.config.options(), channel.clone(), opening.secret.clone(), limit));
        let wait = LOCK_WAIT.as_millis().to_string();
        let together = Bundled::new(Crowd::new(&commands, ears.as_ref(), &channel));
        let met = Met::default();
        let store = Arc::new(Self { opening, commands, together, met, renewals, ears, channel, wait, statements });
        if let Some(ears) = &store.ears {
            let _ = ears.store.set(Arc::downgrade(&store));
        }
        Ok(store)
    }

    /// Takes the lock if it may be taken. Who `waits`, where releases are told, says so.
    async fn take(&self, claim: &Claim, waits: bool) -> Result<Outcome> {
        let id = claim.id().to_bytes();
        let place = self.ears.as_ref().filter(|_| waits).and_then(|ears| ears.find(claim.id()));
        let telling = place.as_ref().and_then(|place| self.telling(claim, place));
        let mut values = vec![
            Value::Bytes(claim.name().as_str().as_bytes()),
            Value::Bytes(&id),
            Value::Number(self.least_token()),
            Value::Number(in_micros(claim.server_ttl())),
            Value::Text(Some(claim.holder())),
            Value::Text(claim.note().map(|note| &**note)),
            Value::Number(number(claim.id())),
            Value::Text(Some(&self.wait)),
            Value::Number(in_micros(claim.lock_delay())),
        ];
        let mut acquires = &self.statements.acquire;
        if claim.reserve() > 0 {
            values.push(Value::Number(claim.reserve().into()));
            acquires = &self.statements.reserve;
        }
        if let Some(telling) = &telling {
            values.extend([Value::Text(self.opening.secret.as_deref()), Value::Text(Some(&telling.payload))]);
        }
        let statement = match (waits, telling.is_some()) {
            (_, true) => &acquires.tells,
            (true, false) => &acquires.waits,
            (false, false) => &acquires.tries,
        };
        let ready = self.opening.ready(statement, values);
        let seat = self.commands.seat().await?;
        let sent_at = claim.now();
        if let (Some(place), Some(telling)) = (&place, &telling) {
            place.sends(telling.round, sent_at);
        }
        match seat.send_for(claim.request(), ready).await {
            Ok(rows) => {
                let told = |row: &PgRow| row.try_get::<Option<String>, _>("told").ok().flatten().is_some();
                if let Some(place) = place {
                    if telling.is_some() {
                        place.answered(rows.first().is_some_and(told));
                    }
                    place.follows(rows.first().and_then(|row| row.try_get("token").ok().flatten()));
                }
                if let (Some(ears), Some(met)) = (&self.ears, met(rows.first(), claim)) {
                    ears.has_held(claim.name(), met);
                }
                outcome(rows.first(), claim, sent_at).map_err(|e| failure(e).at("postgres", "acquire").into())
            }
            // Held inside somebody's transaction, or just being taken.
            Err(failure) if failure.cause == Cause::Locked => Ok(Outcome::Held(Attempt::contended(Some(AGAIN), None))),
            Err(failure) => Err(failure.at("postgres", "acquire").into()),
        }
    }

    /// What tells others that the claim waits; none where it cannot, or need not.
    fn telling(&self, claim: &Claim, place: &Shared) -> Option<Telling> {
        let listener = self.ears.as_ref()?.listener()?;
        let round = place.round(listener, claim.now())?;
        let name = hex(claim.name().as_str().as_bytes());
        let payload = Waiting::new(claim, listener, round, self.least_token()).written(&name)?;
        Some(Telling { payload, round })
    }

    pub(crate) fn lock_statement(&self) -> &Statement {
        &self.statements.lock
    }

    pub(crate) fn least_token(&self) -> i64 {
        self.opening.config.server.least_token()
    }

    /// Waits for the statements that began before this and may not see what was
    /// committed just now; false if one had not ended after `limit`.
    pub(super) async fn older_have_ended(
        &self,
        operation: &'static str,
        whose: Whose,
        limit: Duration,
    ) -> Result<bool> {
        let (until, mut pause) = (Instant::now() + limit, Duration::from_millis(1));
        let mut older: Option<HashSet<String>> = None;
        loop {
            let rows = self.rows(operation, &self.statements.writers, Vec::new()).await?;
            let writers = rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
            let writers = writers.collect::<sqlx::Result<Vec<(String, bool)>>>();
            let writers = writers.map_err(|e| failure(e).at("postgres", operation))?;
            let counts = |engines: bool| engines || whose == Whose::Everybodys;
            let writers = writers.into_iter().filter(|(_, engines)| counts(*engines)).map(|(id, _)| id).collect();
            let left: HashSet<_> = match older {
                Some(older) => older.intersection(&writers).cloned().collect(),
                None => writers,
            };
            if left.is_empty() {
                return Ok(true);
            }
            if Instant::now() >= until {
                return Ok(false);
            }
            older = Some(left);
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(100));
        }
    }

    pub(super) async fn rows(
        &self,
        operation: &'static str,
        statement: &Statement,
        values: Vec<Value<'_>>,
    ) -> Result<Vec<PgRow>> {
        let seat = self.commands.seat().await?;
        let outcome = seat.send(self.opening.ready(statement, values)).await;
        outcome.map_err(|failure| failure.at("postgres", operation).into())
    }
}

#[async_trait]
impl LockTable for Store {
    fn engine(&self) -> &'static str {
        "postgres"
    }

    fn name(&self) -> &str {
        self.opening.schema.table()
    }

    fn guarantees(&self) -> Arc<Guarantees> {
        self.opening.guarantees()
    }

    async fn probe(&self) -> Result<Arc<Guarantees>> {
        self.opening.probe().await
    }

    fn hints(&self) -> Option<&dyn Hints> {
        self.ears.as_deref().map(|ears| ears as &dyn Hints)
    }

    fn heeds(&self, polling: &Polling) {
        if let Some(ears) = &self.ears {
            let _ = ears.polling.set(polling.clone());
        }
    }

    fn place(&self, claim: &Claim) -> Option<Arc<dyn Place>> {
        let place = self.ears.as_ref()?.place(claim.name(), claim.id())?;
        Some(Arc::new(place))
    }

    fn is_contended(&self, name: &LockName) -> bool {
        // Who is to hand it on has to know which hold was before its own.
        self.met.was_held(name) || self.ears.as_ref().is_some_and(|ears| ears.is_waited_for(name))
    }

    fn looks_as_it_acquires(&self) -> bool {
        true
    }

    async fn acquire(&self, claim: &Claim, waits: bool) -> Result<Outcome> {
        let waits = waits && self.ears.is_some();
        // Who waits tells of itself.
        let way = if waits { Way::Alone(Trip::unshared()) } else { self.together.take(claim).await? };
        let outcome = match way {
            Way::Answered(outcome) => outcome,
            Way::Alone(trip) => trip.run(Some(claim), self.take(claim, waits)).await?,
        };
        if matches!(outcome, Outcome::Held(_)) {
            self.met.held(claim.name());
        }
        Ok(outcome)
    }

    async fn look(&self, claim: &Claim) -> Result<Outcome> {
        let id = claim.id().to_bytes();
        let name = claim.name().as_str().as_bytes();
        let values = vec![Value::Bytes(name), Value::Bytes(&id)];
        let rows = self.rows("look", &self.statements.look, values).await?;
        outcome(rows.first(), claim, claim.now()).map_err(|e| failure(e).at("postgres", "look").into())
    }

    async fn renew(&self, claim: &Claim, token: FencingToken, server_ttl: Duration, at_once: bool) -> Result<bool> {
        self.renewals.renew(claim, token, server_ttl, at_once).await
    }

    async fn free(&self, claim: &Claim, token: Option<FencingToken>, operation: &'static str) -> Result<bool> {
        self.give_up(claim, token, operation).await
    }

    async fn void(&self, claim: &Claim) -> Result<()> {
        let id = claim.id().to_bytes();
        let until = in_micros(claim.server_ttl().max(VOID));
        let values = vec![Value::Bytes(&id), Value::Number(until), Value::Number(number(claim.id()))];
        self.rows("void", &self.statements.void, values).await?;
        // Or there is nothing to be freed yet, and the lock is taken after us. A transaction
        // of a caller's own takes no lock for a claim, and may stay open for long.
        let limit = LONG.min(self.opening.config.server.request_timeout.saturating_mul(2));
        let told = self.ears.as_ref().is_some_and(|ears| ears.places().is_told(claim.id()));
        if (told || claim.is_unanswered()) && !self.older_have_ended("void", Whose::Engines, limit).await? {
            return Err(Error::new(ErrorKind::Unavailable, "a statement that may take the lock is still under way"));
        }
        if let Err(e) = self.rows("void", &self.statements.clean, Vec::new()).await {
            tracing::debug!(target: "fencelock", error = %e, "old voids are left for later");
        }
        Ok(())
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<HolderInfo>> {
        let rows = self.rows("inspect", &self.statements.inspect, vec![Value::Bytes(name.as_str().as_bytes())]).await?;
        let held = rows.first().map(holder_info).transpose();
        Ok(held.map_err(|e| failure(e).at("postgres", "inspect"))?.map(|(_, info)| info))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(LockName, HolderInfo)>> {
        let rows = self.rows("list", &self.statements.list, vec![Value::Bytes(prefix.as_bytes())]).await?;
        let mut held = Vec::new();
        for row in &rows {
            let (name, info) = holder_info(row).map_err(|e| failure(e).at("postgres", "list"))?;
            if let Some(name) = String::from_utf8(name).ok().and_then(|name| LockName::new(name).ok()) {
                held.push((name, info));
            }
        }
        Ok(held)
    }

    async fn force_release(&self, name: &LockName, (least, largest): (i64, i64)) -> Result<bool> {
        let force = async |channel: Option<&str>, secret: Option<&str>| {
            let values = vec![
                Value::Bytes(name.as_str().as_bytes()),
                Value::Text(channel),
                Value::Text(Some(&self.wait)),
                Value::Number(least),
                Value::Number(largest),
                Value::Text(secret),
            ];
            let ready = self.opening.ready(&self.statements.force, values);
            self.commands.seat().await.map_err(Failure::before)?.send_if(ready, |rows| !rows.is_empty()).await
        };
        let outcome = match force(Some(&self.channel), self.opening.secret.as_deref()).await {
            // Whoever waits looks by itself.
            Err(failure) if failure.cause == Cause::Full => force(None, None).await,
            outcome => outcome,
        };
        Ok(!outcome.map_err(|failure: Failure| failure.at("postgres", "force_release"))?.is_empty())
    }

    async fn purge(&self, idle: Duration) -> Result<u64> {
        self.purge_rows(in_micros(idle)).await
    }
}

/// The claim's id for a lock of PostgreSQL's own, which is taken by number.
pub(super) fn number(id: ClaimId) -> i64 {
    let [a, b, c, d, e, f, g, h, ..] = id.to_bytes();
    i64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// The other claim that the statement found in the row: it holds the lock, or was the last to hold it.
pub(super) fn met(row: Option<&PgRow>, claim: &Claim) -> Option<ClaimId> {
    let id = row?.try_get::<Option<&[u8]>, _>("claim_id").ok()??;
    let id = ClaimId::from_bytes(*id.first_chunk()?);
    (id != claim.id()).then_some(id)
}

pub(super) fn outcome(row: Option<&PgRow>, claim: &Claim, sent_at: Moment) -> sqlx::Result<Outcome> {
    let Some(row) = row else { return Ok(Outcome::Open) };
    if let Some(token) = row.try_get::<Option<i64>, _>("taken")? {
        return Ok(Outcome::Granted(sent_at, FencingToken::new(u64::try_from(token).unwrap_or(0))));
    }
    if row.try_get("voided")? {
        return Ok(Outcome::Dead { voided: true });
    }
    let Some(held_by) = row.try_get::<Option<Vec<u8>>, _>("claim_id")? else { return Ok(Outcome::Open) };
    let (expires_at, now): (i64, i64) = (row.try_get("expires_at")?, row.try_get("now")?);
    let free = expires_at <= now;
    // The last hold was ended by force, and its id with it; the lock may be closed for its delay.
    let closed = is_closed(&held_by);
    Ok(if closed && held_by.starts_with(&claim.id().to_bytes()) {
        Outcome::Dead { voided: false }
    } else if held_by == claim.id().to_bytes() {
        if free { Outcome::Dead { voided: false } } else { Outcome::Open }
    } else if free || row.try_get::<Option<bool>, _>("unheard")?.unwrap_or(false) {
        Outcome::Open
    } else {
        let holder = (!closed).then(|| row.try_get::<String, _>("holder")).transpose()?;
        Outcome::held(micros(expires_at.saturating_sub(now)), holder)
    })
}

fn holder_info(row: &PgRow) -> sqlx::Result<(Vec<u8>, HolderInfo)> {
    let (expires_at, acquired_at, now): (i64, i64, i64) =
        (row.try_get("expires_at")?, row.try_get("acquired_at")?, row.try_get("now")?);
    let token = FencingToken::new(u64::try_from(row.try_get::<i64, _>("token")?).unwrap_or(0));
    let mut info = HolderInfo::new(row.try_get::<String, _>("holder")?, token)
        .with_note(row.try_get::<Option<String>, _>("note")?.map(Into::into))
        .with_remaining(micros(expires_at.saturating_sub(now)))
        .with_held_for(micros(now.saturating_sub(acquired_at)));
    if let Ok(id) = row.try_get::<Vec<u8>, _>("claim_id")?.try_into() {
        info = info.with_claim(ClaimId::from_bytes(id));
    }
    Ok((row.try_get("name")?, info))
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("config", &self.opening.config)
            .field("pooled", &self.opening.pooled)
            .finish_non_exhaustive()
    }
}
