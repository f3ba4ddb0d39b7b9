//! The nodes together: what is asked of each, typed.

use crate::ask::{Answers, ask, millis};
use crate::config::RedlockConfig;
use crate::keys::{Keys, NameKeys};
use crate::meta::{Found, Record};
use crate::probe::{self, Facts};
use crate::scripts::Scripts;
use fencelock_core::{Claim, Error, ErrorKind, FencingToken, Guarantees, Result};
use fencelock_redis::redis::Value;
use fencelock_redis::{Node, NodeFailure};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Duration;

/// The shortest time for which an id stays dead.
const VOID: Duration = Duration::from_secs(60);

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) struct Set {
    pub(crate) config: RedlockConfig,
    pub(crate) keys: Keys,
    pub(crate) scripts: Arc<Scripts>,
    pub(crate) members: Vec<Arc<Member>>,
    /// The record that all ready nodes share, once it is known.
    record: Mutex<Option<Record>>,
    guarantees: RwLock<Option<Arc<Guarantees>>>,
}

pub(crate) struct Member {
    pub(crate) node: Node,
    facts: Mutex<Option<Facts>>,
    /// Why its answers do not count.
    barred: Mutex<Option<String>>,
    unseeded: AtomicBool,
}

/// What one node answered an acquire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Vote {
    /// The claim holds here; with the token that was noted before, if any.
    Granted { counter: u64, token: Option<FencingToken> },
    /// Another holds here; an empty id is another program's key.
    Held { counter: u64, left: Option<Duration>, id: Arc<str>, holder: Option<Arc<str>> },
    /// The id is dead here.
    Dead,
    /// The node has lost its counter, so it takes no part.
    Unseeded,
}

/// What one node answered a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// Accepted; and whether the token was noted with the claim's hold.
    Accepted {
        noted: bool,
    },
    /// The counter is not smaller.
    Refused(u64),
    Unseeded,
}

impl Set {
    /// The nodes of `config`, not connected yet.
    pub(crate) fn new(config: RedlockConfig) -> Result<Arc<Self>> {
        config.check()?;
        let nodes: Vec<_> = config.each().collect();
        let mut failure = None;
        let set = Arc::new_cyclic(|itself: &Weak<Self>| {
            let member = |(at, config)| {
                let set = Weak::clone(itself);
                let up = move || {
                    if let Some(set) = set.upgrade() {
                        tokio::spawn(async move { set.probe_again(at).await });
                    }
                };
                let node = Node::new(config, up).map_err(|e| failure = Some(e)).ok()?;
                let (facts, barred, unseeded) = Default::default();
                Some(Arc::new(Member { node, facts, barred, unseeded }))
            };
            let members = nodes.into_iter().enumerate().filter_map(member).collect();
            let (keys, scripts) = (Keys::new(&config.prefix), Arc::new(Scripts::new()));
            Self { config, keys, scripts, members, record: Mutex::default(), guarantees: RwLock::default() }
        });
        failure.map_or(Ok(set), Err)
    }

    pub(crate) fn size(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn majority(&self) -> usize {
        self.size() / 2 + 1
    }

    /// The longest that one node may take, for a hold of this ttl.
    pub(crate) fn limit(&self, ttl: Duration) -> Duration {
        self.config.request_timeout.min((ttl / 5).max(Duration::from_millis(20)))
    }

    pub(crate) fn guarantees(&self) -> Arc<Guarantees> {
        let known = self.guarantees.read().unwrap_or_else(PoisonError::into_inner).clone();
        known.unwrap_or_else(|| Arc::new(probe::nothing_known()))
    }

    /// Asks each node for its facts; what kept one from telling is in its place.
    pub(crate) async fn probe(&self) -> Vec<std::result::Result<Facts, NodeFailure>> {
        let mut answers = ask(self.members.iter().map(|member| {
            let (member, record, limit) = (Arc::clone(member), self.keys.record(), self.patience());
            async move { Facts::of(&member.node, record, limit).await }
        }));
        let mut found: Vec<_> = self.members.iter().map(|_| None).collect();
        while let Some((at, answer)) = answers.next().await {
            if let Some(place) = found.get_mut(at) {
                *place = Some(answer);
            }
        }
        found.into_iter().flatten().collect()
    }

    /// How long a question takes that is not about a lock.
    pub(crate) fn patience(&self) -> Duration {
        self.config.request_timeout.max(Duration::from_secs(1))
    }

    /// Keeps the facts, and the guarantees that follow from them.
    pub(crate) fn learn(&self, at: usize, facts: Facts) {
        if let Some(member) = self.members.get(at) {
            if facts.record.ready().is_some() {
                member.unseeded.store(false, Ordering::SeqCst);
            }
            *lock(&member.facts) = Some(facts);
        }
    }

    /// The record of the set that all ready nodes share.
    pub(crate) fn belongs_to(&self, record: Record) {
        *lock(&self.record) = Some(record);
    }

    /// Concludes what is guaranteed from the facts known.
    pub(crate) fn conclude(&self) -> Result<()> {
        let seats: Vec<_> =
            self.members.iter().map(|member| (member.node.address(), lock(&member.facts).clone())).collect();
        let found = probe::guarantees(&seats, &self.config.attested)?;
        let mut known = self.guarantees.write().unwrap_or_else(PoisonError::into_inner);
        if known.as_ref().is_some_and(|before| before.level() > found.level()) {
            tracing::warn!(target: "fencelock", event = "level_lowered", engine = "redlock",
                deployment = found.deployment(), "after a reconnect the deployment gives less than before");
        }
        *known = Some(Arc::new(found));
        Ok(())
    }

    /// A node has come back; it may be another than before.
    async fn probe_again(&self, at: usize) {
        let Some(record) = lock(&self.record).clone() else { return };
        let Some(member) = self.members.get(at) else { return };
        let Ok(facts) = Facts::of(&member.node, self.keys.record(), self.patience()).await else { return };
        let others = self.members.iter().enumerate().filter(|(other, _)| *other != at);
        let twin = others.filter_map(|(_, other)| {
            let same = facts.run_id().is_some() && lock(&other.facts).as_ref()?.run_id() == facts.run_id();
            same.then(|| other.node.address())
        });
        let barred = match (twin.min(), facts.replica_of(), &facts.record) {
            (Some(twin), ..) => Some(format!("it is the same server as {twin}")),
            (_, Some(master), _) => Some(format!("it is a replica of {master}")),
            (_, _, Found::Foreign(found)) => Some(format!("its keys have another layout: `{found}`")),
            (_, _, Found::Record(found)) if found.set != record.set => Some("it belongs to another set".to_owned()),
            _ => None,
        };
        if let Some(why) = &barred {
            tracing::warn!(target: "fencelock", event = "node_barred", engine = "redlock", node = member.node.address(),
                why, "this node's answers do not count");
        }
        *lock(&member.barred) = barred;
        self.learn(at, facts);
        let _ = self.conclude();
    }

    fn ask<T, F>(&self, question: impl Fn(Arc<Member>) -> F) -> Answers<T>
    where
        T: Send + 'static,
        F: Future<Output = std::result::Result<T, NodeFailure>> + Send + 'static,
    {
        ask(self.members.iter().map(|member| question(Arc::clone(member))))
    }

    /// Sends one acquire to each node. The claim knows of all of them before any leaves.
    pub(crate) fn acquire(&self, claim: &Claim, keys: &NameKeys, limit: Duration) -> Answers<Vote> {
        let id = claim.id().to_string();
        let at = [keys.lock.clone(), keys.fence.clone(), keys.void(&id)];
        let note = claim.note().map_or_else(String::new, ToString::to_string);
        let what = [id, millis(claim.server_ttl()), claim.holder().to_string(), note];
        self.ask(|member| {
            let (at, what, scripts) = (at.clone(), what.clone(), Arc::clone(&self.scripts));
            let under_way = claim.request();
            async move {
                let outcome = match member.bar() {
                    Ok(()) => member.node.run(&scripts.acquire, &at, &what, limit).await,
                    Err(failure) => Err(failure),
                };
                if outcome.as_ref().map_or_else(|failure| failure.settled, |_| true) {
                    under_way.answered();
                }
                let vote = vote(&outcome?)?;
                if vote == Vote::Unseeded {
                    member.report_unseeded();
                }
                Ok(vote)
            }
        })
    }

    /// Proposes a token to each node, once: nothing here sends it again.
    pub(crate) fn propose(&self, id: &str, keys: &NameKeys, token: FencingToken, limit: Duration) -> Answers<Reply> {
        let (at, what) = ([keys.fence.clone(), keys.lock.clone()], [token.to_string(), id.to_owned()]);
        self.ask(|member| {
            let (at, what, scripts) = (at.clone(), what.clone(), Arc::clone(&self.scripts));
            async move {
                member.bar()?;
                reply(&member.node.run(&scripts.propose, &at, &what, limit).await?)
            }
        })
    }

    /// Notes an accepted token with the hold on one node, whose counter had refused it.
    pub(crate) fn confirm(&self, at: usize, id: &str, keys: &NameKeys, token: FencingToken, limit: Duration) {
        let Some(member) = self.members.get(at).map(Arc::clone) else { return };
        let (at, what, scripts) = ([keys.lock.clone()], [token.to_string(), id.to_owned()], Arc::clone(&self.scripts));
        tokio::spawn(async move {
            let _ = member.node.run(&scripts.confirm, &at, &what, limit).await;
        });
    }

    /// Renews on each node; true where it was still held so.
    pub(crate) fn renew(&self, claim: &Claim, keys: &NameKeys, token: FencingToken, ttl: Duration) -> Answers<bool> {
        let limit = self.limit(ttl);
        let (at, what) = ([keys.lock.clone()], [claim.id().to_string(), token.to_string(), millis(ttl)]);
        self.ask(|member| {
            let (at, what, scripts) = (at.clone(), what.clone(), Arc::clone(&self.scripts));
            async move {
                member.bar()?;
                Ok(member.node.run(&scripts.renew, &at, &what, limit).await? == Value::Int(1))
            }
        })
    }

    /// Frees on each node what the claim holds, and makes the id dead there if `void`; true where it held.
    pub(crate) fn free(&self, claim: &Claim, keys: &NameKeys, void: bool) -> Answers<bool> {
        let id = claim.id().to_string();
        let ttl = if void { millis(claim.server_ttl().max(VOID)) } else { "0".to_owned() };
        let (at, what) = ([keys.lock.clone(), keys.void(&id)], [id, ttl, keys.channel.clone()]);
        let limit = self.config.request_timeout;
        self.ask(|member| {
            let (at, what, scripts) = (at.clone(), what.clone(), Arc::clone(&self.scripts));
            async move { Ok(member.node.run(&scripts.free, &at, &what, limit).await? == Value::Int(1)) }
        })
    }

    /// Who holds each node's part.
    pub(crate) fn inspect(&self, keys: &NameKeys) -> Answers<Value> {
        let (at, limit) = ([keys.lock.clone()], self.config.request_timeout);
        self.ask(|member| {
            let (at, scripts) = (at.clone(), Arc::clone(&self.scripts));
            async move {
                member.bar()?;
                let none: [&str; 0] = [];
                member.node.run(&scripts.inspect, &at, &none, limit).await
            }
        })
    }

    /// Frees each node's part, whoever holds it.
    pub(crate) fn force(&self, keys: &NameKeys) -> Answers<i64> {
        let (at, what, limit) = ([keys.lock.clone()], [keys.channel.clone()], self.config.request_timeout);
        self.ask(|member| {
            let (at, what, scripts) = (at.clone(), what.clone(), Arc::clone(&self.scripts));
            async move {
                match member.node.run(&scripts.force, &at, &what, limit).await? {
                    Value::Int(answer) => Ok(answer),
                    _ => Err(odd_answer()),
                }
            }
        })
    }
}

impl Member {
    fn bar(&self) -> std::result::Result<(), NodeFailure> {
        match &*lock(&self.barred) {
            None => Ok(()),
            Some(why) => Err(failure(ErrorKind::Unavailable, format!("{} does not count: {why}", self.node.address()))),
        }
    }

    /// Once, until it has its counters again.
    fn report_unseeded(&self) {
        if !self.unseeded.swap(true, Ordering::SeqCst) {
            tracing::warn!(target: "fencelock", event = "node_unseeded", engine = "redlock", node = self.node.address(),
                "this node has lost its counters and does not vote; see `fencelock redlock reseed`");
        }
    }
}

fn failure(kind: ErrorKind, message: impl Into<std::borrow::Cow<'static, str>>) -> NodeFailure {
    NodeFailure::settled(Error::new(kind, message).with_engine("redlock"))
}

pub(crate) fn odd_answer() -> NodeFailure {
    failure(ErrorKind::Engine, "an answer of a shape that was not asked for")
}

fn vote(value: &Value) -> std::result::Result<Vote, NodeFailure> {
    let Value::Array(parts) = value else { return Err(odd_answer()) };
    match parts.as_slice() {
        [Value::Int(1), counter, token] => {
            let token = text(token).filter(|token| !token.is_empty());
            let token = token.map(|token| token.parse().map(FencingToken::new)).transpose();
            Ok(Vote::Granted { counter: number(counter)?, token: token.map_err(|_| odd_answer())? })
        }
        [Value::Int(0), counter, Value::Int(left), id, holder] => Ok(Vote::Held {
            counter: number(counter)?,
            left: duration(*left),
            id: text(id).unwrap_or_default(),
            holder: text(holder).filter(|holder| !holder.is_empty()),
        }),
        [Value::Int(-1)] => Ok(Vote::Dead),
        [Value::Int(-2)] => Ok(Vote::Unseeded),
        _ => Err(odd_answer()),
    }
}

fn reply(value: &Value) -> std::result::Result<Reply, NodeFailure> {
    let Value::Array(parts) = value else { return Err(odd_answer()) };
    match parts.as_slice() {
        [Value::Int(1), Value::Int(noted)] => Ok(Reply::Accepted { noted: *noted == 1 }),
        [Value::Int(0), counter] => Ok(Reply::Refused(number(counter)?)),
        [Value::Int(-2)] => Ok(Reply::Unseeded),
        _ => Err(odd_answer()),
    }
}

/// Milliseconds left; a key without an end has none.
pub(crate) fn duration(left: i64) -> Option<Duration> {
    u64::try_from(left).ok().map(Duration::from_millis)
}

pub(crate) fn text(value: &Value) -> Option<Arc<str>> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into()),
        _ => None,
    }
}

pub(crate) fn number(value: &Value) -> std::result::Result<u64, NodeFailure> {
    text(value).and_then(|text| text.parse().ok()).ok_or_else(odd_answer)
}

impl fmt::Debug for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes: Vec<_> = self.members.iter().map(|member| &member.node).collect();
        f.debug_struct("Set").field("config", &self.config).field("nodes", &nodes).finish_non_exhaustive()
    }
}
