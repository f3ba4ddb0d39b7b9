//! What is asked of each node about a lock, typed.

use crate::ask::{Answers, millis};
use crate::debts::Debt;
use crate::keys::{CLOSED, NameKeys};
use crate::member::Member;
use crate::scripts::{ACQUIRE, CONFIRM, FREE, PROPOSE};
use crate::set::Set;
use crate::votes::{self, Forced, Renewed, Reply, Vote};
use fencelock_core::group::Renewing;
use fencelock_core::{Claim, FencingToken};
use fencelock_redis::redis::Value;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// The shortest time for which an id stays dead.
const VOID: Duration = Duration::from_secs(60);

impl Set {
    /// Sends one acquire to each node that votes, with a number to propose if there is one: nothing here sends it
    /// again. The claim knows of each before it leaves.
    pub(crate) fn acquire(
        &self,
        claim: &Claim,
        keys: &NameKeys,
        guess: Option<FencingToken>,
        limit: Duration,
    ) -> Answers<Vote> {
        let id = claim.id().to_string();
        let at = Arc::new([keys.lock.clone(), keys.fence.clone(), keys.void(&id)]);
        let note = claim.note().map_or_else(String::new, ToString::to_string);
        let (ttl, delay) = (millis(claim.server_ttl()), millis(claim.lock_delay()));
        let guess = guess.map_or_else(String::new, |guess| guess.to_string());
        let what = Arc::new([id, ttl, claim.holder().to_string(), note, delay, guess]);
        self.ask(|_, member| {
            let (at, what) = (Arc::clone(&at), Arc::clone(&what));
            let under_way = claim.request();
            async move {
                let outcome = match member.votes() {
                    Ok(()) => member.node.run_together(ACQUIRE, &*at, &*what, limit).await,
                    Err(failure) => Err(failure),
                };
                if outcome.as_ref().map_or_else(|failure| failure.settled, |_| true) {
                    under_way.answered();
                }
                let vote = votes::vote(&outcome?)?;
                if vote == Vote::Unseeded {
                    member.report_unseeded();
                }
                Ok(vote)
            }
        })
    }

    /// Proposes a token to each node, once: nothing here sends it again.
    pub(crate) fn propose(&self, id: &str, keys: &NameKeys, token: FencingToken, limit: Duration) -> Answers<Reply> {
        let at = Arc::new([keys.fence.clone(), keys.lock.clone()]);
        let what = Arc::new([token.to_string(), id.to_owned()]);
        self.ask(|_, member| {
            let (at, what) = (Arc::clone(&at), Arc::clone(&what));
            async move {
                member.votes()?;
                votes::reply(&member.node.run_together(PROPOSE, &*at, &*what, limit).await?)
            }
        })
    }

    /// Notes an accepted token with the hold on one node, where that was not done yet.
    pub(crate) fn confirm(&self, at: usize, id: &str, lock: &str, token: FencingToken) {
        let Some(member) = self.members.get(at).map(Arc::clone) else { return };
        let (at, what) = ([lock.to_owned()], [token.to_string(), id.to_owned()]);
        let limit = self.config.request_timeout;
        tokio::spawn(async move {
            let _ = member.node.run_together(CONFIRM, &at, &what, limit).await;
        });
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
    pub(crate) fn free(&self, claim: &Claim, keys: &NameKeys, ttl: Duration, void: bool) -> Answers<bool> {
        let id = claim.id().to_string();
        let longest = ttl.max(claim.server_ttl()).max(VOID);
        let at = Arc::new([keys.lock.clone(), keys.void(&id)]);
        let until = Instant::now() + longest;
        let limit = self.config.request_timeout;
        let (void_for, channel) = (millis(longest), keys.channel.clone());
        self.ask(|place, member| {
            let (at, set) = (Arc::clone(&at), Weak::clone(&self.itself));
            let (id, void_for, channel) = (id.clone(), void_for.clone(), channel.clone());
            async move {
                if !member.is_known() {
                    member.votes()?; // nothing was ever sent there
                }
                let what = [id, if void { void_for.clone() } else { "0".to_owned() }, channel];
                match member.node.run_together(FREE, &*at, &what, limit).await {
                    Ok(answer) => Ok(answer == Value::Int(1)),
                    Err(failure) => {
                        if let (Some(set), false) = (set.upgrade(), failure.refused) {
                            let [id, _, channel] = what;
                            let (keys, args) = ((*at).clone(), [id.clone(), void_for, channel]);
                            set.owes(place, &id, Debt { keys, args, until });
                        }
                        Err(failure)
                    }
                }
            }
        })
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
