//! The nodes together: who they are, and what they guarantee.

use crate::answers::Answers;
use crate::ask::{ask, here};
use crate::config::RedlockConfig;
use crate::keys::Keys;
use crate::looks;
use crate::member::{Member, failure};
use crate::meta::Record;
use crate::probe::{self, Facts, Seat};
use crate::scripts::{self, Scripts};
use fencelock_core::{ErrorKind, Guarantees, Result};
use fencelock_redis::{Node, NodeFailure};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Duration;
use tokio::time::Instant;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) struct Set {
    pub(crate) config: RedlockConfig,
    pub(crate) keys: Keys,
    pub(crate) scripts: Arc<Scripts>,
    pub(crate) members: Vec<Arc<Member>>,
    pub(crate) itself: Weak<Self>,
    /// The record that all ready nodes share, once it is known.
    record: Mutex<Option<Record>>,
    /// Held while a node's standing is judged, which depends on that of the others.
    pub(crate) judging: Mutex<()>,
    guarantees: RwLock<Option<Arc<Guarantees>>>,
}

impl Set {
    /// The nodes of `config`, not connected yet. They live in the runtime where this is called.
    pub(crate) fn new(config: RedlockConfig) -> Result<Arc<Self>> {
        config.check()?;
        here()?;
        let nodes: Vec<_> = config.each().collect();
        let keys = Keys::new(&config.prefix);
        let (mut wrong, bundle) = (None, scripts::bundle(&keys.waiting()));
        let set = Arc::new_cyclic(|itself: &Weak<Self>| {
            let member = |(at, config)| {
                let set = Weak::clone(itself);
                let up = move || looks::came_up(&set, at);
                let node = Node::new(config, &bundle, up).map_err(|e| wrong = Some(e)).ok()?;
                Some(Arc::new(Member::new(node)))
            };
            let members = nodes.into_iter().enumerate().filter_map(member).collect();
            let scripts = Arc::new(Scripts::new());
            let (record, judging, guarantees) = Default::default();
            Self { config, keys, scripts, members, itself: Weak::clone(itself), record, judging, guarantees }
        });
        wrong.map_or(Ok(set), Err)
    }

    pub(crate) fn size(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn majority(&self) -> usize {
        self.size() / 2 + 1
    }

    /// The longest that one node may take, for a hold of this ttl: far less than the ttl, however short it is.
    pub(crate) fn limit(&self, ttl: Duration) -> Duration {
        self.config.request_timeout.min(ttl / 5)
    }

    /// How long a question takes that is not about a lock.
    pub(crate) fn patience(&self) -> Duration {
        self.config.request_timeout.max(Duration::from_secs(1))
    }

    pub(crate) fn guarantees(&self) -> Arc<Guarantees> {
        let known = self.guarantees.read().unwrap_or_else(PoisonError::into_inner).clone();
        known.unwrap_or_else(|| Arc::new(probe::nothing_known()))
    }

    /// Asks each node for its facts; what kept one from telling is in its place.
    pub(crate) async fn probe(&self) -> Vec<std::result::Result<Facts, NodeFailure>> {
        self.probed(None).await
    }

    /// As [`probe`](Self::probe), and once a majority has told, the others have only as long as a request may take.
    pub(crate) async fn probe_most(&self) -> Vec<std::result::Result<Facts, NodeFailure>> {
        self.probed(Some(self.config.request_timeout)).await
    }

    async fn probed(&self, grace: Option<Duration>) -> Vec<std::result::Result<Facts, NodeFailure>> {
        let mut answers = ask(self.members.iter().map(|member| {
            let (member, record, limit) = (Arc::clone(member), self.keys.record(), self.patience());
            async move { Facts::of(&member.node, record, limit).await }
        }));
        let mut found: Vec<_> = self.members.iter().map(|_| None).collect();
        let (mut told, mut end) = (0, None);
        while let Some((at, answer)) = match end {
            Some(end) => answers.next_by(end).await,
            None => answers.next().await,
        } {
            told += usize::from(answer.is_ok());
            if let Some(place) = found.get_mut(at) {
                *place = Some(answer);
            }
            if told >= self.majority() && end.is_none() {
                end = grace.map(|grace| Instant::now() + grace);
            }
        }
        let silent = || Err(failure(ErrorKind::Unavailable, "it has not told yet"));
        found.into_iter().map(|answer| answer.unwrap_or_else(silent)).collect()
    }

    /// The record of the set that all ready nodes share.
    pub(crate) fn belongs_to(&self, record: Record) {
        *lock(&self.record) = Some(record);
    }

    /// The record of the set, once this client has been let in.
    pub(crate) fn record(&self) -> Option<Record> {
        lock(&self.record).clone()
    }

    /// What each node that votes has said.
    fn seats(&self) -> Vec<Seat> {
        self.members.iter().map(|member| (member.node.address(), member.facts())).collect()
    }

    /// Concludes for the first time what is guaranteed.
    ///
    /// # Errors
    /// If something is attested that is not so.
    pub(crate) fn conclude(&self) -> Result<()> {
        self.found(probe::guarantees(&self.seats()).attest(&self.config.attested)?);
        Ok(())
    }

    /// Concludes anew what is guaranteed, after a node was looked at again.
    pub(crate) fn conclude_again(&self) {
        self.found(probe::guarantees(&self.seats()).attest_again(&self.config.attested));
    }

    fn found(&self, found: Guarantees) {
        let mut known = self.guarantees.write().unwrap_or_else(PoisonError::into_inner);
        if known.as_deref() != Some(&found) {
            *known = Some(Arc::new(found));
        }
    }

    pub(crate) fn ask<T, F>(&self, question: impl Fn(usize, Arc<Member>) -> F) -> Answers<T>
    where
        T: Send + 'static,
        F: Future<Output = std::result::Result<T, NodeFailure>> + Send + 'static,
    {
        ask(self.members.iter().enumerate().map(|(at, member)| question(at, Arc::clone(member))))
    }
}

impl fmt::Debug for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes: Vec<_> = self.members.iter().map(|member| &member.node).collect();
        let owed: usize = self.members.iter().map(|member| member.debts.len()).sum();
        f.debug_struct("Set")
            .field("config", &self.config)
            .field("nodes", &nodes)
            .field("owed", &owed)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_node_has_a_fraction_of_the_ttl_however_short_that_is() {
        let set = Set::new(RedlockConfig::new([("a", 1), ("b", 2), ("c", 3)])).unwrap();
        for (ttl, limit) in [(50, 10), (100, 20), (1_000, 200), (60_000, 250)] {
            assert_eq!(set.limit(Duration::from_millis(ttl)), Duration::from_millis(limit));
        }
    }
}
