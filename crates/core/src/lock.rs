//! What an engine implements.
//!
//! The contract asks for *until*, not *once*: [`acquire`](DistributedLock::acquire)
//! waits until granted, [`keep_alive`](Lease::keep_alive) runs until the hold is
//! gone. An engine that can only try once lifts itself with
//! [`Polling`](crate::Polling) and [`keep_alive_by_renewing`](crate::keep_alive_by_renewing);
//! one that has a queue and a session does what it does natively. A contract of
//! single tries would make a queue lose its place and turn `renew` into a stub.
//!
//! What must not vary between engines is not here but in the client, once: the
//! claim's id, the wait limit, undo on every exit path, the local deadline,
//! drop, loss, spans.

use crate::{
    Claim, Error, ErrorKind, FencingToken, Guarantees, HolderInfo, LockName, LossReason, Moment, Result, Validity,
};
use async_trait::async_trait;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A service that can hold locks, as this crate's client drives it.
///
/// # Contract
/// This trait is between an engine's author and [`LockClient`](crate::LockClient);
/// callers of locks never use it. An engine keeps these promises:
///
/// - Expiry is judged by the server's clock alone, and every compare at the
///   server is by claim id, in one step.
/// - A request may be sent again under the same id and means the same: an
///   acquire of its own live hold re-arms the expiry and returns the same token.
/// - No acquire, renewal or extension moves an expiry *back*: it may arrive late
///   or twice, after one that gave more.
/// - An id that was abandoned, or released while a request of it was
///   [unanswered](Claim::is_unanswered), is dead: no later request of that id
///   takes the lock, however late it arrives. So is the id of a hold that has
///   expired: nothing revives it.
/// - Every request has its own time-out; an answer that did not come is
///   `Err` of kind `Unavailable`, never a yes or a no.
/// - Requests that could take the lock are announced with
///   [`Claim::request`], so that the client knows what may still arrive.
/// - A future of any method may be dropped at any await point. The client then
///   calls [`abandon`](Self::abandon).
/// - No method blocks its thread, and none panics on any input.
///
/// The contract suite in `fencelock-testkit` checks all of it.
#[async_trait]
pub trait DistributedLock: fmt::Debug + Send + Sync + 'static {
    /// What this engine guarantees in the deployment it is connected to. Cheap; probed anew on reconnect.
    fn guarantees(&self) -> Arc<Guarantees>;

    /// Asks the deployment anew what it guarantees: from then on
    /// [`guarantees`](Self::guarantees) says what was found. The default has nothing to ask.
    ///
    /// What was attested and is now found not to be so comes out refused
    /// ([`Guarantees::attest_again`]).
    ///
    /// # Errors
    /// `Unavailable` when no answer came; what was found before still counts.
    async fn probe(&self) -> Result<Arc<Guarantees>> {
        Ok(self.guarantees())
    }

    /// Tries once, without waiting for another holder.
    ///
    /// `Contended` is answered only when no trace of the try is left.
    ///
    /// # Errors
    /// `Unavailable` when no answer came; the client then abandons the claim.
    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt>;

    /// Waits until the lock is granted. The client sets the limit and drops the future.
    ///
    /// What it meets on the way it tells with [`Claim::met`].
    ///
    /// # Errors
    /// Anything that waiting cannot mend; `Unavailable` is waited out.
    async fn acquire(&self, claim: &Claim) -> Result<Grant>;

    /// Undoes whatever the claim's id left behind, known or not, and makes the id dead.
    ///
    /// # Errors
    /// `Unavailable` when it is not known to be undone; the client asks again.
    async fn abandon(&self, claim: &Claim) -> Result<()>;

    /// Who holds the lock now; `None` if nobody does.
    ///
    /// # Errors
    /// `Unavailable` when no answer came.
    async fn inspect(&self, name: &LockName) -> Result<Option<HolderInfo>>;

    /// The operator's verbs, where the engine has them.
    fn admin(&self) -> Option<&dyn Admin>;
}

/// One hold at the server, kept alive and given back.
#[async_trait]
pub trait Lease: Send + Sync + 'static {
    /// Keeps the hold alive and ends when it is gone, with the reason.
    ///
    /// Proves contact with [`Validity::renewed`] and tells broken contact with
    /// [`Validity::doubt`]. Never creates or takes back what is gone. The client
    /// begins it when the first renewal is due, or some 20 ms after the grant, for fixed leases too,
    /// where the engine has [`PushLoss`](crate::Capability::PushLoss); it drops the
    /// future when the hold ends otherwise. [`extend`](Self::extend) may run beside it.
    async fn keep_alive(&self, validity: &Validity) -> LossReason;

    /// Gives the hold at least `ttl` from now (the lock delay comes on top at the
    /// server), and tells `validity` when it is acknowledged. Never takes any away.
    ///
    /// # Errors
    /// `Lost` if the hold was gone, `Unavailable` when no answer came.
    async fn extend(&self, ttl: Duration, validity: &Validity) -> Result<()>;

    /// Frees the lock, comparing the claim, never the name alone.
    ///
    /// # Errors
    /// `Lost` if it was no longer ours; `Unavailable` when no answer came, after
    /// which the client abandons the claim until the lease must have ended.
    async fn release(self: Box<Self>) -> Result<()>;

    /// Plain values that prove ownership in the store itself. Constant for the hold.
    fn evidence(&self) -> Evidence;
}

/// Verbs for operators.
#[async_trait]
pub trait Admin: Send + Sync {
    /// The held locks whose name begins with `prefix`, by name.
    ///
    /// # Errors
    /// `Unavailable` when no answer came.
    async fn list(&self, prefix: &str) -> Result<Vec<(LockName, HolderInfo)>>;

    /// Frees the lock whoever holds it; false if nobody did. The next token is larger.
    ///
    /// The holder has no say in it, as in a failure. So a hold that asked for a
    /// [lock delay](Claim::lock_delay) leaves the lock closed to others for that
    /// long, by the server's clock, or for what was left of its lease if that is
    /// less; meanwhile nobody holds it. A hold without one is freed at once. The
    /// call itself does not wait, and needs nobody alive afterwards.
    ///
    /// # Errors
    /// `Unavailable` when no answer came.
    async fn force_release(&self, name: &LockName) -> Result<bool>;

    /// Frees the lock as [`force_release`](Self::force_release) does, if it is held
    /// under `token`; false, and nothing is changed, if it is not: nobody holds it, or
    /// another hold has begun since `token` was seen.
    ///
    /// The server compares, in the step that frees: an operator who decided on one
    /// hold never takes the lock from the next. The default cannot, and says so.
    ///
    /// # Errors
    /// `Unavailable` when no answer came; `Unsupported` where the engine cannot compare.
    async fn force_release_if(&self, name: &LockName, token: FencingToken) -> Result<bool> {
        let message = format!("this engine cannot free a lock on condition that its token is {token}");
        Err(Error::new(ErrorKind::Unsupported, message).with_name(name))
    }
}

/// What one try came to.
#[derive(Debug)]
#[non_exhaustive]
pub enum Attempt {
    /// The lock is ours.
    Granted(Grant),
    /// Somebody else has it; made by [`Attempt::contended`].
    #[non_exhaustive]
    Contended {
        /// When trying again may help: the holder's remaining time, where it is known.
        retry_after: Option<Duration>,
        /// Who has it, where that is known.
        holder: Option<Arc<str>>,
    },
}

impl Attempt {
    /// Somebody else has it: for how long still and who, where it is known.
    #[must_use]
    pub fn contended(retry_after: Option<Duration>, holder: Option<Arc<str>>) -> Self {
        Self::Contended { retry_after, holder }
    }
}

/// A lock that was granted.
#[non_exhaustive]
pub struct Grant {
    /// The claim that won: the one asked with, or a [later attempt](Claim::next_attempt) of it.
    pub claim: Claim,
    /// The hold at the server.
    pub lease: Box<dyn Lease>,
    /// When the request that the server counts from was sent, read *before* it left.
    pub sent_at: Moment,
    /// The holder's time to live as granted, without the lock delay.
    pub ttl: Duration,
    /// What the engine's rounding and whatever else it must allow for take off the ttl.
    pub margin: Duration,
    /// The fencing token of this hold.
    pub token: FencingToken,
    /// How many tokens right after it are reserved for those to whom the lock passes on.
    pub reserved: u32,
}

impl Grant {
    /// A grant of what the claim asked for, with a margin of 1 ms.
    #[must_use]
    pub fn new(claim: &Claim, lease: impl Lease, sent_at: Moment, token: FencingToken) -> Self {
        let margin = Duration::from_millis(1);
        Self { claim: claim.clone(), lease: Box::new(lease), sent_at, ttl: claim.ttl(), margin, token, reserved: 0 }
    }

    /// The server granted another ttl than the claim asked for.
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// The grant reserved this many tokens before the one it was made with, which is the
    /// last of them: the holder gets the first.
    ///
    /// An engine with [`Capability::Cohort`](crate::Capability::Cohort) passes what
    /// [`Claim::reserve`] asked for.
    #[must_use]
    pub fn with_reserved(mut self, tokens: u32) -> Self {
        self.token = FencingToken::new(self.token.get().saturating_sub(u64::from(tokens)));
        self.reserved = tokens;
        self
    }

    /// The engine's own margin.
    #[must_use]
    pub fn with_margin(mut self, margin: Duration) -> Self {
        self.margin = margin;
        self
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant")
            .field("claim", &self.claim)
            .field("ttl", &self.ttl)
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}

/// Plain values that prove ownership: an etcd key and its revision, a znode's
/// path and czxid. Which there are is the engine's to document.
// They are few: a slice in the order of its keys is a quarter of what a map takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence(Box<[(&'static str, Box<str>)]>);

impl Evidence {
    /// No evidence: the store has nothing that a caller could test.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Adds a value, in the place of an earlier one of that key.
    #[must_use]
    pub fn with(self, key: &'static str, value: impl Into<String>) -> Self {
        let value = value.into().into_boxed_str();
        let mut all = self.0.into_vec();
        match all.binary_search_by_key(&key, |(key, _)| key) {
            Ok(at) => all.splice(at..=at, [(key, value)]).for_each(drop),
            Err(at) => all.insert(at, (key, value)),
        }
        Self(all.into_boxed_slice())
    }

    /// The value called `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.iter().find(|(other, _)| *other == key).map(|(_, value)| value)
    }

    /// All values by key.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().map(|(key, value)| (*key, &**value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evidence_is_by_key_however_it_was_given() {
        let one = Evidence::none().with("path", "/a").with("czxid", "1").with("path", "/b");
        let other = Evidence::none().with("czxid", 1.to_string()).with("path", "/b");
        assert_eq!(one, other);
        assert_eq!(one.iter().collect::<Vec<_>>(), [("czxid", "1"), ("path", "/b")]);
        assert_eq!((one.get("path"), one.get("key"), Evidence::none().get("")), (Some("/b"), None, None));
    }
}
