//! The session's own heartbeat: what proves that it lives, and since when.

use crate::failure::Failure;
use crate::holds::ago;
use crate::session::Session;
use crate::trail::Trail;
use fencelock_core::{Clock, Moment};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use zookeeper_client::CreateMode;

/// What is known of a session's heartbeats.
#[derive(Debug)]
pub(crate) struct Pulse {
    clock: Clock,
    trail: Mutex<Trail>,
    /// Whether heartbeats write, since the servers cannot tell otherwise.
    by_writing: AtomicBool,
    /// How many heartbeats have written: no two of them share a node.
    written: AtomicU64,
}

impl Pulse {
    /// Of a session whose opening was sent at `sent`.
    pub(crate) fn since(clock: Clock, sent: Moment, margin: Duration) -> Self {
        let (by_writing, written) = (AtomicBool::new(false), AtomicU64::new(0));
        Self { clock, trail: Mutex::new(Trail::since(sent, margin)), by_writing, written }
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    fn trail(&self) -> MutexGuard<'_, Trail> {
        self.trail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    /// One heartbeat. Its answer says whether this connection is in this session:
    /// a service may hand out a new session without a word, and the nodes of the
    /// old one are still there then, for as long as nobody keeps it alive.
    pub(crate) async fn beat(&self) -> Result<(), Failure> {
        let sent = self.pulse.clock.now();
        // No server answers a write without the others.
        let by_writing = self.pulse.by_writing.load(Ordering::SeqCst) || self.pulse.trail().is_broken(sent);
        let mine = if by_writing { self.is_mine_by_writing().await } else { self.is_mine_by_reading().await };
        match mine {
            Ok(true) => {
                let proved = {
                    let mut trail = self.pulse.trail();
                    trail.answered(sent, self.pulse.clock.now());
                    trail.proved()
                };
                self.holds.renewed(|| self.pulse.clock.now().since(proved));
                Ok(())
            }
            Ok(false) => {
                self.end("the servers have it no more, or have replaced it");
                Err(Failure::Unknown("the session has ended".to_owned()))
            }
            Err(zookeeper_client::Error::Unimplemented) => {
                self.pulse.by_writing.store(true, Ordering::SeqCst);
                Err(Failure::Unknown(
                    "the server does not list a session's nodes; asked by writing from now on".to_owned(),
                ))
            }
            // Nothing that was asked for, so no answer to whoever sends a heartbeat on the way.
            Err(e @ zookeeper_client::Error::NoAuth) => Err(Failure::Denied(e.to_string())),
            Err(e) => Err(Failure::Unknown(format!("heartbeat: {e}"))),
        }
    }

    /// Lists the nodes of the session that asks, of which the session's own must be one.
    async fn is_mine_by_reading(&self) -> Result<bool, zookeeper_client::Error> {
        let marker = self.keys.session(self.id);
        Ok(self.client.list_ephemerals(&marker).await?.contains(&marker))
    }

    /// Makes a node and looks whose it is, for servers that have no such list (before 3.6, and compatible ones).
    async fn is_mine_by_writing(&self) -> Result<bool, zookeeper_client::Error> {
        let proof = format!("{}-{}", self.keys.session(self.id), self.pulse.written.fetch_add(1, Ordering::SeqCst));
        let mode = self.with_mode(CreateMode::Ephemeral);
        let creation = self.client.create(&proof, &[], &mode);
        let deletion = self.client.delete(&proof, None);
        match tokio::join!(creation, deletion).0 {
            Ok((stat, _)) => Ok(self.owns(stat.ephemeral_owner)),
            // Its parent is gone, and the session's own node with it.
            Err(zookeeper_client::Error::NoNode) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// How long ago the last heartbeat left that was answered.
    pub(crate) fn quiet(&self) -> Duration {
        let last = self.pulse.trail().last();
        self.pulse.clock.now().since(last)
    }

    /// How long ago it was from when the session may be believed.
    pub(crate) fn age(&self) -> Duration {
        let proved = self.pulse.trail().proved();
        self.pulse.clock.now().since(proved)
    }

    /// From when the session may be believed, on the clock that says `now`.
    pub(crate) fn proved(&self, now: Moment) -> Moment {
        ago(now, self.age())
    }

    /// Makes sure of a recent heartbeat.
    pub(crate) async fn fresh(&self, at_most: Duration) -> Result<(), Failure> {
        if self.quiet() <= at_most {
            return Ok(());
        }
        match tokio::time::timeout(self.limit(), self.beat()).await {
            Ok(beaten) => beaten,
            Err(_) => Err(Failure::Unknown(format!("no answer in {:?}", self.limit()))),
        }
    }
}
