//! One connection, used by one statement at a time, opened again when it breaks.
//!
//! Only single statements are sent, each its own transaction: a dropped future
//! does not stop a statement, which runs on the connection's thread all the same.
//! So statements of one session run in the order in which they were sent, given
//! up or not, and a connection is replaced only after its last statement was
//! answered. No renewal can be overtaken by an older one.

use super::failure::Failure;
use super::opening::{Opened, Opening};
use fencelock_core::{ErrorKind, Result};
use sqlx::Execute as _;
use sqlx::query::Query;
use sqlx::sqlite::{Sqlite, SqliteArguments, SqliteRow};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, timeout_at};

/// The pause before a statement is tried again that met another writer, at first and at most.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(5);

pub(crate) struct Session {
    opening: Arc<Opening>,
    slot: Mutex<Option<Opened>>,
}

/// The session, to oneself, until dropped.
pub(crate) struct Seat<'s> {
    slot: MutexGuard<'s, Option<Opened>>,
    until: Instant,
    limit: Duration,
    /// How long another writer is waited for.
    patience: Duration,
}

impl Session {
    pub(crate) fn new(opening: Arc<Opening>, opened: Opened) -> Self {
        Self { opening, slot: Mutex::new(Some(opened)) }
    }

    /// Waits for the connection, opening it anew if need be.
    ///
    /// # Errors
    /// Whatever it is, nothing was sent.
    pub(crate) async fn seat(&self) -> Result<Seat<'_>> {
        let limit = self.opening.config.request_timeout;
        let mut until = Instant::now() + limit;
        let Ok(mut slot) = timeout_at(until, self.slot.lock()).await else {
            return Err(Failure::new(ErrorKind::Unavailable, format!("the connection was busy for {limit:?}")).into());
        };
        // Whoever opens the path next gets the other file; two of us must not lock in two files.
        if slot.as_ref().is_some_and(|opened| !self.opening.is_current(opened)) {
            tracing::warn!(target: "fencelock", engine = "sqlite", "the lock file was moved or replaced; opening it anew");
            *slot = None;
        }
        if slot.is_none() {
            *slot = Some(self.opening.again().await?);
            until = Instant::now() + limit;
        }
        Ok(Seat { slot, until, limit, patience: self.opening.config.busy_timeout() })
    }
}

impl Seat<'_> {
    /// Runs one statement to its end, again and again while another writer is in the way.
    ///
    /// SQLite's own waiting sleeps up to 100 ms at a time and is overtaken by
    /// every writer that comes by meanwhile; looking often gets through a busy
    /// file. Between two tries nothing is on its way.
    pub(crate) async fn rows(
        &mut self,
        mut query: Query<'_, Sqlite, SqliteArguments>,
    ) -> Result<Vec<SqliteRow>, Failure> {
        let arguments = query.take_arguments().map_err(|e| Failure::of(sqlx::Error::Encode(e)))?.unwrap_or_default();
        let sql = query.sql();
        let patience = Instant::now() + self.patience;
        let mut pause = SHORTEST;
        loop {
            match self.once(sqlx::query_with(sql.clone(), arguments.clone())).await {
                Err(failure) if failure.busy && Instant::now() + pause < patience.min(self.until) => {
                    tokio::time::sleep(pause).await;
                    pause = (pause + SHORTEST / 10).min(LONGEST);
                }
                outcome => return outcome,
            }
        }
    }

    /// All rows are asked for, even where there is one: asked for a single row,
    /// the driver resets the statement after it, and the commit's own failure,
    /// a full disk say, would pass for success.
    async fn once(&mut self, query: Query<'_, Sqlite, SqliteArguments>) -> Result<Vec<SqliteRow>, Failure> {
        let Some(opened) = self.slot.as_mut() else {
            return Err(Failure::new(ErrorKind::Unavailable, "the connection is closed"));
        };
        let failure = match timeout_at(self.until, query.fetch_all(&mut opened.connection)).await {
            Ok(Ok(rows)) => return Ok(rows),
            Ok(Err(cause)) => Failure::of(cause),
            Err(_) => Failure::no_answer(self.limit),
        };
        if failure.reopen {
            *self.slot = None;
        }
        Err(failure)
    }
}
