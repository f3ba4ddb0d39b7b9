//! Passing a lease from one local holder to the next, without the server.
//!
//! The server goes on to see the hold of the first; tokens are of the range that its
//! grant reserved, and nothing but an acknowledged renewal moves the deadline. Passing is
//! bounded in number and in time since the grant, so that other clients are served. (The
//! idea is that of lock cohorting: Dice, Marathe and Shavit, `PPoPP` 2012.)

mod waiting;

pub(crate) use waiting::{Cohorts, Place};

use crate::ledger::Ledger;
use crate::validity::passes_until;
use crate::{AcquireOptions, Capability, Claim, DistributedLock, Error, ErrorKind, Grant, Moment, Result};
use std::time::Duration;
use waiting::Seat;

/// What was granted, by the server or by the holder before.
pub(crate) struct Won {
    /// Its claim is the server's: that of the first holder.
    pub(crate) grant: Grant,
    /// The holder's own claim, if it is not that.
    own: Option<Claim>,
    tenure: Option<Box<Tenure>>,
}

/// One lease that may pass on, from the grant until the server has it back.
pub(crate) struct Tenure {
    cohorts: Cohorts,
    /// As it was granted: under another one it is not known what the next holder may count on.
    ttl: Duration,
    /// From when it passes to nobody any more.
    until: Moment,
    most: u32,
    passed: u32,
}

impl Tenure {
    /// The waiter that it passes to next, if there is one that it may pass to.
    fn next(&mut self, grant: &Grant) -> Option<Seat> {
        let server = &grant.claim;
        if self.passed >= self.most || server.now() >= self.until || grant.ttl != self.ttl {
            return None;
        }
        let pass = self.passed.saturating_add(1);
        let seat = self.cohorts.next(server, pass)?;
        self.passed = pass;
        Some(seat)
    }
}

impl Won {
    /// What the server granted.
    pub(crate) fn granted(grant: Grant, cohorts: &Cohorts) -> Self {
        let most = grant.reserved.min(grant.claim.reserve());
        if most == 0 {
            return Self { grant, own: None, tenure: None };
        }
        let had = grant.claim.now();
        let until = passes_until(grant.sent_at.min(had), had, grant.ttl);
        let tenure = Tenure { cohorts: cohorts.clone(), ttl: grant.ttl, until, most, passed: 0 };
        Self { grant, own: None, tenure: Some(Box::new(tenure)) }
    }

    /// The claim of whoever is to hold it.
    pub(crate) fn own(&self) -> &Claim {
        self.own.as_ref().unwrap_or(&self.grant.claim)
    }

    fn owned_by(self, claim: Claim) -> Self {
        Self { own: Some(claim), ..self }
    }

    pub(crate) fn into_parts(self) -> (Grant, Option<Claim>, Option<Box<Tenure>>) {
        (self.grant, self.own, self.tenure)
    }
}

/// A lease that the holder before has let go of, and who is next.
pub(crate) struct Passing {
    won: Won,
    seat: Seat,
}

impl Passing {
    /// Who is next, if `tenure` may pass on.
    ///
    /// `grant` is the server's as it stands: its token is that of the holder before.
    pub(crate) fn of(grant: Grant, mut tenure: Box<Tenure>) -> std::result::Result<Self, Grant> {
        let (Some(seat), Some(token)) = (tenure.next(&grant), grant.token.next()) else { return Err(grant) };
        let grant = Grant { token, ..grant };
        Ok(Self { won: Won { grant, own: None, tenure: Some(tenure) }, seat })
    }

    /// Hands it over. The holder before must have ended.
    pub(crate) fn hand_over(self, ledger: &Ledger) {
        if let Err(won) = self.seat.hand(self.won, ledger) {
            hand_on(won, ledger);
        }
    }
}

/// What nobody has come for: the next waiter's, or else undone at the server.
pub(crate) fn hand_on(mut won: Won, ledger: &Ledger) {
    while let Some(tenure) = won.tenure.take() {
        match Passing::of(won.grant, tenure) {
            Ok(passing) => match passing.seat.hand(passing.won, ledger) {
                Ok(()) => return,
                // Gone in this instant.
                Err(back) => won = back,
            },
            Err(grant) => won = Won { grant, own: None, tenure: None },
        }
    }
    ledger.undo(won.grant.claim);
}

/// Whether the engine can do what is asked for.
///
/// # Errors
/// `Refused` says why not.
pub(crate) fn check_cohort(options: &AcquireOptions, engine: &dyn DistributedLock) -> Result<()> {
    if options.cohort == 0 {
        return Ok(());
    }
    let found = engine.guarantees();
    if found.has(Capability::Cohort) {
        return Ok(());
    }
    let message = format!(
        "`cohort` was asked for, and {} cannot reserve tokens with a grant: each would cost another write there; \
         leave it at 0, or use an engine that has `{}`, see `fencelock guarantees`",
        found.deployment(),
        Capability::Cohort
    );
    Err(Error::new(ErrorKind::Refused, message).with_engine(found.engine().to_owned()))
}
