//! What an operator does with a set of nodes: makes its counters once, and looks after them.

use crate::admit::{address, foreign, independent, refused, sized};
use crate::ask::here;
use crate::config::RedlockConfig;
use crate::keys::SHARDS;
use crate::member::{Member, odd_answer};
use crate::meta::{Found, Record, State};
use crate::probe::Facts;
use crate::set::Set;
use fencelock_core::{Error, ErrorKind, Result};
use fencelock_redis::NodeScript;
use fencelock_redis::redis::{self, Value};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How many counters one command is about: it keeps a node busy for a few milliseconds.
pub(crate) const BATCH: u32 = 1_024;
/// The largest `token_base`: Lua's numbers are exact below twice this.
const MAX_TOKEN_BASE: u64 = 1 << 52;

/// A set of nodes as its operator sees it. Takes no locks.
///
/// Every method may be run again after it failed, or was interrupted.
pub struct RedlockOperator {
    pub(crate) set: Arc<Set>,
}

/// How a node stands in its set.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeState {
    /// It has its counters, and votes.
    Ready,
    /// It was never initialised, or has lost its data. It does not vote.
    Empty,
    /// `init` was interrupted: run it again.
    Begun,
    /// `reseed` is at work, or was interrupted: run it again.
    Reseeding,
    /// Its keys are of another version or program; what was found.
    Foreign(String),
    /// It did not answer; why.
    Unreachable(String),
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => f.write_str("ready"),
            Self::Empty => f.write_str("empty"),
            Self::Begun => f.write_str("begun"),
            Self::Reseeding => f.write_str("reseeding"),
            Self::Foreign(_) => f.write_str("foreign"),
            Self::Unreachable(_) => f.write_str("unreachable"),
        }
    }
}

/// One node, as [`RedlockOperator::status`] found it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeStatus {
    /// `host:port`.
    pub address: String,
    /// How it stands in its set.
    pub state: NodeState,
    /// The set it belongs to, where it does.
    pub set: Option<String>,
    /// How many nodes that set was made of.
    pub set_size: Option<usize>,
    /// How many of its 65,536 counters it has. In a shard without one it does not vote.
    pub counters: u32,
    /// The version of Redis.
    pub version: String,
    /// The master that it copies, if it is a replica, which it must not be.
    pub replica_of: Option<String>,
    /// The node before it that is the same server, which must not be.
    pub twin_of: Option<String>,
    /// Whether every write is on disk before it is answered, where the node tells.
    pub durable: Option<bool>,
}

impl NodeStatus {
    fn silent(address: String) -> Self {
        let (set, set_size, replica_of, twin_of, durable) = Default::default();
        let (state, version) = (NodeState::Empty, "-".to_owned());
        Self { address, state, set, set_size, counters: 0, version, replica_of, twin_of, durable }
    }

    fn tells(&mut self, facts: &Facts) {
        self.state = match &facts.record {
            Found::Nothing => NodeState::Empty,
            Found::Foreign(layout) => NodeState::Foreign(layout.clone()),
            Found::Record(record) => match record.state {
                State::Begun => NodeState::Begun,
                State::Reseeding => NodeState::Reseeding,
                State::Ready => NodeState::Ready,
            },
        };
        if let Found::Record(record) = &facts.record {
            (self.set, self.set_size) = (Some(record.set.clone()), Some(record.nodes));
        }
        (self.version, self.replica_of) = (facts.version().to_owned(), facts.replica_of());
        self.durable = facts.is_durable();
    }
}

/// All nodes, as [`RedlockOperator::status`] found them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SetStatus {
    /// In the order of the configuration.
    pub nodes: Vec<NodeStatus>,
}

impl SetStatus {
    /// How many nodes vote together in every shard: with all their counters, in one set
    /// of as many nodes as are named, and each a server of its own.
    #[must_use]
    pub fn voting(&self) -> usize {
        self.nodes.iter().filter(|node| self.votes(node)).count()
    }

    fn votes(&self, node: &NodeStatus) -> bool {
        let whole = node.state == NodeState::Ready && node.counters == SHARDS;
        whole && node.replica_of.is_none() && node.twin_of.is_none() && self.is_together(node)
    }

    /// Whether the node belongs to the set of most, and that has as many nodes as are named.
    #[must_use]
    pub fn is_together(&self, node: &NodeStatus) -> bool {
        let members = |set: &Option<String>| self.nodes.iter().filter(|other| other.set == *set).count();
        let most = self.nodes.iter().filter(|node| node.set.is_some()).map(|node| members(&node.set)).max();
        node.set.is_some() && Some(members(&node.set)) == most && node.set_size == Some(self.nodes.len())
    }

    /// Whether locks can be taken: a majority votes.
    #[must_use]
    pub fn has_majority(&self) -> bool {
        self.voting() > self.nodes.len() / 2
    }
}

impl RedlockOperator {
    /// The set that `config` names. Nothing is connected yet. Belongs to the runtime it is made in.
    ///
    /// # Errors
    /// `InvalidConfig` if a setting is wrong, or the runtime has no timers; `Unavailable` outside a runtime.
    pub fn new(config: RedlockConfig) -> Result<Self> {
        Ok(Self { set: Set::new(config)? })
    }

    /// Makes the counters of a new set; true if there was anything to do. Every token will be
    /// larger than `token_base`, as it must be where another engine gave out tokens before: on a
    /// set that is in use, every token of an acquire that begins when this is done.
    ///
    /// Never makes a counter on a node of a set that is in use, which could repeat tokens.
    ///
    /// # Errors
    /// `Unavailable` if a node does not answer: all must. `Refused` if the nodes are not
    /// independent, belong to different sets, or one of a set in use has lost its counters.
    ///
    /// # Cancel safety
    /// What was dropped midway is finished by running it again.
    pub async fn init(&self, token_base: u64) -> Result<bool> {
        let told = |e: Error| e.with_engine("redlock").with_operation("init");
        self.make(token_base).await.map_err(told)
    }

    async fn make(&self, token_base: u64) -> Result<bool> {
        here()?;
        let set = &self.set;
        if token_base > MAX_TOKEN_BASE {
            let message = "`token_base` is at most 4503599627370496 (2^52), so that Redis can count exactly";
            return Err(Error::new(ErrorKind::InvalidConfig, message));
        }
        let found = self.all().await?;
        let (record, ready) = self.agreed(&found)?;
        if ready == 0 {
            for (at, facts) in found.iter().enumerate() {
                if facts.record == Found::Nothing {
                    if self.counters(at).await? > 0 {
                        return Err(refused(format!(
                            "{} has counters and no record of its set: it was in use; delete its `fence` keys only if no token is",
                            address(set, at)
                        )));
                    }
                    self.enter(at, None, &record.with(State::Begun)).await?;
                }
            }
            let base = vec![token_base; BATCH as usize];
            for at in 0..set.size() {
                for first in (0..SHARDS).step_by(BATCH as usize) {
                    self.seed(at, &record.with(State::Begun), first, &base).await?;
                }
            }
        }
        // Every node has its counters: only now may any vote, and none is made after this.
        for (at, facts) in found.iter().enumerate() {
            if facts.record.ready().is_none() {
                self.enter(at, Some(&record.with(State::Begun)), &record.with(State::Ready)).await?;
            }
        }
        // Those that were there already may be smaller; a counter may grow at any time.
        let raised = ready > 0 && token_base > 0 && self.raise_all(&record.with(State::Ready), token_base).await?;
        Ok(ready < set.size() || raised)
    }

    /// Raises all counters to `least`, on all nodes; true if one was smaller.
    async fn raise_all(&self, record: &Record, least: u64) -> Result<bool> {
        let mut any = false;
        for at in 0..self.set.size() {
            for first in (0..SHARDS).step_by(BATCH as usize) {
                let args = [record.to_string(), least.to_string()];
                any |= self.count(at, &self.set.scripts.raise, first, &args).await? > 0;
            }
        }
        Ok(any)
    }

    /// The facts of all nodes, which must be independent.
    async fn all(&self) -> Result<Vec<Facts>> {
        let found = self.set.probe().await;
        independent(&self.set, &found)?;
        let mut facts = Vec::new();
        for (at, found) in found.into_iter().enumerate() {
            facts.push(found.map_err(|failure| {
                let message = format!("{} must answer too: {}", address(&self.set, at), failure.error.message());
                Error::new(failure.error.kind(), message)
            })?);
        }
        Ok(facts)
    }

    /// The record of the set to be made, or that was made, and how many nodes are ready for it.
    fn agreed(&self, found: &[Facts]) -> Result<(Record, usize)> {
        let set = &self.set;
        let mut known: Option<&Record> = None;
        let (mut ready, mut lost) = (0, None);
        for (at, facts) in found.iter().enumerate() {
            let record = match &facts.record {
                Found::Foreign(layout) => return Err(foreign(set, at, layout)),
                Found::Nothing => {
                    lost = lost.or(Some(at));
                    continue;
                }
                Found::Record(record) => record,
            };
            if known.is_some_and(|known| known.set != record.set) {
                return Err(refused(format!(
                    "{} belongs to another set than the nodes before it: name the nodes of one set, or empty those of the other",
                    address(set, at)
                )));
            }
            known = Some(record);
            match record.state {
                State::Ready => ready += 1,
                State::Reseeding => lost = lost.or(Some(at)),
                State::Begun => {}
            }
        }
        let reseeding =
            found.iter().any(|facts| matches!(&facts.record, Found::Record(r) if r.state == State::Reseeding));
        if let Some(at) = lost.filter(|_| ready > 0 || reseeding) {
            let node = address(set, at);
            return Err(refused(format!(
                "{node} has no counters, and others of its set are in use: making them anew could repeat tokens; \
                 run `fencelock redlock reseed {node} --after-delay …`"
            )));
        }
        let record = match known {
            Some(record) => record.clone(),
            None => Record { state: State::Begun, set: new_set()?, nodes: set.size() },
        };
        sized(set, &record)?;
        Ok((record, ready))
    }

    /// How each node stands.
    ///
    /// # Errors
    /// None of a single node: that is part of the answer. `Unavailable` outside a runtime.
    ///
    /// # Cancel safety
    /// It only asks.
    pub async fn status(&self) -> Result<SetStatus> {
        here().map_err(|e| e.with_operation("status"))?;
        let mut nodes = Vec::new();
        let mut servers: HashMap<String, String> = HashMap::new();
        for (at, found) in self.set.probe().await.into_iter().enumerate() {
            let mut node = NodeStatus::silent(address(&self.set, at));
            match found {
                Ok(facts) => {
                    node.tells(&facts);
                    match self.counters(at).await {
                        Ok(counters) => node.counters = counters,
                        Err(e) => node.state = NodeState::Unreachable(format!("its counters: {}", e.message())),
                    }
                    node.twin_of = facts.run_id().and_then(|run_id| servers.get(run_id).cloned());
                    if let Some(run_id) = facts.run_id() {
                        servers.entry(run_id.to_owned()).or_insert_with(|| node.address.clone());
                    }
                }
                Err(failure) => node.state = NodeState::Unreachable(failure.error.message().to_owned()),
            }
            nodes.push(node);
        }
        Ok(SetStatus { nodes })
    }

    pub(crate) fn member(&self, at: usize) -> Result<&Arc<Member>> {
        self.set.members.get(at).ok_or_else(|| Error::new(ErrorKind::Engine, "no such node"))
    }

    /// How many counters the node has.
    pub(crate) async fn counters(&self, at: usize) -> Result<u32> {
        let mut count = 0;
        for first in (0..SHARDS).step_by(BATCH as usize) {
            let mut exists = redis::cmd("EXISTS");
            exists.arg(self.fences(first));
            match self.member(at)?.node.call(&exists, self.patience()).await? {
                Value::Int(there) => count += u32::try_from(there).unwrap_or(0),
                _ => return Err(odd_answer().into()),
            }
        }
        Ok(count)
    }

    pub(crate) fn fences(&self, first: u32) -> Vec<String> {
        (first..first.saturating_add(BATCH).min(SHARDS)).map(|shard| self.set.keys.fence(shard)).collect()
    }

    /// Replaces the node's record, if it is as expected.
    pub(crate) async fn enter(&self, at: usize, expected: Option<&Record>, record: &Record) -> Result<()> {
        let expected = expected.map_or_else(String::new, Record::to_string);
        let args = [expected, record.to_string()];
        let answer = self
            .member(at)?
            .node
            .run(&self.set.scripts.record, &[self.set.keys.record()], &args, self.patience())
            .await?;
        match &answer {
            Value::Array(parts) if parts.as_slice() == [Value::Int(1)] => Ok(()),
            _ => Err(refused(format!(
                "the record of {} has changed meanwhile: is somebody else at work on this set? Run it again",
                address(&self.set, at)
            ))),
        }
    }

    /// Gives counters of a batch these least values, while the node's record is as expected.
    pub(crate) async fn seed(&self, at: usize, expected: &Record, first: u32, values: &[u64]) -> Result<()> {
        let mut args = vec![expected.to_string()];
        args.extend(values.iter().map(ToString::to_string));
        self.count(at, &self.set.scripts.seed, first, &args).await.map(drop)
    }

    /// Runs a script on the counters of a batch, while the node's record is as expected; how many it counted.
    async fn count(&self, at: usize, script: &NodeScript, first: u32, args: &[String]) -> Result<i64> {
        let mut keys = vec![self.set.keys.record()];
        keys.extend(self.fences(first));
        match self.member(at)?.node.run(script, &keys, args, self.patience()).await? {
            Value::Int(count) if count >= 0 => Ok(count),
            Value::Int(_) => Err(refused(format!(
                "the record of {} has changed meanwhile: it lost its data, or somebody else is at work; run it again",
                address(&self.set, at)
            ))),
            _ => Err(odd_answer().into()),
        }
    }

    /// Many keys at once take longer than one lock.
    pub(crate) fn patience(&self) -> Duration {
        self.set.patience() * 5
    }
}

fn new_set() -> Result<String> {
    let mut bytes = [0; 8];
    match getrandom::fill(&mut bytes) {
        Ok(()) => Ok(format!("{:016x}", u64::from_be_bytes(bytes))),
        Err(e) => Err(Error::new(ErrorKind::Engine, "the system gave no random bytes").with_source(e)),
    }
}

impl fmt::Debug for RedlockOperator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedlockOperator").field(&self.set).finish()
    }
}
