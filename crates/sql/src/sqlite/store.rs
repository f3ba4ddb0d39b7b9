//! The statements on the lock table.

use super::SqliteConfig;
use super::bundle::Crowd;
use super::failure::Failure;
use super::frame::{Frame, unix_now};
use super::opening::Opening;
use super::renew::Renewer;
use super::row::{Row, Standing};
use super::session::Session;
use crate::bundle::{Bundled, Way, own};
use crate::micros::{in_micros, micros};
use crate::renewals::Renewals;
use crate::table::{LockTable, Outcome};
use async_trait::async_trait;
use fencelock_core::{Claim, ClaimId, Clock, FencingToken, Guarantees, Hints, HolderInfo, LockName, Moment, Result};
use sqlx::sqlite::SqliteRow;
use sqlx::{AssertSqlSafe, Row as _, SqlSafeStr as _};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A void outlasts any statement that may still be on its way.
const VOID: Duration = Duration::from_secs(60);
/// How long a void is kept whose clock cannot be read here.
const FOREIGN_VOID: Duration = Duration::from_secs(86_400);

/// The lock table of one file.
pub(crate) struct Store {
    pub(super) opening: Arc<Opening>,
    pub(super) commands: Arc<Session>,
    together: Bundled<Crowd>,
    renewals: Arc<Renewals<Renewer>>,
    acquire: Arc<str>,
    /// The same where tokens are reserved.
    reserve: Arc<str>,
    waker: Arc<Waker>,
}

/// Tells waiters of a release, where that can be told.
pub(crate) struct Waker {
    #[cfg(target_os = "linux")]
    watch: super::watch::Watch,
}

impl Waker {
    pub(super) fn wake(&self) {
        #[cfg(target_os = "linux")]
        self.watch.wake();
    }
}

/// What was seen of a name.
struct Seen {
    voided: bool,
    row: Option<Row>,
    /// When it was looked, in our frame.
    now: i64,
}

/// How long a hold is waited out whose clock cannot be read here: its ttl, and 1 % for clocks that differ.
const fn foreign_wait(ttl: i64) -> i64 {
    ttl.saturating_add(ttl / 100).saturating_add(1)
}

impl Store {
    pub(crate) async fn open(config: SqliteConfig) -> Result<Self> {
        let (opening, first, file) = Opening::first(config).await?;
        let opening = Arc::new(opening);
        let second = opening.again().await?;
        #[cfg(not(target_os = "linux"))]
        drop(file);
        let waker = Arc::new(Waker {
            #[cfg(target_os = "linux")]
            watch: super::watch::Watch::new(&file),
        });
        let commands = Arc::new(Session::new(Arc::clone(&opening), first));
        let (session, of) = (Arc::clone(&commands), Arc::clone(&opening));
        Ok(Self {
            together: Bundled::new(Crowd { opening: of, session, waker: Arc::clone(&waker) }),
            commands,
            waker,
            renewals: Renewals::new(Renewer::new(Session::new(Arc::clone(&opening), second), opening.frame.clone())),
            opening,
            acquire: include_str!("sql/acquire.sql").replace("{reserve}", "").into(),
            reserve: include_str!("sql/acquire.sql").replace("{reserve}", " + ?11").into(),
        })
    }

    /// The present in our frame, in Unix time, and the smallest token that may be given out.
    pub(crate) fn clocks(&self) -> (i64, i64, i64) {
        let (now, unix) = (self.frame().now(&self.opening.config.clock), unix_now());
        (now, unix, self.opening.least_token())
    }

    pub(crate) fn frame(&self) -> &Frame {
        &self.opening.frame
    }

    /// Takes the lock if it may be taken: when it was asked, and the token.
    async fn take(&self, claim: &Claim) -> Result<Option<(Moment, FencingToken)>> {
        let mut seat = self.commands.seat().await?;
        // Read here and not in the statement, which may run late: a stale `now` takes others'
        // leases for unexpired, never for expired, and dates our own back, to when it was sent.
        let sent_at = claim.now();
        let (now, unix) = (self.frame().at(sent_at), unix_now());
        let id = claim.id().to_bytes();
        let sql = if claim.reserve() > 0 { &self.reserve } else { &self.acquire };
        let query = sqlx::query(AssertSqlSafe(Arc::clone(sql)).into_sql_str())
            .bind(claim.name().as_str().as_bytes())
            .bind(id.as_slice())
            .bind(self.opening.least_token())
            .bind(now)
            .bind(in_micros(claim.server_ttl()))
            .bind(self.frame().id())
            .bind(&**claim.holder())
            .bind(claim.note().map(|note| &**note))
            .bind(unix)
            .bind(in_micros(claim.lock_delay()));
        let query = if claim.reserve() > 0 { query.bind(i64::from(claim.reserve())) } else { query };
        let request = claim.request();
        match seat.rows(query).await {
            Ok(rows) => {
                request.answered();
                let Some(row) = rows.first() else { return Ok(None) };
                Ok(Some((sent_at, token(row, 0).map_err(|e| told(Failure::of(e), "acquire"))?)))
            }
            Err(failure) => {
                if failure.not_done {
                    request.answered();
                }
                Err(told(failure, "acquire"))
            }
        }
    }

    async fn free_row(&self, claim: &Claim, operation: &'static str) -> Result<bool> {
        let mut seat = self.commands.seat().await?;
        let id = claim.id().to_bytes();
        let query =
            sqlx::query(include_str!("sql/free.sql")).bind(claim.name().as_str().as_bytes()).bind(id.as_slice());
        let rows = seat.rows(query).await.map_err(|failure| told(failure, operation))?;
        if !rows.is_empty() {
            self.waker.wake();
        }
        Ok(!rows.is_empty())
    }

    /// Reads the row of `name`, and whether `id` is void.
    async fn see(&self, name: &LockName, id: ClaimId, clock: &Clock) -> Result<Seen> {
        let mut seat = self.commands.seat().await?;
        let now = self.frame().now(clock);
        let id = id.to_bytes();
        let query = sqlx::query(include_str!("sql/look.sql")).bind(name.as_str().as_bytes()).bind(id.as_slice());
        let rows = seat.rows(query).await.map_err(|failure| told(failure, "look"))?;
        seen(&rows, now).map_err(|e| told(Failure::of(e), "look"))
    }

    /// Takes the row into our frame, so that whoever comes next can see it run out.
    ///
    /// It is done once, and lasts in the file: short-lived programs that each
    /// waited by themselves would never see the end. A holder that lives renews
    /// into its own frame, and is then waited out anew.
    async fn restamp(&self, name: &LockName, row: &Row, clock: &Clock) -> Result<()> {
        let mut seat = self.commands.seat().await?;
        let until = self.frame().now(clock).saturating_add(foreign_wait(row.ttl));
        let query = sqlx::query(include_str!("sql/restamp.sql"))
            .bind(name.as_str().as_bytes())
            .bind(row.claim_id.as_slice())
            .bind(row.boot_id.as_str())
            .bind(row.expires_at)
            .bind(until)
            .bind(self.frame().id());
        seat.rows(query).await.map(drop).map_err(|failure| told(failure, "look"))
    }

    fn outcome(&self, claim: &Claim, seen: &Seen) -> (Outcome, bool) {
        if seen.voided {
            return (Outcome::Dead { voided: true }, false);
        }
        let Some(row) = &seen.row else { return (Outcome::Open, false) };
        let standing = row.standing(self.frame(), seen.now);
        if row.was_taken_from(claim.id()) {
            return (Outcome::Dead { voided: false }, false);
        }
        if row.is_of(claim.id()) {
            let dead = standing == Standing::Free;
            return (if dead { Outcome::Dead { voided: false } } else { Outcome::Open }, false);
        }
        match standing {
            Standing::Free => (Outcome::Open, false),
            Standing::Held(left) => (Outcome::held(left, row.holder()), false),
            Standing::Foreign => (Outcome::held(micros(foreign_wait(row.ttl)), row.holder()), true),
        }
    }

    #[cfg(test)]
    pub(crate) fn commands(&self) -> &Session {
        &self.commands
    }
}

#[async_trait]
impl LockTable for Store {
    fn engine(&self) -> &'static str {
        "sqlite"
    }

    fn name(&self) -> &str {
        "fencelock_locks"
    }

    fn guarantees(&self) -> Arc<Guarantees> {
        self.opening.guarantees()
    }

    async fn probe(&self) -> Result<Arc<Guarantees>> {
        self.opening.probe().await
    }

    fn hints(&self) -> Option<&dyn Hints> {
        #[cfg(target_os = "linux")]
        return Some(&self.waker.watch);
        #[cfg(not(target_os = "linux"))]
        return None;
    }

    async fn acquire(&self, claim: &Claim, _waits: bool) -> Result<Outcome> {
        let taken = match self.together.take(claim).await? {
            Way::Alone(trip) => trip.run(Some(claim), self.take(claim)).await?,
            Way::Answered(taken) => taken,
        };
        match taken {
            Some((sent_at, token)) => Ok(Outcome::Granted(sent_at, token)),
            None => self.look(claim).await,
        }
    }

    async fn look(&self, claim: &Claim) -> Result<Outcome> {
        let seen = self.see(claim.name(), claim.id(), claim.clock()).await?;
        let (outcome, foreign) = self.outcome(claim, &seen);
        if let (true, Some(row)) = (foreign, &seen.row) {
            self.restamp(claim.name(), row, claim.clock()).await?;
        }
        Ok(outcome)
    }

    async fn renew(&self, claim: &Claim, token: FencingToken, server_ttl: Duration, at_once: bool) -> Result<bool> {
        self.renewals.renew(claim, token, server_ttl, at_once).await
    }

    async fn free(&self, claim: &Claim, token: Option<FencingToken>, operation: &'static str) -> Result<bool> {
        match self.together.free(claim, token, own(claim, operation), operation).await? {
            Way::Answered(freed) => Ok(freed),
            Way::Alone(trip) => trip.run(own(claim, operation), self.free_row(claim, operation)).await,
        }
    }

    async fn void(&self, claim: &Claim) -> Result<()> {
        let mut seat = self.commands.seat().await?;
        let (now, unix, frame) = (self.frame().now(claim.clock()), unix_now(), self.frame().id());
        let id = claim.id().to_bytes();
        let until = now.saturating_add(in_micros(claim.server_ttl().max(VOID)));
        let void = sqlx::query(include_str!("sql/void.sql")).bind(id.as_slice()).bind(until).bind(frame);
        seat.rows(void).await.map_err(|failure| told(failure, "void"))?;
        // Old voids go by the way. Those of another boot are handed to the wall clock, once: dropped
        // too early, a void costs at most what is left of a ttl that began when its statement was sent.
        let clean = sqlx::query(include_str!("sql/clean.sql")).bind(now).bind(frame).bind(unix);
        let adopt =
            sqlx::query(include_str!("sql/adopt.sql")).bind(frame).bind(unix.saturating_add(in_micros(FOREIGN_VOID)));
        for query in [clean, adopt] {
            if let Err(failure) = seat.rows(query).await {
                tracing::debug!(target: "fencelock", error = %failure.error, "old voids are left for later");
                break;
            }
        }
        Ok(())
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<HolderInfo>> {
        let nobody = ClaimId::from_bytes([0; 16]);
        let seen = self.see(name, nobody, &self.opening.config.clock).await?;
        Ok(seen.row.and_then(|row| row.holder_info(self.frame(), seen.now, unix_now())))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(LockName, HolderInfo)>> {
        let mut seat = self.commands.seat().await?;
        let now = self.frame().now(&self.opening.config.clock);
        let query = sqlx::query(include_str!("sql/list.sql")).bind(prefix.as_bytes());
        let rows = seat.rows(query).await.map_err(|failure| told(failure, "list"))?;
        let mut held = Vec::new();
        for row in &rows {
            let decoded = Row::read(row).and_then(|lock| Ok((row.try_get::<Vec<u8>, _>("name")?, lock)));
            let (name, lock) = decoded.map_err(|e| told(Failure::of(e), "list"))?;
            let name = String::from_utf8(name).ok().and_then(|name| LockName::new(name).ok());
            if let (Some(name), Some(info)) = (name, lock.holder_info(self.frame(), now, unix_now())) {
                held.push((name, info));
            }
        }
        Ok(held)
    }

    async fn force_release(&self, name: &LockName, (least, largest): (i64, i64)) -> Result<bool> {
        let mut seat = self.commands.seat().await?;
        let query = sqlx::query(include_str!("sql/force.sql"))
            .bind(name.as_str().as_bytes())
            .bind(self.frame().now(&self.opening.config.clock))
            .bind(self.frame().id())
            .bind(least)
            .bind(largest);
        let rows = seat.rows(query).await.map_err(|failure| told(failure, "force_release"))?;
        self.waker.wake();
        Ok(!rows.is_empty())
    }

    async fn purge(&self, idle: Duration) -> Result<u64> {
        self.purge_rows(in_micros(idle)).await
    }
}

fn seen(rows: &[SqliteRow], now: i64) -> sqlx::Result<Seen> {
    let Some(row) = rows.first() else { return Ok(Seen { voided: false, row: None, now }) };
    let found = row.try_get::<Option<Vec<u8>>, _>("claim_id")?.is_some();
    let lock = found.then(|| Row::read(row)).transpose()?;
    Ok(Seen { voided: row.try_get("voided")?, row: lock, now })
}

/// In this column of the row.
pub(super) fn token(row: &SqliteRow, column: usize) -> sqlx::Result<FencingToken> {
    let token: i64 = row.try_get(column)?;
    u64::try_from(token).map(FencingToken::new).map_err(|e| sqlx::Error::Decode(e.into()))
}

fn told(failure: Failure, operation: &'static str) -> fencelock_core::Error {
    failure.error.with_operation(operation)
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("config", &self.opening.config)
            .field("frame", self.frame())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencelock_core::{ErrorKind, Terms};

    fn claim(n: usize) -> Claim {
        let name = LockName::new(format!("{n} {}", "x".repeat(500))).unwrap();
        Terms::new(name, Duration::from_secs(60)).mint().unwrap()
    }

    /// The page limit stands in for the disk's end: SQLite answers the same.
    #[tokio::test]
    async fn a_full_disk_is_a_definite_no_and_passes() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(SqliteConfig::new(directory.path().join("l.db"))).await.unwrap();
        async fn limit(store: &Store, sql: &'static str) {
            store.commands.seat().await.unwrap().rows(sqlx::query(sql)).await.unwrap();
        }
        limit(&store, "PRAGMA max_page_count = 20").await;
        let mut refused = None;
        for n in 0..500 {
            let claim = claim(n);
            if let Err(e) = store.take(&claim).await {
                assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
                assert!(e.message().contains("full"), "{e}");
                assert!(claim.was_sent() && !claim.is_unanswered());
                refused = Some(claim);
                break;
            }
        }
        let refused = refused.unwrap();
        assert!(store.see(refused.name(), refused.id(), refused.clock()).await.unwrap().row.is_none());
        limit(&store, "PRAGMA max_page_count = 1000").await;
        assert!(store.take(&refused).await.unwrap().is_some());
    }
}
