//! What is shown to those who look, and the operator's verbs.

use crate::engine::Inner;
use crate::failure::Failure;
use crate::keys::claim_of;
use crate::members::Again;
use crate::value;
use etcd_client::{Client, Compare, CompareOp, GetOptions, KeyValue, SortOrder, SortTarget, Txn, TxnOp};
use fencelock_core::{FencingToken, HolderInfo, LockName, Result};
use std::collections::BTreeMap;
use std::time::Duration;

/// How many keys are read at once.
const PAGE: i64 = 500;

fn shown(kv: &KeyValue) -> HolderInfo {
    let (holder, note) = value::read(kv.value());
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
    async fn first_of(&self, name: &LockName) -> Result<Option<KeyValue>, Failure> {
        let get = |mut client: Client| async move {
            let oldest = GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Ascend).with_limit(1);
            client.get(self.keys.queue(name), Some(oldest)).await
        };
        Ok(self.members.call(None, Again::Same, get).await?.take_kvs().into_iter().next())
    }

    pub(crate) async fn holder_of(&self, name: &LockName) -> Result<Option<HolderInfo>> {
        let Some(first) = self.first_of(name).await? else { return Ok(None) };
        let lease = first.lease();
        let ask = |mut client: Client| async move { client.lease_time_to_live(lease, None).await };
        let info = shown(&first);
        // Told where it can be: the holder is shown all the same.
        let left = self.members.call(None, Again::Same, ask).await.ok().and_then(|left| u64::try_from(left.ttl()).ok());
        Ok(Some(left.map_or(info.clone(), |left| info.with_remaining(Duration::from_secs(left)))))
    }

    pub(crate) async fn holders(&self, beginning: &str) -> Result<Vec<(LockName, HolderInfo)>> {
        let prefix = self.keys.names_from(beginning);
        let (mut from, end) = (prefix.clone().into_bytes(), end_of(&prefix));
        let mut firsts: BTreeMap<LockName, KeyValue> = BTreeMap::new();
        loop {
            let get = |mut client: Client| {
                let (from, end) = (from.clone(), end.clone());
                async move { client.get(from, Some(GetOptions::new().with_range(end).with_limit(PAGE))).await }
            };
            let mut page = self.members.call(None, Again::Same, get).await?;
            let more = page.more();
            for kv in page.take_kvs() {
                from = kv.key().to_vec();
                from.push(0);
                let Some(name) = self.keys.name_of(kv.key()) else { continue };
                let first = firsts.get(&name).is_none_or(|first| kv.create_revision() < first.create_revision());
                if first {
                    firsts.insert(name, kv);
                }
            }
            if !more {
                break;
            }
        }
        Ok(firsts.into_iter().map(|(name, kv)| (name, shown(&kv))).collect())
    }

    /// Takes the lock from its holder; those who wait stay in their order.
    pub(crate) async fn take_away(&self, name: &LockName) -> Result<bool> {
        let Some(first) = self.first_of(name).await? else { return Ok(false) };
        let same = Compare::create_revision(first.key(), CompareOp::Equal, first.create_revision());
        let txn = Txn::new().when([same]).and_then([TxnOp::delete(first.key(), None)]);
        let send = |mut client: Client| {
            let txn = txn.clone();
            async move { client.txn(txn).await }
        };
        Ok(self.members.call(None, Again::Never, send).await?.succeeded())
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
