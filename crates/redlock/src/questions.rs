//! What is asked of each node about a lock, typed.

use crate::answers::{Answers, Question};
use crate::ask::{Posting, millis, whole_millis};
use crate::debts::Debt;
use crate::keys::NameKeys;
use crate::member::Member;
use crate::scripts::{ACQUIRE, CONFIRM, FREE, FREE_DEAD, PROPOSE};
use crate::sent::{Came, Sent};
use crate::set::{Set, lock};
use crate::votes::{self, Forced, Renewed, Reply, Vote};
use fencelock_core::group::Renewing;
use fencelock_core::{Claim, ClaimId, ErrorKind, FencingToken};
use fencelock_redis::redis::Value;
use fencelock_redis::{Leaving, NodeFailure, NodeWords, Posts, WordsOf};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// The shortest time for which an id stays dead.
const VOID: Duration = Duration::from_secs(60);

impl Set {
    /// Sends one acquire to each node that votes, with a number to propose if there is one: nothing here sends it
    /// again. The claim knows of each before it leaves, and `sent` which is answered. What has not left when the answers are
    /// dropped never does.
    pub(crate) fn acquire(
        &self,
        claim: &Claim,
        keys: &NameKeys,
        sent: &Arc<Sent>,
        guess: Option<FencingToken>,
        limit: Duration,
    ) -> Answers<Vote> {
        let id = claim.id().to_string();
        let (holder, note) = (claim.holder(), claim.note().map_or("", |note| note));
        let (number, delay) = (guess.map_or(0, FencingToken::get), whole_millis(claim.lock_delay()));
        let words = WordsOf::with_room(6, 3 * keys.lock.len() + holder.len() + note.len() + 160)
            .key(&[&keys.lock])
            .key(&keys.fence())
            .key(&keys.void(&id))
            .written(format_args!("{id} {number} {delay} {} {holder}{note}", holder.len()))
            .written(format_args!("{}", whole_millis(claim.server_ttl())));
        let words = match guess {
            Some(guess) => words.written(format_args!("{guess}")),
            None => words.arg(&[]),
        };
        let words = words.all();
        let acquiring = Acquiring { sent: Arc::clone(sent), guess, set: Weak::clone(&self.itself) };
        self.post(Posting { script: ACQUIRE, words, limit }, Member::votes, acquiring)
            .only_while_wanted()
            .of(claim, limit)
    }

    /// Proposes a token to each node, once: nothing here sends it again.
    pub(crate) fn propose(&self, id: &str, keys: &NameKeys, token: FencingToken, limit: Duration) -> Answers<Reply> {
        let words = NodeWords::new(&[&keys.lock, &keys.fence().concat()], &[token.to_string().as_str(), id]);
        let read = |outcome: Result<Value, NodeFailure>| votes::reply(&outcome?);
        self.post(Posting { script: PROPOSE, words, limit }, Member::votes, read)
    }

    /// Notes an accepted token with the hold on one node, where that was not done yet.
    pub(crate) fn confirm(&self, at: usize, id: &str, key: &str, token: FencingToken) {
        let Some(member) = self.members.get(at) else { return };
        let words = NodeWords::new(&[key], &[token.to_string().as_str(), id]);
        member.node.post(CONFIRM, &words, Instant::now() + self.config.request_timeout, Arc::new(Nobody), at);
    }

    /// Renews all `holds` on each node, in one command; one answer for each.
    pub(crate) fn ask_to_renew(&self, holds: &[Renewing<'_>], limit: Duration) -> Answers<Vec<Renewed>> {
        let at: Arc<[String]> = holds.iter().map(|hold| self.keys.lock(hold.claim.name())).collect();
        let what = holds
            .iter()
            .flat_map(|hold| [hold.claim.id().to_string(), hold.token.to_string(), millis(hold.server_ttl)]);
        let what: Arc<[String]> = what.collect();
        self.ask(|_, member| {
            let (at, what, scripts) = (Arc::clone(&at), Arc::clone(&what), Arc::clone(&self.scripts));
            async move {
                member.votes()?;
                votes::renewed(&member.node.run(&scripts.renew, &at, &what, limit).await?, at.len())
            }
        })
    }

    /// Frees on each node what the claim holds, and makes the id dead there where something of it may still arrive. True
    /// where it held. `ttl` is the longest that a node may keep it. Who does not answer is asked again, after this.
    pub(crate) fn free(&self, claim: &Claim, keys: &Arc<NameKeys>, ttl: Duration, arriving: Arriving) -> Answers<bool> {
        let longest = ttl.max(claim.server_ttl()).max(VOID);
        let freeing = Freeing {
            id: claim.id(),
            keys: Arc::clone(keys),
            arriving,
            alive_at: Mutex::default(),
            longest,
            until: Instant::now() + longest,
            set: Weak::clone(&self.itself),
        };
        let words = WordsOf::with_room(2, keys.lock.len() + 32).key(&[&keys.lock]);
        let words = words.written(format_args!("{}", freeing.id)).all();
        // Where nothing was ever sent there is nothing to free.
        let was_sent = |member: &Member| match member.is_known() {
            true => Ok(()),
            false => member.votes().map_err(|mut failure| {
                failure.refused = true;
                failure
            }),
        };
        self.post(Posting { script: FREE, words, limit: self.config.request_timeout }, was_sent, freeing)
    }

    /// Who holds each node's part.
    pub(crate) fn inspect(&self, keys: &NameKeys) -> Answers<Value> {
        let (at, limit) = ([keys.lock.clone()], self.config.request_timeout);
        self.ask(|_, member| {
            let (at, scripts) = (at.clone(), Arc::clone(&self.scripts));
            async move {
                member.votes()?;
                member.node.run(&scripts.inspect, &at, &[""; 0], limit).await
            }
        })
    }

    /// Ends the hold of each node's part, whoever has it.
    pub(crate) fn force(&self, keys: &NameKeys, only: &str) -> Answers<Forced> {
        let at = [keys.lock.clone(), keys.fence().concat()];
        let limit = self.config.request_timeout;
        self.ask(|_, member: Arc<Member>| {
            let what = [only.to_owned()];
            let (at, scripts) = (at.clone(), Arc::clone(&self.scripts));
            async move {
                member.votes()?;
                votes::forced(&member.node.run(&scripts.force, &at, &what, limit).await?)
            }
        })
    }
}

/// An acquire.
struct Acquiring {
    sent: Arc<Sent>,
    guess: Option<FencingToken>,
    set: Weak<Set>,
}

impl Question<Vote> for Acquiring {
    fn read(&self, at: usize, outcome: Result<Value, NodeFailure>) -> Result<Vote, NodeFailure> {
        let vote = outcome.and_then(|answer| votes::vote(&answer, self.guess));
        let came = match &vote {
            Ok(Vote::Held(_) | Vote::Dead | Vote::Unseeded) => Came::ToNothing,
            Err(failure) if !failure.settled => Came::Unanswered,
            // It never left, or the node cannot serve anybody.
            Err(failure) if failure.error.kind() == ErrorKind::Unavailable => Came::ToNothing,
            // An answer that cannot be read may have been a yes.
            Ok(Vote::Granted { .. }) | Err(_) => Came::Answered,
        };
        let (owed, set) = (self.sent.told(at, came), self.set.upgrade());
        if let (Some(debt), Some(set)) = (owed, &set) {
            set.owes(at, debt);
        }
        if let (Ok(Vote::Unseeded), Some(member)) = (&vote, set.as_ref().and_then(|set| set.members.get(at))) {
            member.report_unseeded();
        }
        vote
    }
}

/// What may still arrive of a claim whose part is freed.
pub(crate) enum Arriving {
    /// Of a hold, which a majority granted: where its answer is awaited, it mostly comes before that of the release. The id is
    /// made dead only where it then does not come, or the release found nothing, as where it was first. So a release costs a slow
    /// node no more than the others.
    AfterHold(Arc<Sent>),
    /// Of an attempt that failed.
    AfterAttempt(Arc<Sent>),
    /// At every node, or at none.
    Anywhere(bool),
}

impl Arriving {
    pub(crate) fn after_hold(claim: &Claim, sent: &Arc<Sent>) -> Self {
        if Sent::is_all_of(claim) { Self::AfterHold(Arc::clone(sent)) } else { Self::Anywhere(claim.is_unanswered()) }
    }

    pub(crate) fn after_attempt(claim: &Claim, sent: &Arc<Sent>) -> Self {
        if Sent::is_all_of(claim) {
            Self::AfterAttempt(Arc::clone(sent))
        } else {
            Self::Anywhere(claim.is_unanswered())
        }
    }
}

/// A release, or an undo.
struct Freeing {
    id: ClaimId,
    keys: Arc<NameKeys>,
    arriving: Arriving,
    /// The nodes that were not asked to make the id dead, and had not answered the acquire.
    alive_at: Mutex<Vec<usize>>,
    longest: Duration,
    /// By then what is left has run out.
    until: Instant,
    set: Weak<Set>,
}

impl Freeing {
    /// What makes the id dead as well.
    fn debt(&self) -> Debt {
        let id = self.id.to_string();
        let keys = [self.keys.lock.clone(), self.keys.void(&id).concat()];
        Debt { keys, args: [id, millis(self.longest)], until: self.until }
    }
}

impl Question<bool> for Freeing {
    fn read(&self, at: usize, outcome: Result<Value, NodeFailure>) -> Result<bool, NodeFailure> {
        let freed = outcome.as_ref().is_ok_and(|answer| *answer == Value::Int(1));
        let owed = match (&outcome, &self.arriving) {
            (Err(failure), _) if failure.refused => None,
            (Err(_), Arriving::AfterHold(sent) | Arriving::AfterAttempt(sent))
                if sent.came(at) == Some(Came::ToNothing) =>
            {
                None
            }
            (Err(_), _) => Some(self.debt()),
            // Two calls may be under way, and a call that loads its script first is sent twice.
            (Ok(_), Arriving::AfterHold(sent)) if lock(&self.alive_at).contains(&at) => {
                sent.asked_to_free(at, freed, self.debt())
            }
            (Ok(_), _) => None,
        };
        if let (Some(debt), Some(set)) = (owed, self.set.upgrade()) {
            set.owes(at, debt);
        }
        outcome.map(|_| freed)
    }

    /// What was under way when it was asked for may have been answered since.
    fn instead(&self, at: usize) -> Option<(usize, NodeWords)> {
        let dies = match &self.arriving {
            Arriving::AfterHold(sent) => {
                let came = sent.came(at);
                if came.is_none() {
                    lock(&self.alive_at).push(at);
                }
                came == Some(Came::Unanswered)
            }
            Arriving::AfterAttempt(sent) => sent.came(at).is_none_or(|came| came == Came::Unanswered),
            Arriving::Anywhere(unanswered) => *unanswered,
        };
        dies.then(|| {
            let Debt { keys, args, .. } = self.debt();
            (FREE_DEAD, NodeWords::new(&keys, &args))
        })
    }
}

/// Whoever asks, and does not want to know.
struct Nobody;

impl Posts for Nobody {
    fn leaves(&self, _: usize) -> Leaving {
        Leaving::Posted
    }

    fn told(&self, _: usize, _: Result<Value, NodeFailure>) {}
}
