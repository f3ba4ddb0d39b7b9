//! One node of the set, as this client knows it.

use crate::debts::Debts;
use crate::probe::Facts;
use crate::set::lock;
use fencelock_core::{Error, ErrorKind};
use fencelock_redis::{Node, NodeFailure};
use std::borrow::Cow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) struct Member {
    pub(crate) node: Node,
    standing: Mutex<Standing>,
    unseeded: AtomicBool,
    pub(crate) looks: Mutex<Looks>,
    pub(crate) debts: Debts,
}

/// What is known of the node.
#[derive(Default)]
struct Standing {
    /// What it said when it was last looked at. Before that its votes do not count,
    /// so that the level is that of the nodes which vote.
    facts: Option<Facts>,
    /// Why its votes do not count.
    barred: Option<String>,
}

/// Whether the node is being looked at.
#[derive(Default)]
pub(crate) struct Looks {
    pub(crate) under_way: bool,
    /// It has come up since that look began.
    pub(crate) again: bool,
}

impl Member {
    pub(crate) fn new(node: Node) -> Self {
        let (standing, unseeded, looks, debts) = Default::default();
        Self { node, standing, unseeded, looks, debts }
    }

    /// Keeps what it said, and why it does not count if it does not.
    pub(crate) fn learn(&self, facts: Facts, barred: Option<String>) {
        if facts.record.ready().is_some() {
            self.unseeded.store(false, Ordering::SeqCst);
        }
        if let Some(why) = &barred {
            tracing::warn!(target: "fencelock", event = "node_barred", engine = "redlock", node = self.node.address(),
                why, "this node's votes do not count");
        }
        *lock(&self.standing) = Standing { facts: Some(facts), barred };
    }

    /// It has been looked at since this client connected.
    pub(crate) fn is_known(&self) -> bool {
        lock(&self.standing).facts.is_some()
    }

    /// What it said, if it votes.
    pub(crate) fn facts(&self) -> Option<Facts> {
        let standing = lock(&self.standing);
        standing.facts.clone().filter(|_| standing.barred.is_none())
    }

    /// Which server it was when it was last looked at.
    pub(crate) fn run_id(&self) -> Option<String> {
        lock(&self.standing).facts.as_ref()?.run_id().map(str::to_owned)
    }

    /// Fails if its votes do not count.
    pub(crate) fn votes(&self) -> Result<(), NodeFailure> {
        let why = match &*lock(&self.standing) {
            Standing { barred: Some(why), .. } => why.clone(),
            Standing { facts: None, .. } => "it was away when this client connected, and has not come back".to_owned(),
            Standing { .. } => return Ok(()),
        };
        Err(failure(ErrorKind::Unavailable, format!("{} does not vote: {why}", self.node.address())))
    }

    /// Once, until it has its counters again.
    pub(crate) fn report_unseeded(&self) {
        if !self.unseeded.swap(true, Ordering::SeqCst) {
            tracing::warn!(target: "fencelock", event = "node_unseeded", engine = "redlock", node = self.node.address(),
                "this node has lost its counters and does not vote; see `fencelock redlock reseed`");
        }
    }
}

pub(crate) fn failure(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> NodeFailure {
    NodeFailure::settled(Error::new(kind, message).with_engine("redlock"))
}

pub(crate) fn odd_answer() -> NodeFailure {
    failure(ErrorKind::Engine, "an answer of a shape that was not asked for")
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencelock_redis::RedisConfig;

    #[tokio::test]
    async fn nobody_votes_before_it_was_looked_at() {
        let member =
            Member::new(Node::new(RedisConfig::standalone("h", 1), &crate::scripts::bundle("waiting"), || {}).unwrap());
        assert!(member.votes().unwrap_err().settled && !member.is_known());
        member.learn(Facts::default(), None);
        assert!(member.votes().is_ok() && member.is_known());
        member.learn(Facts::default(), Some("a twin".to_owned()));
        assert!(member.votes().unwrap_err().error.message().contains("a twin"));
        assert!(member.is_known() && member.facts().is_none());
    }
}
