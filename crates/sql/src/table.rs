//! What the engine asks of a lock table, whichever database it is in.

use async_trait::async_trait;
use fencelock_core::{
    Attempt, Claim, Error, ErrorKind, FencingToken, Guarantees, Hint, Hints, HolderInfo, LockName, Moment, Polling,
    Result,
};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The lock table of one database. Each of its verbs is one statement where nothing is in the way.
#[async_trait]
pub(crate) trait LockTable: fmt::Debug + Send + Sync + 'static {
    /// The engine's name, as errors and traces show it.
    fn engine(&self) -> &'static str;

    /// The table's name.
    fn name(&self) -> &str;

    fn guarantees(&self) -> Arc<Guarantees>;

    /// Asks anew what the database guarantees.
    async fn probe(&self) -> Result<Arc<Guarantees>>;

    /// One ear for all waiters, where the database has any.
    fn hints(&self) -> Option<&dyn Hints>;

    /// Learns which names this client waits for and holds.
    fn heeds(&self, _polling: &Polling) {}

    /// A place for the claim among those whom a release hands its lock on to, where releases do.
    fn place(&self, _claim: &Claim) -> Option<Arc<dyn Place>> {
        None
    }

    /// Takes the lock if it may be taken, and else tells what was in the way. `waits` if whoever asks will wait: where it
    /// [looks as it acquires](Self::looks_as_it_acquires), the table sees to it that a release is told, and who
    /// waits in a [place](Self::place) says so in the same statement.
    async fn acquire(&self, claim: &Claim, waits: bool) -> Result<Outcome>;

    /// Whether one who waits need not look first: the statement that acquires leaves alone what is held, and nobody
    /// queues to write. Else it is looked first, and acquired what is open.
    fn looks_as_it_acquires(&self) -> bool {
        false
    }

    /// Whether whoever asks for that lock, and would wait for it, is likely to have to.
    fn is_contended(&self, _name: &LockName) -> bool {
        true
    }

    /// Tells what is in the way, taking nothing.
    async fn look(&self, claim: &Claim) -> Result<Outcome>;

    /// Counts the ttl anew, if the claim holds the lock; at once, or with other renewals. Where a release hands locks on,
    /// it must hold it under `token`: an id that has held may have been handed the lock again.
    async fn renew(&self, claim: &Claim, token: FencingToken, server_ttl: Duration, at_once: bool) -> Result<bool>;

    /// Frees the lock if the claim has it, and under the token if that is known, as in [`renew`](Self::renew). Whose
    /// token is known may hand it on in the same step.
    async fn free(&self, claim: &Claim, token: Option<FencingToken>, operation: &'static str) -> Result<bool>;

    /// Makes the id dead, whatever of it is still on its way.
    async fn void(&self, claim: &Claim) -> Result<()>;

    async fn inspect(&self, name: &LockName) -> Result<Option<HolderInfo>>;

    async fn list(&self, prefix: &str) -> Result<Vec<(LockName, HolderInfo)>>;

    /// Frees the lock if its hold's token is one of `tokens`, from the first to the last.
    async fn force_release(&self, name: &LockName, tokens: (i64, i64)) -> Result<bool>;

    /// Drops the rows of locks that have been free for `idle`, and says how many.
    async fn purge(&self, idle: Duration) -> Result<u64>;
}

/// A place among those who wait for a lock that a release hands on.
#[async_trait]
pub(crate) trait Place: Send + Sync {
    /// Whether the statement just answered has told them, and a release will be heard.
    fn is_told(&self) -> bool;

    /// An ear that has heard everything since the place was taken; the first time only.
    fn ear(&self) -> Option<Box<dyn Hint>>;

    /// Ends when a release has handed the lock on to the claim.
    async fn handed(&self);

    /// Whether one has, and it was not taken yet.
    fn is_handed(&self) -> bool;

    /// What was handed on, once.
    fn take(&self) -> Option<Handed>;

    /// The claim holds the lock under `token`, however it came by it. Whether others may have heard of the claim,
    /// or it knows which hold was before it, so that the place is to be kept for as long as the hold.
    fn holds(&self, token: FencingToken) -> bool;
}

/// A lock that a release has handed on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handed {
    /// When the request was sent because of which it was handed on, if that is still known.
    pub(crate) sent_at: Option<Moment>,
    pub(crate) token: FencingToken,
}

/// What a claim met.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It took the lock: when it was asked, and the token.
    Granted(Moment, FencingToken),
    /// Nothing stands in the way that could be seen.
    Open,
    /// Another holds it.
    Held(Attempt),
    /// The claim's id was voided, released, or has expired.
    Dead { voided: bool },
}

impl Outcome {
    /// Another holds it for this much longer, unless it renews; or nobody, and it is closed.
    pub(crate) fn held(left: Duration, holder: Option<String>) -> Self {
        Self::Held(Attempt::contended(Some(left), holder.map(Into::into)))
    }
}

/// Whether the row's hold was ended by force and asked for a lock delay: its id
/// was made one byte longer than any claim's, so that nothing of the holder's
/// finds it any more, and the row expires when the delay is over.
pub(crate) const fn is_closed(claim_id: &[u8]) -> bool {
    claim_id.len() > 16
}

/// The shortest time for which a lock must have been free before its row may go:
/// no statement of an old claim is on its way for that long.
const LEAST_IDLE: Duration = Duration::from_secs(60);

pub(crate) fn check_idle(idle: Duration) -> Result<()> {
    if idle < LEAST_IDLE {
        return Err(Error::new(ErrorKind::InvalidConfig, "rows may be purged that have been free for a minute"));
    }
    Ok(())
}
