//! What is shown to those who look, and the operator's verbs.

use crate::engine::Inner;
use crate::failure::Failure;
use crate::keys::claim_of;
use crate::value;
use etcd_client::{
    Client, Compare, CompareOp, GetOptions, KeyValue, LeaseGrantOptions, PutOptions, SortOrder, SortTarget, Txn, TxnOp,
};
use fencelock_core::{FencingToken, HolderInfo, LockName, Result, Waiter};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// How many keys are read at once.
const PAGE: i64 = 500;
/// How often a lock may change hands while it is being taken away.
const HANDS: u32 = 5;
/// How many of those who wait for one lock are shown; the others are counted.
const SHOWN: usize = 100;
/// How many leases are asked about together.
const TOGETHER: usize = 32;

fn token(kv: &KeyValue) -> FencingToken {
    FencingToken::new(kv.create_revision().cast_unsigned())
}

/// Who holds, and the first of those who wait, of a queue in its order. None if the lock is only kept closed.
fn shown(queue: &[KeyValue], behind: u64) -> Option<HolderInfo> {
    let (first, waiting) = queue.split_first()?;
    if value::is_closed(first) {
        return None;
    }
    let written = value::read(first.value());
    let mut info = HolderInfo::new(Arc::clone(&written.holder), token(first)).with_note(written.note.clone());
    if let Some(id) = claim_of(first.key()) {
        info = info.with_claim(id);
    }
    if let Some(ago) = written.asked_ago() {
        info = info.with_asked_ago(ago);
    }
    Some(info.with_waiting(waiting.iter().take(SHOWN).map(waiter).collect()).with_waiters(behind))
}

fn waiter(kv: &KeyValue) -> Waiter {
    let written = value::read(kv.value());
    let mut waiter = Waiter::new(Arc::clone(&written.holder)).with_note(written.note.clone());
    if let Some(id) = claim_of(kv.key()) {
        waiter = waiter.with_claim(id);
    }
    match written.asked_ago() {
        Some(ago) => waiter.with_waited_for(ago),
        None => waiter,
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
    /// The oldest places in a lock's queue, `most` at the most, and how many there are in all.
    async fn oldest_of(&self, name: &LockName, most: usize) -> Result<(Vec<KeyValue>, u64), Failure> {
        let get = |mut client: Client| async move {
            let oldest = GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Ascend);
            client.get(self.keys.queue(name), Some(oldest.with_limit(i64::try_from(most).unwrap_or(i64::MAX)))).await
        };
        let mut found = self.members.call(None, get).await?;
        let all = u64::try_from(found.count()).unwrap_or_default();
        Ok((found.take_kvs(), all))
    }

    pub(crate) async fn holder_of(&self, name: &LockName) -> Result<Option<HolderInfo>> {
        let (queue, all) = self.oldest_of(name, 1 + SHOWN).await?;
        let (Some(first), Some(info)) = (queue.first(), shown(&queue, all.saturating_sub(1))) else { return Ok(None) };
        // Told where it can be: the holder is shown all the same.
        let left = self.left_of(first.lease()).await.ok().flatten();
        Ok(Some(left.map_or(info.clone(), |left| info.with_remaining(Duration::from_secs(left)))))
    }

    pub(crate) async fn holders(&self, beginning: &str) -> Result<Vec<(LockName, HolderInfo)>> {
        let prefix = self.keys.names_from(beginning);
        let (mut from, end) = (prefix.clone().into_bytes(), end_of(&prefix));
        let mut queues: BTreeMap<LockName, Vec<KeyValue>> = BTreeMap::new();
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
                if let Some(name) = self.keys.name_of(kv.key()) {
                    queues.entry(name).or_default().push(kv);
                }
            }
            if !more {
                break;
            }
        }
        queues.values_mut().for_each(|queue| queue.sort_by_key(KeyValue::create_revision));
        let left = self.left_of_all(queues.values().filter_map(|queue| queue.first()).map(KeyValue::lease)).await;
        let held = queues.into_iter().filter_map(|(name, queue)| {
            let behind = u64::try_from(queue.len().saturating_sub(1)).unwrap_or(u64::MAX);
            let info = shown(&queue, behind)?;
            let left = queue.first().and_then(|first| left.get(&first.lease()));
            Some((name, left.map_or(info.clone(), |left| info.with_remaining(Duration::from_secs(*left)))))
        });
        Ok(held.collect())
    }

    /// What is left of each lease, where that is told: those of one client share a few.
    async fn left_of_all(&self, leases: impl Iterator<Item = i64>) -> HashMap<i64, u64> {
        let leases: Vec<_> = leases.collect::<BTreeSet<_>>().into_iter().collect();
        let mut left = HashMap::new();
        for leases in leases.chunks(TOGETHER) {
            let mut asked = JoinSet::new();
            for lease in leases.iter().copied() {
                let members = Arc::clone(&self.members);
                asked.spawn(async move {
                    let ask = |mut client: Client| async move { client.lease_time_to_live(lease, None).await };
                    let told = members.call(None, ask).await.ok()?;
                    Some((lease, u64::try_from(told.ttl()).ok()?))
                });
            }
            while let Some(told) = asked.join_next().await {
                left.extend(told.ok().flatten());
            }
        }
        left
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

    /// Takes the lock from its holder; those who wait stay in their order. With `only`, from no
    /// other hold than the one with this token.
    ///
    /// A hold that asked for a lock delay leaves its place behind, as nobody's, under a lease of its own.
    pub(crate) async fn take_away(&self, name: &LockName, only: Option<FencingToken>) -> Result<bool> {
        for _ in 0..HANDS {
            let (queue, _) = self.oldest_of(name, 1).await?;
            let meant = |first: &&KeyValue| !value::is_closed(first) && only.is_none_or(|only| token(first) == only);
            let Some(first) = queue.first().filter(meant) else { return Ok(false) };
            let (take, closing) = match self.closing(first).await? {
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
