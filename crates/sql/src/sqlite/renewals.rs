//! Renewals of all holds of a client, many in one statement.
//!
//! A commit costs the disk the same for one row as for many, so renewals that
//! are due close together go together. They wait for each other for a fiftieth
//! of the ttl, 50 ms at most, of which they have two thirds to spare.

use super::failure::Failure;
use super::frame::Frame;
use super::session::Session;
use crate::row::in_micros;
use fencelock_core::{Claim, Error, ErrorKind, Result};
use sqlx::Row as _;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until};

/// The most that renewals wait for each other.
const LINGER: Duration = Duration::from_millis(50);
/// The most rows in one statement, so that it stays short.
const MOST: usize = 500;

/// A connection of its own, since a renewal must not wait behind acquires, and who waits for it.
pub(crate) struct Renewals {
    session: Session,
    frame: Frame,
    queue: Mutex<Queue>,
    sooner: Notify,
}

#[derive(Default)]
struct Queue {
    wishes: Vec<Wish>,
    due: Option<Instant>,
    /// Whether a task works the queue off.
    working: bool,
}

struct Wish {
    claim: Claim,
    server_ttl: Duration,
    tell: oneshot::Sender<Result<bool>>,
}

/// Lets the next wish start a task when this one ends, however it ends.
struct Working {
    renewals: Arc<Renewals>,
    /// The queue was empty, and said so itself.
    done: bool,
}

impl Drop for Working {
    fn drop(&mut self) {
        if !self.done {
            self.renewals.queue().working = false;
        }
    }
}

impl Renewals {
    pub(crate) fn new(session: Session, frame: Frame) -> Arc<Self> {
        Arc::new(Self { session, frame, queue: Mutex::default(), sooner: Notify::new() })
    }

    /// Counts the ttl anew, if the claim holds the lock; at once, or with others that are due.
    pub(crate) async fn renew(self: &Arc<Self>, claim: &Claim, server_ttl: Duration, at_once: bool) -> Result<bool> {
        let linger = if at_once { Duration::ZERO } else { LINGER.min(claim.ttl() / 50) };
        let (tell, told) = oneshot::channel();
        self.wish(Wish { claim: claim.clone(), server_ttl, tell }, Instant::now() + linger);
        told.await.unwrap_or_else(|_| Err(unavailable("the renewal was given up")))
    }

    fn wish(self: &Arc<Self>, wish: Wish, due: Instant) {
        let mut queue = self.queue();
        queue.wishes.push(wish);
        if queue.due.is_none_or(|other| due < other) {
            queue.due = Some(due);
            self.sooner.notify_one();
        }
        if !queue.working {
            queue.working = true;
            tokio::spawn(Working { renewals: Arc::clone(self), done: false }.work());
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is due, or when something will be; neither if nobody waits.
    fn due(&self) -> (Vec<Wish>, Option<Instant>) {
        let mut queue = self.queue();
        // Whoever gave up asks again under the same claim, which must not be in one statement twice.
        queue.wishes.retain(|wish| !wish.tell.is_closed());
        if queue.wishes.is_empty() {
            queue.due = None;
            queue.working = false;
        }
        match queue.due {
            Some(due) if due <= Instant::now() => {
                let rest = queue.wishes.len().min(MOST);
                let rest = queue.wishes.split_off(rest);
                let batch = std::mem::replace(&mut queue.wishes, rest);
                if queue.wishes.is_empty() {
                    queue.due = None;
                }
                (batch, Some(due))
            }
            due => (Vec::new(), due),
        }
    }

    async fn ask(&self, batch: &[Wish]) -> Result<HashSet<Vec<u8>>> {
        let mut seat = self.session.seat().await?;
        let wishes = self.json(batch);
        let query = sqlx::query(include_str!("sql/renew.sql")).bind(wishes.as_str()).bind(self.frame.id());
        let rows = seat.rows(query).await?;
        rows.iter().map(|row| row.try_get(0)).collect::<sqlx::Result<_>>().map_err(|e| Failure::of(e).into())
    }

    /// The present is read here, just before the statement is sent: a stale one gives less time, never more.
    fn json(&self, batch: &[Wish]) -> String {
        let mut json = String::from("[");
        for wish in batch {
            let comma = if json.len() > 1 { "," } else { "" };
            let name = hex(wish.claim.name().as_str().as_bytes());
            let (now, ttl) = (self.frame.now(wish.claim.clock()), in_micros(wish.server_ttl));
            let _ = write!(json, r#"{comma}["{name}","{}",{now},{ttl}]"#, wish.claim.id());
        }
        json.push(']');
        json
    }
}

impl Working {
    /// Works the queue off, and ends when it is empty.
    async fn work(mut self) {
        loop {
            let renewals = &self.renewals;
            let (batch, due) = renewals.due();
            match due {
                Some(_) if !batch.is_empty() => {
                    let outcome = renewals.ask(&batch).await;
                    for wish in batch {
                        let told = match &outcome {
                            Ok(renewed) => Ok(renewed.contains(wish.claim.id().to_bytes().as_slice())),
                            Err(e) => Err(Error::new(e.kind(), e.message().to_owned())
                                .with_engine("sqlite")
                                .with_operation("renew")
                                .with_name(wish.claim.name())),
                        };
                        let _ = wish.tell.send(told);
                    }
                }
                Some(due) => {
                    tokio::select! {
                        () = sleep_until(due) => {}
                        () = renewals.sooner.notified() => {}
                    }
                }
                None => {
                    self.done = true;
                    return;
                }
            }
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn unavailable(message: &'static str) -> Error {
    Error::new(ErrorKind::Unavailable, message).with_engine("sqlite").with_operation("renew")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::{SqliteConfig, Store};

    #[test]
    fn names_go_through_json_whatever_is_in_them() {
        assert_eq!(hex("\"é\0".as_bytes()), "22c3a900");
    }

    #[tokio::test]
    async fn rows_are_found_by_their_key() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(SqliteConfig::new(directory.path().join("l.db"))).await.unwrap();
        let mut seat = store.renewals().session.seat().await.unwrap();
        let sql = concat!("EXPLAIN QUERY PLAN ", include_str!("sql/renew.sql"));
        let rows = seat.rows(sqlx::query(sql).bind("[]").bind("")).await.unwrap();
        let plan: Vec<String> = rows.iter().map(|row| row.get("detail")).collect();
        assert!(plan.iter().any(|step| step.contains("SEARCH l USING PRIMARY KEY")), "{plan:?}");
    }
}
