//! The service that the engine talks to: what one elsewhere would do, each step as a whole.

use fencelock::{Attempt, Claim, ClaimId, Clock, FencingToken, HolderInfo, LockName, Moment, Renewal};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

type Row = (ClaimId, HolderInfo, Moment);

/// Who holds what, until when, on the service's own clock.
#[derive(Debug, Default)]
pub(crate) struct Board {
    clock: Clock,
    pub(crate) held: HashMap<LockName, Row>,
    /// Ids that are not to be granted, now or again, while a copy of a request may arrive.
    used: HashMap<ClaimId, Moment>,
    last: u64,
}

impl Board {
    pub(crate) fn find(&mut self, name: &LockName) -> Option<&mut Row> {
        self.held.get_mut(name).filter(|(.., expires)| *expires > self.clock.now())
    }

    /// The token of the claim's hold, or why there is none.
    pub(crate) fn acquire(&mut self, claim: &Claim) -> Result<FencingToken, Attempt> {
        let (now, until) = (self.clock.now(), self.clock.now().plus(claim.server_ttl()));
        let used = self.used.contains_key(&claim.id());
        match self.find(claim.name()) {
            Some(row) if row.0 == claim.id() => {
                row.2 = row.2.max(until); // asked again: the same hold, whose time counts anew, never back
                return Ok(row.1.token);
            }
            Some(row) => return Err(Attempt::contended(Some(row.2.since(now)), Some(Arc::clone(&row.1.holder)))),
            None if used => return Err(Attempt::contended(None, None)),
            None => self.last += 1,
        }
        let token = FencingToken::new(self.last);
        let info = HolderInfo::new(Arc::clone(claim.holder()), token).with_note(claim.note().cloned());
        self.held.insert(claim.name().clone(), (claim.id(), info, until));
        self.retire(claim);
        Ok(token)
    }

    /// Counts the time of the claim's own hold anew; never makes one.
    pub(crate) fn renew(&mut self, claim: &Claim, server_ttl: Duration) -> Renewal {
        let until = self.clock.now().plus(server_ttl);
        match self.find(claim.name()) {
            Some(row) if row.0 == claim.id() => {
                row.2 = row.2.max(until);
                Renewal::Renewed
            }
            _ => Renewal::Refused,
        }
    }

    fn retire(&mut self, claim: &Claim) {
        let now = self.clock.now();
        self.used.retain(|_, until| *until > now);
        self.used.insert(claim.id(), now.plus(claim.server_ttl() + Duration::from_secs(60)));
    }

    /// Frees what the claim holds, never what another does.
    pub(crate) fn end(&mut self, claim: &Claim) -> bool {
        self.retire(claim);
        let own = self.find(claim.name()).is_some_and(|row| row.0 == claim.id());
        own && self.held.remove(claim.name()).is_some()
    }
}
