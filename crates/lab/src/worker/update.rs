//! What a worker changes under its lock.

use super::Outcome;
use super::store_client::StoreClient;
use crate::store::{Ask, Check};
use fastrand::Rng;
use fencelock::LockGuard;
use fencelock_testkit::history::{GateAnswer, Recorder, What};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// An update under a lock: read, think, look whether it is still held, write.
pub(super) struct Update<'a> {
    pub(super) guard: &'a LockGuard,
    pub(super) recorder: &'a Recorder,
    pub(super) hold: u32,
    pub(super) think: u64,
    pub(super) random: Rng,
    /// What tells the resources of one lock from those of another, where there are several.
    pub(super) suffix: String,
}

impl Update<'_> {
    /// Raises a counter, the gate's way, nobody's way, or checked at the write alone.
    pub(super) async fn count(&mut self, store: &mut StoreClient, kind: &str) -> Outcome {
        let token = self.guard.token().get();
        let check = match kind {
            "gated" => Check::Entered { token },
            "open" => Check::None,
            _ => Check::WriteOnly { token },
        };
        let resource = &format!("{kind}{}", self.suffix);
        if kind == "gated" && !self.enter(store, resource).await? {
            return Ok(());
        }
        let value = store.read(resource).await?.first().copied().unwrap_or_default() + 1;
        self.recorder.record(self.hold, What::Read { resource: resource.as_str().into() })?;
        if !self.think(resource).await? {
            return Ok(());
        }
        let shared: Arc<str> = resource.as_str().into();
        self.recorder.record(self.hold, What::Write { resource: Arc::clone(&shared), value })?;
        let answer = store.write(resource, vec![value], check).await?;
        self.recorder.record(self.hold, What::Wrote { resource: shared, value, answer })?;
        Ok(())
    }

    pub(super) async fn append(&mut self, store: &mut StoreClient, element: u64) -> Outcome {
        let resource: Arc<str> = format!("list{}", self.suffix).into();
        if !self.enter(store, &resource).await? {
            return Ok(());
        }
        let mut list = store.read(&resource).await?;
        list.push(element);
        if !self.think(&resource).await? {
            return Ok(());
        }
        self.recorder.record(self.hold, What::Append { resource: Arc::clone(&resource), element })?;
        let check = Check::Entered { token: self.guard.token().get() };
        let answer = store.write(&resource, list, check).await?;
        self.recorder.record(self.hold, What::Appended { resource, element, answer })?;
        Ok(())
    }

    async fn enter(&self, store: &mut StoreClient, resource: &str) -> Outcome<bool> {
        let token = self.guard.token().get();
        self.recorder.record(self.hold, What::Enter { resource: resource.into() })?;
        let told = store.ask(&Ask::Enter { resource: resource.to_owned(), token }).await?;
        let answer = if told.accepted { GateAnswer::Accepted } else { GateAnswer::Stale };
        self.recorder.record(self.hold, What::Entered { resource: resource.into(), answer })?;
        Ok(told.accepted)
    }

    /// Whether it still held when it looked, a moment before the write.
    async fn think(&mut self, resource: &str) -> io::Result<bool> {
        let mut think = || Duration::from_millis(self.random.u64(0..=self.think));
        let (before, after) = (think(), think());
        tokio::time::sleep(before).await;
        if !self.guard.is_held() {
            return Ok(false);
        }
        self.recorder.record(self.hold, What::Decided { resource: resource.into() })?;
        // Between the look and the write there is always some time, and here some more.
        tokio::time::sleep(after).await;
        Ok(true)
    }
}
