//! What is asked of each node about a lock, typed.

use crate::answers::Answers;
use crate::ask::{Posting, millis};
use crate::debts::Debt;
use crate::keys::{CLOSED, NameKeys};
use crate::member::Member;
use crate::scripts::{ACQUIRE, CONFIRM, FREE, PROPOSE};
use crate::set::{Set, lock};
use crate::votes::{self, Forced, Renewed, Reply, Vote};
use fencelock_core::group::Renewing;
use fencelock_core::{Claim, FencingToken};
use fencelock_redis::redis::Value;
use fencelock_redis::{NodeFailure, NodeWords, Posts};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// The shortest time for which an id stays dead.
const VOID: Duration = Duration::from_secs(60);

impl Set {
    /// Sends one acquire to each node that votes, with a number to propose if there is one: nothing here sends it
    /// again. The claim knows of each before it leaves. What has not left when the answers are dropped never does.
    pub(crate) fn acquire(
        &self,
        claim: &Claim,
        keys: &NameKeys,
        guess: Option<FencingToken>,
        limit: Duration,
    ) -> Answers<Vote> {
        let id = claim.id().to_string();
        let void = keys.void(&id);
        let (ttl, delay) = (millis(claim.server_ttl()), millis(claim.lock_delay()));
        let guess = guess.map_or_else(String::new, |guess| guess.to_string());
        let note = claim.note().map_or("", |note| note);
        let words = NodeWords::new(
            &[&keys.lock, &keys.fence, &void],
            &[id.as_str(), &ttl, claim.holder(), note, &delay, &guess],
        );
        let requests: Vec<_> = self.members.iter().map(|_| Some(claim.request())).collect();
        let (requests, set) = (Mutex::new(requests), Weak::clone(&self.itself));
        let read = move |at: usize, outcome: Result<Value, NodeFailure>| {
            let under_way = lock(&requests).get_mut(at).and_then(Option::take);
            if let Some(under_way) = under_way
                && outcome.as_ref().map_or_else(|failure| failure.settled, |_| true)
            {
                under_way.answered();
            }
            let vote = votes::vote(&outcome?)?;
            if vote == Vote::Unseeded
                && let Some(set) = set.upgrade()
                && let Some(member) = set.members.get(at)
            {
                member.report_unseeded();
            }
            Ok(vote)
        };
        self.post(Posting { script: ACQUIRE, words, limit }, Member::votes, read).only_while_wanted()
    }

    /// Proposes a token to each node, once: nothing here sends it again.
    pub(crate) fn propose(&self, id: &str, keys: &NameKeys, token: FencingToken, limit: Duration) -> Answers<Reply> {
        let words = NodeWords::new(&[&keys.fence, &keys.lock], &[token.to_string().as_str(), id]);
        let read = |_, outcome: Result<Value, NodeFailure>| votes::reply(&outcome?);
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

    /// Frees on each node what the claim holds, and makes the id dead there if `void`; true where it held.
    /// `ttl` is the longest that a node may keep it. Who does not answer is asked again, after this.
    pub(crate) fn free(&self, claim: &Claim, keys: &Arc<NameKeys>, ttl: Duration, void: bool) -> Answers<bool> {
        let id = claim.id();
        let longest = ttl.max(claim.server_ttl()).max(VOID);
        let until = Instant::now() + longest;
        let (text, void_for) = (id.to_string(), if void { millis(longest) } else { "0".to_owned() });
        let words = NodeWords::new(&[&keys.lock, &keys.void(&text)], &[&text, &void_for, &keys.channel]);
        let (keys, set) = (Arc::clone(keys), Weak::clone(&self.itself));
        let read = move |place, outcome: Result<Value, NodeFailure>| match outcome {
            Ok(answer) => Ok(answer == Value::Int(1)),
            Err(failure) => {
                if let (Some(set), false) = (set.upgrade(), failure.refused) {
                    let id = id.to_string();
                    let args = [id.clone(), millis(longest), keys.channel.clone()];
                    let keys = [keys.lock.clone(), keys.void(&id)];
                    set.owes(place, &id, Debt { keys, args, until });
                }
                Err(failure)
            }
        };
        // Where nothing was ever sent there is nothing to free.
        let was_sent = |member: &Member| match member.is_known() {
            true => Ok(()),
            false => member.votes().map_err(|mut failure| {
                failure.refused = true;
                failure
            }),
        };
        self.post(Posting { script: FREE, words, limit: self.config.request_timeout }, was_sent, read)
    }

    /// Who holds each node's part.
    pub(crate) fn inspect(&self, keys: &NameKeys) -> Answers<Value> {
        let (at, limit) = ([keys.lock.clone()], self.config.request_timeout);
        self.ask(|_, member| {
            let (at, scripts) = (at.clone(), Arc::clone(&self.scripts));
            async move {
                member.votes()?;
                member.node.run(&scripts.inspect, &at, &[CLOSED], limit).await
            }
        })
    }

    /// Ends the hold of each node's part, whoever has it.
    pub(crate) fn force(&self, keys: &NameKeys, only: &str) -> Answers<Forced> {
        let at = [keys.lock.clone(), keys.fence.clone()];
        let (channel, limit) = (keys.channel.clone(), self.config.request_timeout);
        self.ask(|_, member: Arc<Member>| {
            let what = [channel.clone(), CLOSED.to_owned(), only.to_owned()];
            let (at, scripts) = (at.clone(), Arc::clone(&self.scripts));
            async move {
                member.votes()?;
                votes::forced(&member.node.run(&scripts.force, &at, &what, limit).await?)
            }
        })
    }
}

/// Whoever asks, and does not want to know.
struct Nobody;

impl Posts for Nobody {
    fn leaves(&self, _: usize) -> bool {
        true
    }

    fn told(&self, _: usize, _: Result<Value, NodeFailure>) {}
}
