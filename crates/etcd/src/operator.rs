//! What is shown to those who look, and the operator's verbs.

use crate::engine::Inner;
use crate::failure::Failure;
use crate::keys::claim_of;
use crate::value;
use etcd_client::{
    Client, Compare, CompareOp, GetOptions, KeyValue, LeaseGrantOptions, PutOptions, SortOrder, SortTarget, Txn, TxnOp,
};
use fencelock_core::{FencingToken, HolderInfo, LockName, Result};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

/// How many keys are read at once.
const PAGE: i64 = 500;
/// How often a lock may change hands while it is being taken away.
const HANDS: u32 = 5;

fn shown(kv: &KeyValue) -> HolderInfo {
    let value::Written { holder, note, .. } = value::read(kv.value());
    let info = HolderInfo::new(holder, FencingToken::new(kv.create_revision().cast_unsigned())).with_note(note);
    match claim_of(kv.key()) {
        Some(id) => info.with_claim(id),
        None => info,
    }
}

/// What the range from `key` up to what begins otherwise than `prefix` ends with.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if let Some(next) = last.checked_add(1) {
            end.push(next);
            return end;
        }
    }
    vec![0]
}

impl Inner {
    /// The oldest place in a lock's queue, and how many there are behind it.
    async fn first_of(&self, name: &LockName) -> Result<Option<(KeyValue, u64)>, Failure> {
        let get = |mut client: Client| async move {
            let oldest = GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Ascend).with_limit(1);
            client.get(self.keys.queue(name), Some(oldest)).await
        };
        let mut found = self.members.call(None, get).await?;
        let behind = u64::try_from(found.count()).unwrap_or_default().saturating_sub(1);
        Ok(found.take_kvs().into_iter().next().map(|first| (first, behind)))
    }

    pub(crate) async fn holder_of(&self, name: &LockName) -> Result<Option<HolderInfo>> {
        let Some((first, behind)) = self.first_of(name).await?.filter(|(first, _)| !value::is_closed(first)) else {
            return Ok(None);
        };
        let info = shown(&first).with_waiters(behind);
        // Told where it can be: the holder is shown all the same.
        let left = self.left_of(first.lease()).await.ok().flatten();
        Ok(Some(left.map_or(info.clone(), |left| info.with_remaining(Duration::from_secs(left)))))
    }

    pub(crate) async fn holders(&self, beginning: &str) -> Result<Vec<(LockName, HolderInfo)>> {
        let prefix = self.keys.names_from(beginning);
        let (mut from, end) = (prefix.clone().into_bytes(), end_of(&prefix));
        let mut queues: BTreeMap<LockName, (KeyValue, u64)> = BTreeMap::new();
        loop {
            let get = |mut client: Client| {
                let (from, end) = (from.clone(), end.clone());
                async move { client.get(from, Some(GetOptions::new().with_range(end).with_limit(PAGE))).await }
            };
            let mut page = self.members.call(None, get).await?;
            let more = page.more();
            for kv in page.take_kvs() {
                from = kv.key().to_vec();
                from.push(0);
                let Some(name) = self.keys.name_of(kv.key()) else { continue };
                match queues.entry(name) {
                    Entry::Vacant(queue) => {
                        queue.insert((kv, 0));
                    }
                    Entry::Occupied(mut queue) => {
                        let (first, behind) = queue.get_mut();
                        *behind = behind.saturating_add(1);
                        if kv.create_revision() < first.create_revision() {
                            *first = kv;
                        }
                    }
                }
            }
            if !more {
                break;
            }
        }
        let held = queues.into_iter().filter(|(_, (first, _))| !value::is_closed(first));
        Ok(held.map(|(name, (first, behind))| (name, shown(&first).with_waiters(behind))).collect())
    }

    /// What is left of a lease, in whole seconds; none if it is gone.
    async fn left_of(&self, lease: i64) -> Result<Option<u64>, Failure> {
        let ask = |mut client: Client| async move { client.lease_time_to_live(lease, None).await };
        let left = self.members.call(None, ask).await?.ttl();
        Ok(u64::try_from(left).ok())
    }

    /// How long a lock that was taken away still stays closed, where that can be told.
    pub(crate) async fn closed_for(&self, lease: i64) -> Option<Duration> {
        // What is told is rounded down.
        self.left_of(lease).await.ok()?.map(|left| Duration::from_secs(left.saturating_add(1)))
    }

    /// Takes the lock from its holder; those who wait stay in their order.
    ///
    /// A hold that asked for a lock delay leaves its place behind, as nobody's, under a lease of its own.
    pub(crate) async fn take_away(&self, name: &LockName) -> Result<bool> {
        for _ in 0..HANDS {
            let Some((first, _)) = self.first_of(name).await?.filter(|(first, _)| !value::is_closed(first)) else {
                return Ok(false);
            };
            let (take, closing) = match self.closing(&first).await? {
                Some(lease) => {
                    let under = PutOptions::new().with_lease(lease);
                    (TxnOp::put(first.key(), value::CLOSED, Some(under)), Some(lease))
                }
                None => (TxnOp::delete(first.key(), None), None),
            };
            let same = Compare::mod_revision(first.key(), CompareOp::Equal, first.mod_revision());
            let txn = Txn::new().when([same]).and_then([take]);
            let send = |mut client: Client| {
                let txn = txn.clone();
                async move { client.txn(txn).await }
            };
            let (answer, again) = self.members.call_again(None, send).await?;
            if answer.succeeded() || again {
                // If a copy was acted on before, that hold is gone all the same.
                return Ok(true);
            }
            if let Some(lease) = closing {
                let revoke = |mut client: Client| async move { client.lease_revoke(lease).await };
                // One that is not revoked runs out.
                let _ = self.members.call(None, revoke).await;
            }
        }
        Err(Failure::NotSent("the lock changes hands faster than it can be taken away".to_owned()).into())
    }

    /// A lease for as long as the lock is to stay closed: the hold's lock delay, or what is left of the
    /// hold's own lease; in whole seconds, rounded up. None if it is not to.
    async fn closing(&self, first: &KeyValue) -> Result<Option<i64>, Failure> {
        let delay = value::read(first.value()).delay;
        if delay.is_zero() {
            return Ok(None);
        }
        let Some(left) = self.left_of(first.lease()).await? else { return Ok(None) };
        let delay = delay.as_secs().saturating_add(u64::from(delay.subsec_nanos() > 0));
        let seconds = i64::try_from(delay.min(left.saturating_add(1))).unwrap_or(i64::MAX);
        let id = fastrand::i64(1..=i64::MAX);
        let grant = |mut client: Client| async move {
            client.lease_grant(seconds, Some(LeaseGrantOptions::new().with_id(id))).await
        };
        match self.members.call(None, grant).await {
            Ok(_) => Ok(Some(id)),
            // Under an id of ours, by a copy of the request whose answer was lost.
            Err(failure) if failure.is_repeated_grant() => Ok(Some(id)),
            Err(failure) => Err(failure),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_ends_after_its_prefix() {
        assert_eq!(end_of("a/"), b"a0");
        assert_eq!(end_of("a"), b"b");
    }
}
