//! One request about one claim, and what its answer says.

use crate::engine::Inner;
use crate::failure::Failure;
use crate::value;
use etcd_client::{
    Compare, CompareOp, GetOptions, KeyValue, KvClient, PutOptions, SortOrder, SortTarget, Txn, TxnOp, TxnOpResponse,
};
use fencelock_core::Claim;
use std::sync::Arc;

/// Where a claim stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is the oldest of its name.
    First { created: i64, seen: i64 },
    /// Others came before it.
    Behind(Behind),
    /// It has no place; who holds the lock, if anybody does, or the lease that keeps it closed.
    Absent { holder: Option<Arc<str>>, closed: Option<i64> },
    /// Its id is void.
    Dead,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Behind {
    pub(crate) created: i64,
    /// The place just before its own, where the answer showed it; else look.
    pub(crate) before: Option<String>,
    /// The revision at which this was seen.
    pub(crate) seen: i64,
    pub(crate) holder: Option<Arc<str>>,
}

/// The oldest of a name.
fn oldest() -> GetOptions {
    GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Ascend).with_limit(1)
}

/// The newest two of a name.
fn newest() -> GetOptions {
    GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Descend).with_limit(2)
}

fn absent(key: &str) -> Compare {
    Compare::create_revision(key, CompareOp::Equal, 0)
}

/// What a transaction's reads found, in their order.
struct Reads {
    found: Vec<Vec<KeyValue>>,
    revision: i64,
    succeeded: bool,
}

impl Reads {
    fn key_values(&self, at: usize) -> &[KeyValue] {
        self.found.get(at).map_or(&[], Vec::as_slice)
    }

    fn first(&self, at: usize) -> Option<&KeyValue> {
        self.key_values(at).first()
    }
}

fn text(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}

fn holder(first: Option<&KeyValue>) -> Option<Arc<str>> {
    first.filter(|kv| !value::is_closed(kv)).map(|kv| value::read(kv.value()).holder)
}

fn absent_behind(first: Option<&KeyValue>) -> Standing {
    let closed = first.filter(|kv| value::is_closed(kv)).map(KeyValue::lease);
    Standing::Absent { holder: holder(first), closed }
}

/// Whether the place is there as it was made.
pub(crate) fn is_as_made(kv: &KeyValue, created: i64) -> bool {
    kv.mod_revision() == created
}

impl Inner {
    /// Tests `tests` in the store that is ours; else reads the claim's void id, its place and the oldest of its name.
    ///
    /// Whether the store is ours is tested here too, since a connection that broke while nothing was asked is made
    /// anew by the client library, unnoticed, and may lead elsewhere.
    async fn transact(&self, claim: &Claim, tests: [Compare; 2], then: Vec<TxnOp>) -> Result<Reads, Failure> {
        let (void, place) = (self.keys.void(claim.id()), self.keys.place(claim.name(), claim.id()));
        let identity = &self.members.identity;
        let tests: Vec<_> = tests.into_iter().chain(identity.is_here()).collect();
        let txn = Txn::new().when(tests).and_then(then).or_else([
            TxnOp::get(void, None),
            TxnOp::get(place, None),
            TxnOp::get(self.keys.queue(claim.name()), Some(oldest())),
            TxnOp::get(identity.key.as_str(), None),
        ]);
        let send = |mut client: KvClient| {
            let txn = txn.clone();
            async move { client.txn(txn).await }
        };
        let answer = self.members.call(Some(claim), send).await?;
        let reads = answer.op_responses().into_iter().filter_map(|response| match response {
            TxnOpResponse::Get(mut got) => Some(got.take_kvs()),
            _ => None,
        });
        let revision = answer.header().map_or(0, etcd_client::ResponseHeader::revision);
        let reads = Reads { found: reads.collect(), revision, succeeded: answer.succeeded() };
        if !reads.succeeded && !identity.is_ours(reads.first(3).map(KeyValue::value)) {
            return Err(Box::pin(self.members.elsewhere()).await);
        }
        Ok(reads)
    }

    /// Takes the lock if nobody has a place in its queue; else writes nothing.
    pub(crate) async fn try_once(&self, claim: &Claim, lease: i64) -> Result<Standing, Failure> {
        let (void, place) = (self.keys.void(claim.id()), self.keys.place(claim.name(), claim.id()));
        let queue = self.keys.queue(claim.name());
        let put = TxnOp::put(place.as_str(), value::written(claim), Some(PutOptions::new().with_lease(lease)));
        let reads = self.transact(claim, [absent(&void), absent(&queue).with_prefix()], vec![put]).await?;
        if reads.succeeded {
            return Ok(Standing::First { created: reads.revision, seen: reads.revision });
        }
        Ok(standing(&reads, &place))
    }

    /// Takes the last place in the queue, or finds the one that it has.
    ///
    /// One transaction, which reads no more than who is just before. Why it did not put the place is asked apart:
    /// that is rare, and what is not sent costs nobody anything.
    pub(crate) async fn join(&self, claim: &Claim, lease: i64) -> Result<Standing, Failure> {
        let (void, place) = (self.keys.void(claim.id()), self.keys.place(claim.name(), claim.id()));
        // Made anew each time that it is sent, which is nearly always once.
        let send = |mut client: KvClient| {
            let tests = [absent(&void), absent(&place)].into_iter().chain(self.members.identity.is_here());
            let txn = Txn::new().when(tests.collect::<Vec<_>>()).and_then([
                TxnOp::put(place.as_str(), value::written(claim), Some(PutOptions::new().with_lease(lease))),
                TxnOp::get(self.keys.queue(claim.name()), Some(newest())),
            ]);
            async move { client.txn(txn).await }
        };
        let answer = self.members.call(Some(claim), send).await?;
        if !answer.succeeded() {
            return Box::pin(self.why_not(&void, &place)).await;
        }
        let created = answer.header().map_or(0, etcd_client::ResponseHeader::revision);
        let got = answer.op_responses().into_iter().find_map(|response| match response {
            TxnOpResponse::Get(got) => Some(got),
            _ => None,
        });
        let before = got.as_ref().and_then(|got| got.kvs().iter().find(|kv| kv.key() != place.as_bytes()));
        let Some(before) = before else { return Ok(Standing::First { created, seen: created }) };
        // Of two the one before is the oldest, which holds the lock.
        let holder = holder(Some(before).filter(|_| got.as_ref().is_some_and(|got| got.count() == 2)));
        let before = Some(text(before.key()));
        Ok(Standing::Behind(Behind { created, before, seen: created, holder }))
    }

    /// Why a place was not put: the store is another, the id is void, or the place was there already.
    async fn why_not(&self, void: &str, place: &str) -> Result<Standing, Failure> {
        let identity = &self.members.identity;
        let (mark, _) = self.read(&identity.key, GetOptions::new()).await?;
        if !identity.is_ours(mark.first().map(KeyValue::value)) {
            return Err(self.members.elsewhere().await);
        }
        if !self.read(void, GetOptions::new()).await?.0.is_empty() {
            return Ok(Standing::Dead);
        }
        let (own, seen) = self.read(place, GetOptions::new()).await?;
        Ok(match own.first().filter(|own| !value::is_closed(own)) {
            Some(own) => Standing::Behind(Behind { created: own.create_revision(), before: None, seen, holder: None }),
            None => Standing::Absent { holder: None, closed: None },
        })
    }

    /// Who holds the lock, for who asks while it waits.
    pub(crate) async fn name_of_holder(&self, claim: &Claim) -> Result<Option<Arc<str>>, Failure> {
        let (first, _) = self.read(&self.keys.queue(claim.name()), oldest()).await?;
        Ok(holder(first.first()))
    }

    async fn read(&self, key: &str, options: GetOptions) -> Result<(Vec<KeyValue>, i64), Failure> {
        let get = |mut client: KvClient| {
            let options = options.clone();
            async move { client.get(key, Some(options)).await }
        };
        let mut got = self.members.call(None, get).await?;
        let revision = got.header().map_or(0, etcd_client::ResponseHeader::revision);
        Ok((got.take_kvs(), revision))
    }

    /// Looks again: is the place still there, and who is just before it? None if it is gone.
    ///
    /// One linearizable read of the newest two that are not younger than the place: itself, and the one before.
    pub(crate) async fn look(&self, claim: &Claim, created: i64) -> Result<Option<Standing>, Failure> {
        let (place, queue) = (self.keys.place(claim.name(), claim.id()), self.keys.queue(claim.name()));
        let (newest, seen) = self.read(&queue, newest().with_keys_only().with_max_create_revision(created)).await?;
        let (own, before): (Vec<_>, Vec<_>) = newest.into_iter().partition(|kv| kv.key() == place.as_bytes());
        if !own.first().is_some_and(|own| is_as_made(own, created)) {
            return Ok(None);
        }
        let Some(before) = before.first() else { return Ok(Some(Standing::First { created, seen })) };
        let before = Some(text(before.key()));
        Ok(Some(Standing::Behind(Behind { created, before, seen, holder: None })))
    }
}

/// Void, own place and oldest, as they were read.
fn standing(reads: &Reads, place: &str) -> Standing {
    if reads.first(0).is_some() {
        return Standing::Dead;
    }
    let (own, first) = (reads.first(1), reads.first(2));
    let Some(own) = own.filter(|own| !value::is_closed(own)) else { return absent_behind(first) };
    let (created, seen) = (own.create_revision(), reads.revision);
    if first.is_some_and(|kv| kv.key() == place.as_bytes()) {
        return Standing::First { created, seen };
    }
    Standing::Behind(Behind { created, before: None, seen, holder: holder(first) })
}
