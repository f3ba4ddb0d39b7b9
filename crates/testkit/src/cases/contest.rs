//! Contenders for one lock that surely meet, and are seen when two are inside at once.

use crate::failure::{Outcome, ensure};
use crate::stage::{SLACK, until};
use fencelock_core::{LockGuard, NamedLock};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Barrier;

/// In how many of their first turns contenders stay inside for a moment, in which others run.
const LONG_TURNS: u32 = 8;
/// How often whoever is inside first lets others run after all have asked: one after the other, so that a machine
/// that stands still takes one of them and not all.
const LOOKS: u32 = 10;

/// A number that only the lock protects.
pub(super) struct Contest {
    contenders: usize,
    begin: Barrier,
    asked: AtomicUsize,
    inside: AtomicBool,
    number: AtomicU64,
    newest: AtomicU64,
}

impl Contest {
    /// Among so many, none of whom begins before all are there: each takes all its turns.
    pub(super) fn among(contenders: usize) -> Self {
        let (inside, asked, begin) = (AtomicBool::new(false), AtomicUsize::new(0), Barrier::new(contenders));
        Self { contenders, begin, asked, inside, number: AtomicU64::new(0), newest: AtomicU64::new(0) }
    }

    /// Acquires, adds one, and leaves the guard to the contender.
    pub(super) async fn turn(&self, turn: u32, lock: &NamedLock) -> Outcome<LockGuard> {
        if turn == 0 {
            self.begin.wait().await;
        }
        self.asked.fetch_add(1, Ordering::SeqCst);
        let guard = lock.acquire().await?;
        ensure!(!self.inside.swap(true, Ordering::SeqCst), "two are inside at once");
        let read = self.number.load(Ordering::SeqCst);
        // Held by nobody else now, so tokens come here in the order of the grants.
        let token = guard.token().get();
        let last = self.newest.swap(token, Ordering::SeqCst);
        ensure!(token > last, "under contention token {token} came after {last}");
        if read == 0 {
            until("all contenders ask", SLACK, || self.asked.load(Ordering::SeqCst) >= self.contenders).await?;
            for _ in 0..LOOKS {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        } else if turn < LONG_TURNS {
            tokio::time::sleep(Duration::from_millis(1)).await;
        } else {
            tokio::task::yield_now().await;
        }
        self.number.store(read + 1, Ordering::SeqCst);
        ensure!(self.inside.swap(false, Ordering::SeqCst), "two were inside at once");
        Ok(guard)
    }

    /// Checks how often one was added.
    pub(super) fn came_to(&self, expected: u64) -> Outcome {
        let counted = self.number.load(Ordering::SeqCst);
        ensure!(counted == expected, "{expected} increments came to {counted}: two held at once");
        Ok(())
    }
}
