//! Who takes the lock: ours, the floor and the peers, all by the same three verbs.

mod crowd;
mod entrant;
mod floor;
mod inside;
mod ours;
mod outside;
mod peer;

pub(crate) use crowd::{Crowd, own};
pub(crate) use entrant::{Entrant, Shape, entrants};
pub(crate) use inside::{run_tasks, tasks};
pub(crate) use ours::{Ours, client};
pub(crate) use outside::{Outside, print};
pub(crate) use peer::lacks;

use crate::engine::Engine;
use crate::failure::Result;
use crate::server::Place;
use async_trait::async_trait;
use std::time::Duration;

/// The ttl of all, where they have one.
pub(crate) const TTL: Duration = Duration::from_secs(30);

/// Ours, where a lease passes from one task to the next.
pub(crate) const COHORT: &str = "ours, cohort";

/// One client: what a program has one of.
#[async_trait]
pub(crate) trait Contender: Send + Sync {
    /// What one task of the program locks `name` with.
    async fn task(&self, name: &str) -> Result<Box<dyn Task>>;
}

/// One task and the one name that it locks.
#[async_trait]
pub(crate) trait Task: Send {
    /// Takes the lock, waiting as long as that takes, if it can wait at all.
    async fn acquire(&mut self) -> Result<()>;

    async fn release(&mut self) -> Result<()>;

    /// Tries once: whether the lock was taken.
    async fn attempt(&mut self) -> Result<bool> {
        Err("it cannot try once".into())
    }
}

/// A client in this process, connected anew.
pub(crate) async fn connect(who: &str, place: &Place) -> Result<Box<dyn Contender>> {
    match who.strip_suffix(" again").unwrap_or(who) {
        "ours" => ours::connect(place, TTL).await,
        COHORT => ours::connect_cohort(place, TTL).await,
        "floor" => floor::connect(place).await,
        peer => peer::connect(peer, place).await,
    }
}

/// Whether it runs in another runtime.
pub(crate) fn is_elsewhere(who: &str) -> bool {
    peer::program(who).is_some()
}

/// Whether it waits for another holder: the floor knows no waiting.
pub(crate) fn can_wait(engine: Engine, who: &str) -> bool {
    !who.starts_with("floor") && !peer::is_bare(who) || engine == Engine::Memory
}
