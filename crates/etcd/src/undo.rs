//! Freeing a place, and making an id dead.

use crate::engine::Inner;
use crate::failure::{Failure, Refusal};
use crate::members::Again;
use crate::shared::State;
use etcd_client::{Compare, CompareOp, PutOptions, Txn, TxnOp};
use fencelock_core::Claim;

impl Inner {
    /// Whether the place is there as it was made, and the revision at which that was seen.
    pub(crate) async fn is_there(&self, place: &str, created: i64) -> Result<(bool, i64), Failure> {
        let get = |mut client: etcd_client::Client| async move { client.get(place, None).await };
        let got = self.members.call(None, Again::Same, get).await?;
        let revision = got.header().map_or(0, etcd_client::ResponseHeader::revision);
        Ok((got.kvs().iter().any(|kv| kv.create_revision() == created), revision))
    }

    async fn transaction(&self, again: Again, txn: &Txn) -> Result<bool, Failure> {
        let send = |mut client: etcd_client::Client| async move { client.txn(txn.clone()).await };
        Ok(self.members.call(None, again, send).await?.succeeded())
    }

    /// Deletes a place, which is one claim's alone; false if it was not there. Some versions of a full
    /// store refuse every transaction, and none refuses this.
    async fn delete(&self, again: Again, place: &str) -> Result<bool, Failure> {
        let send = |mut client: etcd_client::Client| async move { client.delete(place, None).await };
        Ok(self.members.call(None, again, send).await?.deleted() > 0)
    }

    /// Makes the id dead for as long as the lease lives: a request of it that arrives later names that lease.
    fn void(&self, claim: &Claim, lease: i64) -> TxnOp {
        TxnOp::put(self.keys.void(claim.id()), "", Some(PutOptions::new().with_lease(lease)))
    }

    /// Frees the place if it is the one that was made; false if it was not there.
    pub(crate) async fn free(&self, claim: &Claim, place: &str, created: i64, lease: i64) -> Result<bool, Failure> {
        let delete = TxnOp::delete(place, None);
        let mine = Compare::create_revision(place, CompareOp::Equal, created);
        let only = Txn::new().when([mine.clone()]).and_then([delete.clone()]);
        if !claim.is_unanswered() {
            return match self.transaction(Again::Never, &only).await {
                Err(Failure::Refused(Refusal::NoSpace)) => self.delete(Again::Never, place).await,
                freed => freed,
            };
        }
        let both = Txn::new().when([mine]).and_then([delete, self.void(claim, lease)]);
        let freed = self.transaction(Again::Never, &both).await;
        if let Ok(true) = freed
            && let Some(lease) = self.tickets.get(claim.id())
        {
            lease.note_void();
        }
        if freed == Err(Failure::Refused(Refusal::NoSpace)) {
            // Freed for others at least; the error lets the client go on until the id is dead too.
            self.delete(Again::Never, place).await?;
        }
        freed
    }

    /// Deletes whatever the claim has, and makes its id dead if a request of it may still arrive.
    pub(crate) async fn undo(&self, claim: &Claim) -> Result<(), Failure> {
        let place = self.keys.place(claim.name(), claim.id());
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
                let both = Txn::new().and_then([delete.clone(), self.void(claim, proof.id)]);
                match self.transaction(Again::Same, &both).await {
                    Ok(_) => {
                        lease.note_void();
                        self.tickets.remove(claim.id());
                        return Ok(());
                    }
                    // Then a late request, which names this lease, is refused too.
                    Err(failure @ Failure::Refused(Refusal::NoLease)) => lease.end(failure),
                    Err(failure @ Failure::Refused(Refusal::NoSpace)) => {
                        self.delete(Again::Same, &place).await?;
                        return Err(failure);
                    }
                    Err(failure) => return Err(failure),
                }
            }
        }
        self.delete(Again::Same, &place).await?;
        self.tickets.remove(claim.id());
        Ok(())
    }
}
