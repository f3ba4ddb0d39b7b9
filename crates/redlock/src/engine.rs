//! The engine: how a majority grants a lock, and how what a minority granted is undone.

use crate::ask::here;
use crate::config::RedlockConfig;
use crate::ears::Ears;
use crate::keys::NameKeys;
use crate::lease::RedlockLease;
use crate::questions::Arriving;
use crate::sent::Sent;
use crate::set::Set;
use crate::tally::{Attempted, Obstacle, Tally, Verdict};
use crate::tokens::Tokens;
use async_trait::async_trait;
use fencelock_core::group::Renewals;
use fencelock_core::{
    Admin, Attempt, Claim, DistributedLock, Error, ErrorKind, FencingToken, Grant, Guarantees, HolderInfo, LockName,
    Moment, Polling, Result,
};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Redis counts whole milliseconds, and expires on the tick.
const MARGIN: Duration = Duration::from_millis(2);

/// The longest that one attempt takes, from its first request to its token. Re-seeding leans on it.
pub(crate) const LONGEST_ATTEMPT: Duration = Duration::from_secs(3);

/// The longest pause between attempts that met others.
const PAUSE: Duration = Duration::from_millis(50);

/// How often a single try is made again when it met other tries and nobody's hold.
const COLLISIONS: u32 = 12;

/// How long nodes that have not told yet are waited for when the outcome is clear, and it is no success.
const GRACE: Duration = Duration::from_millis(50);

/// Locks on a majority of independent Redis nodes.
///
/// Driven by a [`LockClient`](fencelock_core::LockClient). The crate's own page
/// describes the protocol, its tokens and its limits.
///
/// # Drop
/// The connections close when the engine and the last lease are gone. What is
/// held then runs out.
pub struct RedlockLock {
    pub(crate) shared: Arc<Shared>,
    polling: Polling,
    ears: Ears,
}

/// What engine and leases have in common.
pub(crate) struct Shared {
    pub(crate) set: Arc<Set>,
    tokens: Arc<Tokens>,
    pub(crate) renewals: Renewals<Set>,
}

impl RedlockLock {
    /// Connects to the nodes and probes what can be guaranteed there. A minority may be away.
    ///
    /// # Errors
    /// `InvalidConfig` if a setting is wrong, the nodes are not an odd number of three or more, or the
    /// runtime has no timers; `Refused` if the nodes were never initialised, belong to different sets,
    /// are the same server or replicas; `Denied` if they do not let us; `Unavailable` if no majority
    /// answered in time, or there is no runtime.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing locked.
    pub async fn connect(config: RedlockConfig) -> Result<Arc<Self>> {
        let set = Set::new(config)?;
        crate::admit::admit(&set).await.map_err(|e| e.with_engine("redlock").with_operation("connect"))?;
        let ears = Ears(Arc::clone(&set));
        let renewals = Renewals::new(Arc::clone(&set));
        let shared = Arc::new(Shared { set, tokens: Arc::default(), renewals });
        Ok(Arc::new(Self { shared, polling: Polling::new(), ears }))
    }

    async fn attempt(&self, claim: &Claim) -> Result<Came> {
        let set = &self.shared.set;
        let keys = Arc::new(set.keys.of(claim.name()));
        let sent_at = claim.now();
        let end = Instant::now() + longest(claim);
        let limit = set.limit(claim.ttl());
        let tokens = &self.shared.tokens;
        // What was asked for before under this id may hold with a token: nodes that it did not reach must note no other.
        let guess = if claim.was_sent() { None } else { tokens.numbers.guess(keys.shard) };
        let sent = Arc::new(Sent::new(claim, set.size()));
        let mut answers = set.acquire(claim, &keys, &sent, guess, limit);
        let mut tally = Tally::of(set.size(), guess);
        while tally.verdict().is_none()
            && let Some((at, vote)) = answers.next().await
        {
            tally.add(at, vote);
        }
        if tally.verdict() == Some(Verdict::Won) {
            tokens.hear(keys.shard, &tally);
            return match self.token(claim, &keys, &tally, limit, sent_at, end).await {
                Ok(token) => {
                    let noted = tally.noted().is_some();
                    let lacking = tally.lacking(token).filter(|_| noted);
                    tokens.note(set, claim, &keys, token, lacking, answers);
                    let hold = self.polling.hold(claim.name());
                    let lease = RedlockLease::new(Arc::clone(&self.shared), claim.clone(), keys, token, sent, hold);
                    Ok(Came::To(Attempt::Granted(Grant::new(claim, lease, sent_at, token).with_margin(MARGIN))))
                }
                Err(e) => {
                    drop(answers);
                    self.give_up(claim, &keys, &sent).await?;
                    Err(e)
                }
            };
        }
        let grace = Instant::now() + GRACE;
        while let Some((at, vote)) = answers.next_by(grace).await {
            tally.add(at, vote);
        }
        tokens.hear(keys.shard, &tally);
        let obstacle = tally.obstacle();
        // One that has answered since, and was not counted, may have granted its part.
        let uncounted = answers.left() > 0 || claim.is_unanswered();
        drop(answers);
        if !matches!(obstacle, Obstacle::Dead) && (tally.left_something() || uncounted) {
            self.give_up(claim, &keys, &sent).await?;
        } else if !matches!(obstacle, Obstacle::Dead) {
            // Nothing is left of it. The next id was never sent, so a number may go along with it.
            claim.next_attempt_undone()?;
        }
        match obstacle {
            Obstacle::Holder { left, holder } => Ok(Came::To(Attempt::contended(left, holder))),
            Obstacle::Split(attempted) => Ok(Came::Across(attempted)),
            Obstacle::Missing(e) => Err(e),
            Obstacle::Dead => Err(Error::new(ErrorKind::Lost, "this claim was abandoned or released; its id is dead")),
        }
    }

    /// The hold's token, if there is still time to hold it.
    async fn token(
        &self,
        claim: &Claim,
        keys: &NameKeys,
        tally: &Tally,
        limit: Duration,
        sent_at: Moment,
        end: Instant,
    ) -> Result<FencingToken> {
        let token = match tally.noted() {
            Some(token) => token,
            None => {
                let Some(heard) = tally.largest() else {
                    return Err(Error::new(ErrorKind::Engine, "a majority granted it without telling its counters"));
                };
                let (set, id) = (&self.shared.set, claim.id().to_string());
                self.shared.tokens.agree(set, &id, keys, heard, limit, end).await?
            }
        };
        // On the clock that counts suspended time: an attempt that was stopped in between is over.
        if claim.now().since(sent_at) > longest(claim) {
            return Err(Error::new(
                ErrorKind::Unavailable,
                "the nodes took too long: too little of the ttl was left; undone",
            ));
        }
        Ok(token)
    }

    /// Undoes this attempt on all nodes. Whatever comes next has a new id.
    async fn give_up(&self, claim: &Claim, keys: &Arc<NameKeys>, sent: &Arc<Sent>) -> Result<()> {
        match self.undo(claim, keys, Arriving::after_attempt(claim, sent)).await {
            Ok(()) => claim.next_attempt_undone()?,
            Err(_) => claim.next_attempt()?,
        };
        Ok(())
    }

    /// Frees on all nodes what the claim holds, and makes its id dead where an answer is owed.
    ///
    /// A majority is enough for the lock: since nothing of it can arrive there any more, or the id is dead, it can never be
    /// held again.
    /// Who did not answer is asked again in the background, for as long as it may have a part.
    async fn undo(&self, claim: &Claim, keys: &Arc<NameKeys>, arriving: Arriving) -> Result<()> {
        let set = &self.shared.set;
        let mut answers = set.free(claim, keys, claim.server_ttl(), arriving);
        let mut done = 0;
        let mut grace = None;
        while let Some((_, answer)) = match grace {
            Some(grace) => answers.next_by(grace).await,
            None => answers.next().await,
        } {
            done += usize::from(answer.is_ok());
            if done >= set.majority() && grace.is_none() {
                grace = Some(Instant::now() + GRACE);
            }
        }
        if done >= set.majority() {
            return Ok(());
        }
        let message = format!("undone on {done} of {} nodes: no majority", set.size());
        Err(Error::new(ErrorKind::Unavailable, message).with_engine("redlock"))
    }
}

/// What one attempt came to.
enum Came {
    To(Attempt),
    /// Other attempts: nobody holds it, and one of them may be about to.
    Across(Option<Attempted>),
}

/// How long an attempt may take: so that most of the ttl is left, and never too long for re-seeding.
fn longest(claim: &Claim) -> Duration {
    LONGEST_ATTEMPT.min(claim.ttl().mul_f64(0.8))
}

#[async_trait]
impl DistributedLock for RedlockLock {
    fn guarantees(&self) -> Arc<Guarantees> {
        self.shared.set.guarantees()
    }

    async fn probe(&self) -> Result<Arc<Guarantees>> {
        here()?;
        self.shared.set.look_at_all().await
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt> {
        let name = claim.name();
        let told = |e: Error| e.with_engine("redlock").with_operation("acquire").with_name(name);
        here().map_err(told)?;
        let mut claim = claim.clone();
        let (mut met, mut ids) = (0, BTreeSet::new());
        loop {
            match self.attempt(&claim).await.map_err(told)? {
                Came::To(attempt) => return Ok(attempt),
                Came::Across(attempted) if met >= COLLISIONS => {
                    // Always the same: whoever began it is slow, or was killed. An end of it is told to those who listen.
                    let left = attempted.filter(|a| ids.len() == 1 && ids.contains(&Some(Arc::clone(&a.id))));
                    return Ok(Attempt::contended(left.map_or(Some(PAUSE), |a| a.left), None));
                }
                Came::Across(Some(Attempted { id, noted: Some(holder), left }))
                    if ids.contains(&Some(Arc::clone(&id))) =>
                {
                    return Ok(Attempt::contended(left, Some(holder).filter(|holder| !holder.is_empty())));
                }
                Came::Across(attempted) => {
                    met += 1;
                    ids.insert(attempted.map(|a| a.id));
                    // Those who met must not meet again.
                    tokio::time::sleep(PAUSE.mul_f64(0.1 + 0.9 * fastrand::f64())).await;
                    claim = claim.latest();
                }
            }
        }
    }

    async fn acquire(&self, claim: &Claim) -> Result<Grant> {
        here().map_err(|e| e.with_operation("acquire").with_name(claim.name()))?;
        self.polling.acquire(self, Some(&self.ears), claim).await
    }

    async fn abandon(&self, claim: &Claim) -> Result<()> {
        if !claim.was_sent() {
            return Ok(());
        }
        here()?;
        let keys = Arc::new(self.shared.set.keys.of(claim.name()));
        self.undo(claim, &keys, Arriving::Anywhere(claim.is_unanswered())).await
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<HolderInfo>> {
        here()?;
        self.shared.set.holder(name).await
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }
}

#[async_trait]
impl Admin for RedlockLock {
    async fn list(&self, prefix: &str) -> Result<Vec<(LockName, HolderInfo)>> {
        here()?;
        self.shared.set.list(prefix).await
    }

    async fn force_release(&self, name: &LockName) -> Result<bool> {
        here()?;
        self.shared.set.force_release(name).await
    }

    async fn force_release_if(&self, name: &LockName, token: FencingToken) -> Result<bool> {
        here()?;
        self.shared.set.force_release_if(name, token).await
    }
}

impl fmt::Debug for RedlockLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedlockLock")
            .field("set", &self.shared.set)
            .field("polling", &self.polling)
            .field("kept_alive", &self.shared.renewals.len())
            .finish()
    }
}
