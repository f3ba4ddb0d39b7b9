//! The statements on the lock table.

use super::SqliteConfig;
use super::failure::Failure;
use super::frame::{Frame, unix_now};
use super::opening::Opening;
use super::renewals::Renewals;
use super::session::Session;
use crate::row::{Row, in_micros};
use fencelock_core::{Claim, ClaimId, Clock, FencingToken, Guarantees, Hints, HolderInfo, LockName, Moment, Result};
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A void outlasts any statement that may still be on its way.
const VOID: Duration = Duration::from_secs(60);
/// How long a void is kept whose clock cannot be read here.
const FOREIGN_VOID: Duration = Duration::from_secs(86_400);

/// The lock table of one file.
pub(crate) struct Store {
    opening: Arc<Opening>,
    commands: Session,
    renewals: Arc<Renewals>,
    #[cfg(target_os = "linux")]
    watch: super::watch::Watch,
}

/// What was seen of a name.
pub(crate) struct Seen {
    pub(crate) voided: bool,
    pub(crate) row: Option<Row>,
    /// When it was looked, in our frame.
    pub(crate) now: i64,
}

/// How long a hold is waited out whose clock cannot be read here: its ttl, and 1 % for clocks that differ.
pub(crate) const fn foreign_wait(ttl: i64) -> i64 {
    ttl.saturating_add(ttl / 100).saturating_add(1)
}

impl Store {
    pub(crate) async fn open(config: SqliteConfig) -> Result<Self> {
        let (opening, first, file) = Opening::first(config).await?;
        let opening = Arc::new(opening);
        let second = opening.again().await?;
        #[cfg(not(target_os = "linux"))]
        drop(file);
        Ok(Self {
            commands: Session::new(Arc::clone(&opening), first),
            renewals: Renewals::new(Session::new(Arc::clone(&opening), second), opening.frame.clone()),
            opening,
            #[cfg(target_os = "linux")]
            watch: super::watch::Watch::new(&file),
        })
    }

    pub(crate) fn frame(&self) -> &Frame {
        &self.opening.frame
    }

    pub(crate) fn guarantees(&self) -> Arc<Guarantees> {
        self.opening.guarantees()
    }

    /// One ear for all waiters, where the system has any.
    pub(crate) fn hints(&self) -> Option<&dyn Hints> {
        #[cfg(target_os = "linux")]
        return Some(&self.watch);
        #[cfg(not(target_os = "linux"))]
        return None;
    }

    /// Takes the lock if it may be taken: when it was asked, and the token.
    pub(crate) async fn acquire(&self, claim: &Claim) -> Result<Option<(Moment, FencingToken)>> {
        let mut seat = self.commands.seat().await?;
        // Read here and not in the statement, which may run late: a stale `now` takes others'
        // leases for unexpired, never for expired, and dates our own back, to when it was sent.
        let sent_at = claim.now();
        let (now, unix) = (self.frame().at(sent_at), unix_now());
        let base = i64::try_from(self.opening.config.token_base).unwrap_or(i64::MAX);
        let id = claim.id().to_bytes();
        let query = sqlx::query(include_str!("sql/acquire.sql"))
            .bind(claim.name().as_str().as_bytes())
            .bind(id.as_slice())
            .bind(unix.max(base.saturating_add(1)))
            .bind(now)
            .bind(in_micros(claim.server_ttl()))
            .bind(self.frame().id())
            .bind(&**claim.holder())
            .bind(claim.note().map(|note| &**note))
            .bind(unix);
        let request = claim.request();
        match seat.rows(query).await {
            Ok(rows) => {
                request.answered();
                let Some(row) = rows.first() else { return Ok(None) };
                Ok(Some((sent_at, token(row).map_err(|e| told(Failure::of(e), "acquire"))?)))
            }
            Err(failure) => {
                if failure.not_done {
                    request.answered();
                }
                Err(told(failure, "acquire"))
            }
        }
    }

    /// Reads the row of `name`, and whether `id` is void.
    pub(crate) async fn look(&self, name: &LockName, id: ClaimId, clock: &Clock) -> Result<Seen> {
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
    pub(crate) async fn restamp(&self, name: &LockName, row: &Row, clock: &Clock) -> Result<()> {
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

    /// Counts the ttl anew, if the claim holds the lock; at once, or with other renewals.
    pub(crate) async fn renew(&self, claim: &Claim, server_ttl: Duration, at_once: bool) -> Result<bool> {
        self.renewals.renew(claim, server_ttl, at_once).await
    }

    /// Frees the lock if the claim has it.
    pub(crate) async fn free(&self, claim: &Claim, operation: &'static str) -> Result<bool> {
        let mut seat = self.commands.seat().await?;
        let id = claim.id().to_bytes();
        let query =
            sqlx::query(include_str!("sql/free.sql")).bind(claim.name().as_str().as_bytes()).bind(id.as_slice());
        let rows = seat.rows(query).await.map_err(|failure| told(failure, operation))?;
        if !rows.is_empty() {
            self.wake();
        }
        Ok(!rows.is_empty())
    }

    /// Makes the id dead, whatever of it is still on its way.
    pub(crate) async fn void(&self, claim: &Claim) -> Result<()> {
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

    pub(crate) async fn inspect(&self, name: &LockName) -> Result<Option<HolderInfo>> {
        let nobody = ClaimId::from_bytes([0; 16]);
        let seen = self.look(name, nobody, &self.opening.config.clock).await?;
        Ok(seen.row.and_then(|row| row.holder_info(self.frame(), seen.now, unix_now())))
    }

    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<(LockName, HolderInfo)>> {
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

    pub(crate) async fn force_release(&self, name: &LockName) -> Result<bool> {
        let mut seat = self.commands.seat().await?;
        let query = sqlx::query(include_str!("sql/force.sql"))
            .bind(name.as_str().as_bytes())
            .bind(self.frame().now(&self.opening.config.clock))
            .bind(self.frame().id());
        let rows = seat.rows(query).await.map_err(|failure| told(failure, "force_release"))?;
        self.wake();
        Ok(!rows.is_empty())
    }

    #[cfg(test)]
    pub(crate) fn renewals(&self) -> &Renewals {
        &self.renewals
    }

    fn wake(&self) {
        #[cfg(target_os = "linux")]
        self.watch.wake();
    }
}

fn seen(rows: &[SqliteRow], now: i64) -> sqlx::Result<Seen> {
    let Some(row) = rows.first() else { return Ok(Seen { voided: false, row: None, now }) };
    let found = row.try_get::<Option<Vec<u8>>, _>("claim_id")?.is_some();
    let lock = found.then(|| Row::read(row)).transpose()?;
    Ok(Seen { voided: row.try_get("voided")?, row: lock, now })
}

fn token(row: &SqliteRow) -> sqlx::Result<FencingToken> {
    let token: i64 = row.try_get(0)?;
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
            if let Err(e) = store.acquire(&claim).await {
                assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
                assert!(e.message().contains("full"), "{e}");
                assert!(claim.was_sent() && !claim.is_unanswered());
                refused = Some(claim);
                break;
            }
        }
        let refused = refused.unwrap();
        assert!(store.look(refused.name(), refused.id(), refused.clock()).await.unwrap().row.is_none());
        limit(&store, "PRAGMA max_page_count = 1000").await;
        assert!(store.acquire(&refused).await.unwrap().is_some());
    }
}
