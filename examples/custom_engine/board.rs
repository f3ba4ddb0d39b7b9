//! The service that the engine talks to, which is no part of the engine: what one
//! elsewhere would do, each step as a whole.

use fencelock::{Attempt, Claim, ClaimId, Clock, FencingToken, HolderInfo, LockName, Moment, Renewal};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The id of a row that was taken away from its holder, which is no claim's.
const NOBODY: ClaimId = ClaimId::from_bytes([0; 16]);

#[derive(Debug)]
pub(crate) struct Row {
    id: ClaimId,
    info: HolderInfo,
    lock_delay: Duration,
    expires: Moment,
}

/// Who holds what, until when, on the service's own clock.
#[derive(Debug, Default)]
pub(crate) struct Board {
    clock: Clock,
    held: HashMap<LockName, Row>,
    /// Ids that are not to be granted, now or again, while a copy of a request may arrive.
    used: HashMap<ClaimId, Moment>,
    last: u64,
}

impl Board {
    fn find(&mut self, name: &LockName) -> Option<&mut Row> {
        self.held.get_mut(name).filter(|row| row.expires > self.clock.now())
    }

    /// Who holds what begins with `prefix`.
    pub(crate) fn list(&self, prefix: &str) -> Vec<(LockName, HolderInfo)> {
        let held = |(name, row): &(&LockName, &Row)| {
            row.id != NOBODY && row.expires > self.clock.now() && name.as_str().starts_with(prefix)
        };
        self.held.iter().filter(held).map(|(name, row)| (name.clone(), row.info.clone())).collect()
    }

    /// The token of the claim's hold, or why there is none.
    pub(crate) fn acquire(&mut self, claim: &Claim) -> Result<FencingToken, Attempt> {
        let (now, until) = (self.clock.now(), self.clock.now().plus(claim.server_ttl()));
        let used = self.used.contains_key(&claim.id());
        match self.find(claim.name()) {
            Some(row) if row.id == claim.id() => {
                row.expires = row.expires.max(until); // asked again: the same hold, whose time counts anew, never back
                return Ok(row.info.token);
            }
            Some(row) => {
                let holder = (row.id != NOBODY).then(|| Arc::clone(&row.info.holder));
                return Err(Attempt::contended(Some(row.expires.since(now)), holder));
            }
            None if used => return Err(Attempt::contended(None, None)),
            None => self.last += 1,
        }
        let token = FencingToken::new(self.last);
        let info = HolderInfo::new(Arc::clone(claim.holder()), token).with_note(claim.note().cloned());
        let row = Row { id: claim.id(), info, lock_delay: claim.lock_delay(), expires: until };
        self.held.insert(claim.name().clone(), row);
        self.retire(claim);
        Ok(token)
    }

    /// Counts the time of the claim's own hold anew; never makes one.
    pub(crate) fn renew(&mut self, claim: &Claim, server_ttl: Duration) -> Renewal {
        let until = self.clock.now().plus(server_ttl);
        match self.find(claim.name()) {
            Some(row) if row.id == claim.id() => {
                row.expires = row.expires.max(until);
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
        let own = self.find(claim.name()).is_some_and(|row| row.id == claim.id());
        own && self.held.remove(claim.name()).is_some()
    }

    /// Takes the lock from its holder, who has its lock delay to hear of it.
    pub(crate) fn force(&mut self, name: &LockName) -> bool {
        let now = self.clock.now();
        let Some(row) = self.find(name).filter(|row| row.id != NOBODY) else { return false };
        row.id = NOBODY;
        row.expires = row.expires.min(now.plus(row.lock_delay));
        true
    }
}
