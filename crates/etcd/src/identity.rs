//! The cluster that a client is connected to, told from every other.
//!
//! Whoever locks in two clusters locks nothing. Each answer names its cluster, and
//! clusters that were set up alike have the same id; so the version of the layout
//! is written with random digits, by which one store is told from another.

use crate::failure::{Failure, Refusal};
use crate::sync::lock;
use etcd_client::{Compare, CompareOp};
use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock};

pub(crate) struct Identity {
    /// The key where each store has a mark that no other has.
    pub(crate) key: String,
    mark: OnceLock<String>,
    cluster: OnceLock<u64>,
    /// What is wrong with an endpoint, by its place in the configuration.
    strangers: Mutex<BTreeMap<usize, String>>,
}

impl Identity {
    pub(crate) fn of_key(key: String) -> Self {
        Self { key, mark: OnceLock::new(), cluster: OnceLock::new(), strangers: Mutex::default() }
    }

    /// From now on the store with this mark and no other is ours.
    pub(crate) fn set_mark(&self, mark: String) {
        let _ = self.mark.set(mark);
    }

    /// Whether it is known which store is ours.
    pub(crate) fn is_marked(&self) -> bool {
        self.mark.get().is_some()
    }

    /// The test that a transaction is worked on in the store that is ours.
    pub(crate) fn is_here(&self) -> Option<Compare> {
        self.mark.get().map(|mark| Compare::value(self.key.as_str(), CompareOp::Equal, mark.as_str()))
    }

    /// Whether a mark is ours.
    pub(crate) fn is_ours(&self, found: Option<&[u8]>) -> bool {
        self.mark.get().is_none_or(|ours| found == Some(ours.as_bytes()))
    }

    /// Compares the cluster that answered with the one that answered first.
    pub(crate) fn check_cluster(&self, member: usize, endpoint: &str, answered: Option<u64>) -> Result<(), Failure> {
        let Some(answered) = answered else { return Ok(()) };
        let ours = *self.cluster.get_or_init(|| answered);
        if answered == ours {
            return Ok(());
        }
        Err(self.is_strange(member, format!("`{endpoint}` is of cluster {answered:x}, and the others are of {ours:x}")))
    }

    /// Compares the mark of the store behind an endpoint with ours.
    pub(crate) fn check_mark(&self, member: usize, endpoint: &str, found: Option<&[u8]>) -> Result<(), Failure> {
        if !self.is_ours(found) {
            let what = format!("`{endpoint}` leads to another store: its `{}` is not ours", self.key);
            return Err(self.is_strange(member, what));
        }
        if self.is_marked() {
            lock(&self.strangers).remove(&member);
        }
        Ok(())
    }

    fn is_strange(&self, member: usize, what: String) -> Failure {
        let what = format!("{what}: endpoints of one cluster lock in one place, and others do not");
        tracing::warn!(target: "fencelock", engine = "etcd", event = "another_cluster", what, "an endpoint of another cluster");
        lock(&self.strangers).insert(member, what.clone());
        Failure::Refused(Refusal::Stranger(what))
    }

    /// An endpoint was found to be of another cluster, and has not been found to be of ours since.
    pub(crate) fn stranger(&self) -> Option<Failure> {
        lock(&self.strangers).values().next().map(|what| Failure::Refused(Refusal::Stranger(what.clone())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_cluster_is_ours_and_no_other() {
        let identity = Identity::of_key("p/meta".into());
        assert_eq!(identity.check_cluster(0, "a", Some(7)), Ok(()));
        assert_eq!(identity.check_cluster(1, "b", Some(7)), Ok(()));
        assert_eq!(identity.check_cluster(1, "b", None), Ok(()));
        assert!(identity.stranger().is_none());
        assert!(identity.check_cluster(1, "b", Some(8)).is_err());
        assert!(identity.stranger().is_some());
    }

    #[test]
    fn stores_that_were_set_up_alike_are_told_apart() {
        let identity = Identity::of_key("p/meta".into());
        identity.set_mark("1 aa".into());
        for other in [Some(b"1 bb".as_slice()), None] {
            assert!(identity.check_mark(1, "b", other).is_err());
            assert!(identity.stranger().is_some());
        }
        assert_eq!(identity.check_mark(1, "b", Some(b"1 aa")), Ok(()));
        assert!(identity.stranger().is_none());
    }
}
