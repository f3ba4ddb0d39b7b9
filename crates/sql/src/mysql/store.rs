//! The statements on the lock table.

use super::MySqlConfig;
use super::bundle::Crowd;
use super::failure::{failure, read_only_server};
use super::opening::Opening;
use super::renew::Renewer;
use super::statement::{Asks, Statement, Value};
use crate::bundle::{Bundled, Trip, Way, own};
use crate::failure::{Cause, Failure};
use crate::met::Met;
use crate::micros::{in_micros, micros};
use crate::pool::{Pool, Seat};
use crate::renewals::Renewals;
use crate::table::{LockTable, Outcome, is_closed};
use async_trait::async_trait;
use fencelock_core::{Attempt, Claim, ClaimId, FencingToken, Guarantees, Hints, HolderInfo, LockName, Moment, Result};
use sqlx::Row as _;
use sqlx::mysql::{MySqlQueryResult, MySqlRow};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A void outlasts any statement that may still be on its way.
const VOID: Duration = Duration::from_secs(60);
/// When to look again for a lock whose row another transaction has to itself.
const AGAIN: Duration = Duration::from_millis(100);
/// How many rows are dropped by one statement.
pub(super) const ROWS: usize = 64;

/// The lock table of one database.
pub(crate) struct Store {
    pub(super) opening: Arc<Opening>,
    pub(super) commands: Arc<Pool<Opening>>,
    /// What travels together, where anything does.
    together: Option<Bundled<Crowd>>,
    met: Met,
    renewals: Arc<Renewals<Renewer>>,
    pub(super) statements: Statements,
}

pub(super) struct Statements {
    /// For a row that is there, and for a new one.
    acquire: [Statement; 2],
    /// The same where tokens are reserved.
    reserve: [Statement; 2],
    look: Statement,
    free: Statement,
    force: Statement,
    void: Statement,
    clean: Statement,
    list: Statement,
    inspect: Statement,
    pub(super) window: Statement,
    pub(super) idle: Statement,
    pub(super) floor: Statement,
    pub(super) purge: Statement,
    lock: Statement,
    locked: Statement,
}

impl Store {
    pub(crate) async fn open(config: MySqlConfig) -> Result<Arc<Self>> {
        let (opening, first) = Opening::first(config).await?;
        let opening = Arc::new(opening);
        let server = &opening.config.server;
        let limit = server.request_timeout;
        let renewals = Renewals::new(Renewer::new(Pool::new(Arc::clone(&opening), 1, None, limit)));
        let commands = Arc::new(Pool::new(Arc::clone(&opening), server.connections, Some(first), limit));
        let together = opening.many.then(|| Bundled::new(Crowd::new(&commands)));
        let sql = |text: &str| opening.schema.statement(text);
        let takes = [include_str!("sql/acquire.sql"), include_str!("sql/insert.sql")];
        let names: Vec<_> = (3..3 + ROWS).map(|n| format!("${n}")).collect();
        let statements = Statements {
            acquire: takes.map(|text| sql(&text.replace("{reserve}", ""))),
            reserve: takes.map(|text| sql(&text.replace("{reserve}", " + $8"))),
            look: sql(include_str!("sql/look.sql")),
            free: sql(include_str!("sql/free.sql")),
            force: sql(include_str!("sql/force.sql")),
            void: sql(include_str!("sql/void.sql")),
            clean: sql(include_str!("sql/clean.sql")),
            list: sql(include_str!("sql/list.sql")),
            inspect: sql(include_str!("sql/inspect.sql")),
            window: sql(include_str!("sql/window.sql")),
            idle: sql(include_str!("sql/idle.sql")),
            floor: sql(include_str!("sql/floor.sql")),
            purge: sql(&include_str!("sql/purge.sql").replace("{names}", &names.join(", "))),
            lock: sql(include_str!("sql/lock.sql")),
            locked: sql(include_str!("sql/locked.sql")),
        };
        Ok(Arc::new(Self { opening, commands, together, met: Met::default(), renewals, statements }))
    }

    pub(crate) fn lock_statements(&self) -> (&Statement, &Statement) {
        (&self.statements.lock, &self.statements.locked)
    }

    pub(crate) fn least_token(&self) -> i64 {
        self.opening.config.server.least_token()
    }

    pub(super) async fn rows(
        &self,
        operation: &'static str,
        statement: &Statement,
        values: Vec<Value<'_>>,
    ) -> Result<Vec<MySqlRow>> {
        let outcome = self.commands.seat().await?.send(Asks(statement.with(values))).await;
        outcome.map_err(|failure| failure.at("mysql", operation).into())
    }

    pub(super) async fn run(
        &self,
        operation: &'static str,
        statement: &Statement,
        values: Vec<Value<'_>>,
    ) -> Result<MySqlQueryResult> {
        let outcome = self.commands.seat().await?.send(statement.with(values)).await;
        outcome.map_err(|failure| failure.at("mysql", operation).into())
    }

    async fn acquire_alone(&self, claim: &Claim) -> Result<Outcome> {
        let id = claim.id().to_bytes();
        let mut values = vec![
            Value::Bytes(claim.name().as_str().as_bytes()),
            Value::Bytes(&id),
            Value::Number(self.least_token()),
            Value::Number(in_micros(claim.server_ttl())),
            Value::Text(Some(claim.holder())),
            Value::Text(claim.note().map(|note| &**note)),
            Value::Number(in_micros(claim.lock_delay())),
        ];
        let mut statements = &self.statements.acquire;
        if claim.reserve() > 0 {
            values.push(Value::Number(claim.reserve().into()));
            statements = &self.statements.reserve;
        }
        // The row that is there, and else a new one.
        for statement in statements {
            let seat = self.commands.seat().await?;
            match Self::take(seat, claim, statement, values.clone()).await {
                Ok(Took::Lock(sent_at, token)) => return Ok(Outcome::Granted(sent_at, token)),
                // Held inside somebody's transaction, or just being taken.
                Ok(Took::Locked) => return Ok(Outcome::Held(Attempt::contended(Some(AGAIN), None))),
                Ok(Took::NoRow) => {}
                Ok(Took::Not) => break,
                Err(failure) => return Err(failure.at("mysql", "acquire").into()),
            }
        }
        self.look(claim).await
    }

    async fn free_alone(&self, claim: &Claim, operation: &'static str) -> Result<bool> {
        let id = claim.id().to_bytes();
        let values = vec![Value::Bytes(claim.name().as_str().as_bytes()), Value::Bytes(&id)];
        // A second answer cannot tell that the first had freed it.
        let ready = self.statements.free.with(values);
        let outcome = self.commands.seat().await?.send_if(ready, |done| done.rows_affected() > 0).await;
        Ok(outcome.map_err(|failure: Failure| failure.at("mysql", operation))?.rows_affected() > 0)
    }

    /// Sends a statement that takes the lock: its token, if it did.
    async fn take(
        seat: Seat<'_, Opening>,
        claim: &Claim,
        statement: &Statement,
        values: Vec<Value<'_>>,
    ) -> Result<Took, Failure> {
        let sent_at = claim.now();
        match seat.send_for(claim.request(), statement.with(values)).await {
            Ok(done) => {
                let token = done.last_insert_id();
                Ok(match (done.rows_affected(), token) {
                    (0, _) => Took::NoRow,
                    (_, 0) => Took::Not,
                    _ => Took::Lock(sent_at, FencingToken::new(token)),
                })
            }
            Err(failure) => match failure.cause {
                Cause::Duplicate => Ok(Took::Not),
                Cause::Locked => Ok(Took::Locked),
                _ => Err(failure),
            },
        }
    }
}

/// What became of a statement that takes the lock.
enum Took {
    Lock(Moment, FencingToken),
    /// There is a row, which it did not take.
    Not,
    /// There is no row that it could take.
    NoRow,
    /// Another transaction has the row to itself.
    Locked,
}

#[async_trait]
impl LockTable for Store {
    fn engine(&self) -> &'static str {
        "mysql"
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
        None
    }

    async fn acquire(&self, claim: &Claim, _waits: bool) -> Result<Outcome> {
        let way = match &self.together {
            Some(together) if !self.met.was_held(claim.name()) => together.take(claim).await?,
            _ => Way::Alone(Trip::unshared()),
        };
        let outcome = match way {
            Way::Answered(outcome) => outcome,
            Way::Alone(trip) => trip.run(Some(claim), self.acquire_alone(claim)).await?,
        };
        if matches!(outcome, Outcome::Held(_)) && self.together.is_some() {
            self.met.held(claim.name());
        }
        Ok(outcome)
    }

    async fn look(&self, claim: &Claim) -> Result<Outcome> {
        let id = claim.id().to_bytes();
        let values = vec![Value::Bytes(claim.name().as_str().as_bytes()), Value::Bytes(&id)];
        let rows = self.rows("look", &self.statements.look, values).await?;
        let read_only = rows.first().map_or(Ok(0), |row| row.try_get::<i64, _>("read_only"));
        if read_only.map_err(|e| failure(e).at("mysql", "look"))? != 0 {
            // The next one goes to whoever has taken over.
            self.commands.forget();
            return Err(read_only_server().at("mysql", "look").into());
        }
        outcome(rows.first(), claim).map_err(|e| failure(e).at("mysql", "look").into())
    }

    async fn renew(&self, claim: &Claim, token: FencingToken, server_ttl: Duration, at_once: bool) -> Result<bool> {
        self.renewals.renew(claim, token, server_ttl, at_once).await
    }

    async fn free(&self, claim: &Claim, token: Option<FencingToken>, operation: &'static str) -> Result<bool> {
        let way = match &self.together {
            Some(together) => together.free(claim, token, own(claim, operation), operation).await?,
            None => Way::Alone(Trip::unshared()),
        };
        match way {
            Way::Answered(freed) => Ok(freed),
            Way::Alone(trip) => trip.run(own(claim, operation), self.free_alone(claim, operation)).await,
        }
    }

    async fn void(&self, claim: &Claim) -> Result<()> {
        let id = claim.id().to_bytes();
        let until = in_micros(claim.server_ttl().max(VOID));
        self.run("void", &self.statements.void, vec![Value::Bytes(&id), Value::Number(until)]).await?;
        if let Err(e) = self.run("void", &self.statements.clean, Vec::new()).await {
            tracing::debug!(target: "fencelock", error = %e, "old voids are left for later");
        }
        Ok(())
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<HolderInfo>> {
        let rows = self.rows("inspect", &self.statements.inspect, vec![Value::Bytes(name.as_str().as_bytes())]).await?;
        let held = rows.first().map(holder_info).transpose();
        Ok(held.map_err(|e| failure(e).at("mysql", "inspect"))?.map(|(_, info)| info))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(LockName, HolderInfo)>> {
        let rows = self.rows("list", &self.statements.list, vec![Value::Bytes(prefix.as_bytes())]).await?;
        let mut held = Vec::new();
        for row in &rows {
            let (name, info) = holder_info(row).map_err(|e| failure(e).at("mysql", "list"))?;
            if let Some(name) = String::from_utf8(name).ok().and_then(|name| LockName::new(name).ok()) {
                held.push((name, info));
            }
        }
        Ok(held)
    }

    async fn force_release(&self, name: &LockName, (least, largest): (i64, i64)) -> Result<bool> {
        let values = vec![Value::Bytes(name.as_str().as_bytes()), Value::Number(least), Value::Number(largest)];
        let ready = self.statements.force.with(values);
        let outcome = self.commands.seat().await?.send_if(ready, |done| done.rows_affected() > 0).await;
        Ok(outcome.map_err(|failure: Failure| failure.at("mysql", "force_release"))?.rows_affected() > 0)
    }

    async fn purge(&self, idle: Duration) -> Result<u64> {
        self.purge_rows(in_micros(idle)).await
    }
}

pub(super) fn outcome(row: Option<&MySqlRow>, claim: &Claim) -> sqlx::Result<Outcome> {
    let Some(row) = row else { return Ok(Outcome::Open) };
    if row.try_get::<i64, _>("voided")? != 0 {
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
    } else if free {
        Outcome::Open
    } else {
        let holder = (!closed).then(|| row.try_get::<String, _>("holder")).transpose()?;
        Outcome::held(micros(expires_at.saturating_sub(now)), holder)
    })
}

fn holder_info(row: &MySqlRow) -> sqlx::Result<(Vec<u8>, HolderInfo)> {
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
        f.debug_struct("Store").field("config", &self.opening.config).finish_non_exhaustive()
    }
}
