//! Freeing a place, and making an id dead.

use crate::attempt::is_as_made;
use crate::engine::Inner;
use crate::failure::{Failure, Refusal};
use crate::shared::State;
use crate::value::is_closed;
use etcd_client::{
    Compare, CompareOp, GetOptions, KeyValue, KvClient, PutOptions, Txn, TxnOp, TxnOpResponse, TxnResponse,
};
use fencelock_core::Claim;

/// What a void key says that was written with the release of a hold.
const RELEASED: &str = "released";

/// What became of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freed {
    Yes,
    /// It was not ours any more.
    No,
    /// An earlier copy of the request was not answered, and the place is gone: by that copy or before it.
    ByWhom,
}

/// The test that the place is as it was made.
fn is_mine(place: &str, created: i64) -> Compare {
    Compare::mod_revision(place, CompareOp::Equal, created)
}

impl Inner {
    async fn read_place(&self, place: &str) -> Result<(Option<KeyValue>, i64), Failure> {
        let get = |mut client: KvClient| async move { client.get(place, None).await };
        let mut got = self.members.call(None, get).await?;
        let revision = got.header().map_or(0, etcd_client::ResponseHeader::revision);
        Ok((got.take_kvs().into_iter().next(), revision))
    }

    /// Whether the place is there as it was made, and the revision at which that was seen.
    pub(crate) async fn is_there(&self, place: &str, created: i64) -> Result<(bool, i64), Failure> {
        let (kv, revision) = self.read_place(place).await?;
        Ok((kv.is_some_and(|kv| is_as_made(&kv, created)), revision))
    }

    /// Sends what `txn` makes, once for each time that it is sent.
    async fn transaction(&self, txn: impl Fn() -> Txn) -> Result<(TxnResponse, bool), Failure> {
        let send = |mut client: KvClient| {
            let txn = txn();
            async move { client.txn(txn).await }
        };
        self.members.call_again(None, send).await
    }

    /// Deletes a place, which is one claim's alone, in a full store: some versions of it refuse every
    /// transaction, and none refuses this. What a forced release closed stays, and a full store lets none be closed.
    async fn delete_when_full(&self, place: &str) -> Result<Freed, Failure> {
        if self.read_place(place).await?.0.is_none_or(|kv| is_closed(&kv)) {
            return Ok(Freed::No);
        }
        let send = |mut client: KvClient| async move { client.delete(place, None).await };
        let (deleted, again) = self.members.call_again(None, send).await?;
        Ok(match (deleted.deleted(), again) {
            (0, true) => Freed::ByWhom,
            (0, false) => Freed::No,
            _ => Freed::Yes,
        })
    }

    /// Makes the id dead for as long as the lease lives: a request of it that arrives later names that lease.
    fn void(&self, claim: &Claim, lease: i64, why: &str) -> TxnOp {
        TxnOp::put(self.keys.void(claim.id()), why, Some(PutOptions::new().with_lease(lease)))
    }

    /// Frees the place if it is as it was made.
    pub(crate) async fn free(&self, claim: &Claim, place: &str, created: i64, lease: i64) -> Result<Freed, Failure> {
        let freed = if claim.is_unanswered() {
            Box::pin(self.free_and_void(claim, place, created, lease)).await
        } else {
            self.free_and_hand_over(claim, place, created).await
        };
        match freed {
            Err(Failure::Refused(Refusal::NoSpace)) => {
                let freed = Box::pin(self.delete_when_full(place)).await?;
                // Freed for others at least; the error lets the client go on until the id is dead too.
                if claim.is_unanswered() { Err(Failure::Refused(Refusal::NoSpace)) } else { Ok(freed) }
            }
            freed => freed,
        }
    }

    /// Frees the place and, where the next in the queue is a claim of this client, looks in the same step whether its
    /// place is there: nobody is before it then.
    async fn free_and_hand_over(&self, claim: &Claim, place: &str, created: i64) -> Result<Freed, Failure> {
        let next = self.tickets.next_of(claim.id());
        let txn = || {
            let keys_only = || Some(GetOptions::new().with_keys_only());
            let look = next.as_ref().map(|next| TxnOp::get(next.place.as_str(), keys_only()));
            let then: Vec<_> = std::iter::once(TxnOp::delete(place, None)).chain(look).collect();
            Txn::new().when([is_mine(place, created)]).and_then(then)
        };
        let (answer, again) = self.transaction(txn).await?;
        if !answer.succeeded() {
            return Ok(if again { Freed::ByWhom } else { Freed::No });
        }
        if let Some(next) = next {
            let revision = answer.header().map_or(0, etcd_client::ResponseHeader::revision);
            let is_there = answer.op_responses().into_iter().any(|response| match response {
                TxnOpResponse::Get(got) => got.kvs().iter().any(|kv| is_as_made(kv, next.created)),
                _ => false,
            });
            if is_there {
                next.hand_over(revision);
            }
        }
        Ok(Freed::Yes)
    }

    /// Whoever freed the place, the id is dead: a copy of an earlier request may still arrive.
    async fn free_and_void(&self, claim: &Claim, place: &str, created: i64, lease: i64) -> Result<Freed, Failure> {
        let void = self.keys.void(claim.id());
        let unless_void = Txn::new()
            .when([Compare::create_revision(void.as_str(), CompareOp::Equal, 0)])
            .and_then([self.void(claim, lease, "")]);
        let txn = Txn::new()
            .when([is_mine(place, created)])
            .and_then([TxnOp::delete(place, None), self.void(claim, lease, RELEASED)])
            .or_else([TxnOp::get(void, None), TxnOp::txn(unless_void)]);
        let (answer, _) = self.transaction(|| txn.clone()).await?;
        if let Some(lease) = self.tickets.get(claim.id()) {
            lease.note_void();
        }
        let by_an_earlier_copy = || {
            answer.op_responses().into_iter().any(|response| match response {
                TxnOpResponse::Get(got) => got.kvs().iter().any(|kv| kv.value() == RELEASED.as_bytes()),
                _ => false,
            })
        };
        Ok(if answer.succeeded() || by_an_earlier_copy() { Freed::Yes } else { Freed::No })
    }

    /// Deletes whatever the claim has, and makes its id dead if a request of it may still arrive.
    /// What a forced release closed stays.
    pub(crate) async fn undo(&self, claim: &Claim) -> Result<(), Failure> {
        let place = self.keys.place(claim.name(), claim.id());
        let ours = Compare::version(place.as_str(), CompareOp::Less, 2);
        let delete = TxnOp::delete(place.as_str(), None);
        let ticket = self.tickets.get(claim.id());
        if ticket.is_none() && !claim.is_unanswered() {
            // Every request was answered, and none left anything.
            return Ok(());
        }
        if claim.is_unanswered() {
            let lease = ticket.clone().unwrap_or_else(|| self.pool.lease(claim));
            let state = match lease.state() {
                State::Opening(_) => lease.until_proved(claim).await.map_or_else(State::Ended, State::Alive),
                state => state,
            };
            if let State::Alive(proof) = state {
                let void = self.void(claim, proof.id, "");
                let both = Txn::new().when([ours.clone()]).and_then([delete.clone(), void.clone()]).or_else([void]);
                match self.transaction(|| both.clone()).await {
                    Ok(_) => {
                        lease.note_void();
                        self.tickets.remove(claim.id());
                        return Ok(());
                    }
                    // Then a late request, which names this lease, is refused too.
                    Err(failure @ Failure::Refused(Refusal::NoLease)) => lease.end(failure),
                    Err(failure @ Failure::Refused(Refusal::NoSpace)) => {
                        self.delete_when_full(&place).await?;
                        return Err(failure);
                    }
                    Err(failure) => return Err(failure),
                }
            }
        }
        let txn = Txn::new().when([ours]).and_then([delete]);
        match self.transaction(|| txn.clone()).await {
            Err(Failure::Refused(Refusal::NoSpace)) => drop(self.delete_when_full(&place).await?),
            deleted => drop(deleted?),
        }
        self.tickets.remove(claim.id());
        Ok(())
    }
}
