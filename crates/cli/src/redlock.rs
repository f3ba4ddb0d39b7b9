//! `fencelock redlock …`: what the operator of a set of Redis nodes does.

use crate::args::{Json, Options};
use crate::connect;
use crate::exit::{self, Failure, Outcome};
use crate::output::{answer, answer_json, clean, columns};
use clap::{Args, Subcommand};
use fencelock::memory::MemoryLock;
use fencelock::redlock::{NodeState, NodeStatus, RedlockConfig, RedlockOperator, SetStatus};
use fencelock::{DistributedLock, EngineUrl, ErrorKind, Registry};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

#[derive(Debug, Subcommand)]
pub(crate) enum Redlock {
    /// Make the counters of a new set of nodes, once, before the first lock is taken.
    #[command(after_help = "\
All nodes must answer. It can be run again: what is there already stays as it is,
but for counters below --token-base, which are raised to it.
It refuses where making a counter anew could repeat a fencing token.")]
    Init(Init),
    /// Show how each node stands.
    #[command(after_help = "Exits with 69 if no majority of nodes votes.")]
    Status(Json),
    /// Bring back a node that has lost its data, or replaces one that did.
    #[command(after_help = "\
It waits for the delay, then takes the counters from a majority of the others.
The delay must be longer than the longest ttl, with its lock delay, of any lock
in use: the node has forgotten its part of those that are held. At 4s at least
fencing tokens stay right; a shorter delay is refused. A node that came back with
older data, as from a snapshot, must be emptied first.")]
    Reseed(Reseed),
}

#[derive(Args, Debug)]
pub(crate) struct Init {
    /// Every token will be larger than this: the largest that another engine gave out.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    token_base: u64,
}

#[derive(Args, Debug)]
pub(crate) struct Reseed {
    /// The node, as `host:port`.
    node: String,
    /// How long to wait before the node votes again.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    after_delay: Duration,
}

pub(crate) async fn redlock(options: &Options, command: &Redlock) -> Outcome {
    let operator = RedlockOperator::new(RedlockConfig::from_url(&url(options).await?)?)?;
    match command {
        Redlock::Init(args) => {
            let made = operator.init(args.token_base).await?;
            answer(if made { "initialised\n" } else { "initialised already\n" })?;
            Ok(exit::OK)
        }
        Redlock::Status(json) => show(&operator.status().await?, *json),
        Redlock::Reseed(args) => {
            let done = operator.reseed(&args.node, args.after_delay).await?;
            let node = clean(&args.node);
            answer(&if done { format!("{node}: votes again\n") } else { format!("{node}: nothing is missing\n") })?;
            Ok(exit::OK)
        }
    }
}

/// The URL with everything that configuration adds to it, as the engine would get it.
async fn url(options: &Options) -> Result<EngineUrl, Failure> {
    let found: Arc<Mutex<Option<EngineUrl>>> = Arc::default();
    let seen = Arc::clone(&found);
    let registry = Registry::builtin().with("redlock", move |target| {
        *seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(target.url);
        // Nothing is connected: what the deployment gives is not asked here.
        std::future::ready(Ok(Arc::new(MemoryLock::new()) as Arc<dyn DistributedLock>))
    });
    let outcome = connect::builder(options)?.registry(registry).connect().await;
    let found = found.lock().unwrap_or_else(PoisonError::into_inner).take();
    match (found, outcome) {
        (Some(url), _) => Ok(url),
        (None, Err(e)) if e.kind() == ErrorKind::InvalidConfig => Err(e.into()),
        (None, _) => Err(Failure::new(exit::CONFIG, "this command is about `redlock://h1,h2,h3`; the URL is another")),
    }
}

fn show(status: &SetStatus, json: Json) -> Outcome {
    if json.wanted {
        answer_json(&as_json(status))?;
    } else {
        answer(&as_text(status))?;
    }
    Ok(if status.has_majority() { exit::OK } else { exit::UNAVAILABLE })
}

fn as_text(status: &SetStatus) -> String {
    let head = ["NODE", "STATE", "COUNTERS", "DURABLE", "REDIS", "SET", "TO DO"].map(str::to_owned);
    let rows = status.nodes.iter().map(|node| {
        let durable = node.durable.map_or("?", |durable| if durable { "yes" } else { "no" });
        let set = node.set.clone().unwrap_or_else(|| "-".to_owned());
        [
            node.address.clone(),
            node.state.to_string(),
            node.counters.to_string(),
            durable.to_owned(),
            node.version.clone(),
            set,
            clean(&to_do(status, node)),
        ]
    });
    let table = columns(&[head].into_iter().chain(rows).collect::<Vec<_>>());
    let (voting, all) = (status.voting(), status.nodes.len());
    let majority = if status.has_majority() { "a majority" } else { "no majority" };
    format!("{table}\n{voting} of {all} nodes vote in every shard: {majority}\n")
}

fn to_do(status: &SetStatus, node: &NodeStatus) -> String {
    if let Some(master) = &node.replica_of {
        return format!("a replica of {master}: name an independent server");
    }
    if let Some(twin) = &node.twin_of {
        return format!("the same server as {twin}: name an independent server");
    }
    if let Some(size) = node.set_size.filter(|_| !status.is_together(node)) {
        let named = status.nodes.len();
        return match size == named {
            true => "of another set than the others: name the nodes of one set".to_owned(),
            false => format!("its set has {size} nodes: name them all, and not {named}"),
        };
    }
    let in_use = status.nodes.iter().any(|node| node.state == NodeState::Ready);
    match &node.state {
        NodeState::Ready if node.counters == 65_536 => "-".to_owned(),
        NodeState::Empty if !in_use => "fencelock redlock init".to_owned(),
        NodeState::Begun => "fencelock redlock init".to_owned(),
        NodeState::Unreachable(why) => why.clone(),
        NodeState::Foreign(found) => format!("its keys have layout `{found}`"),
        _ => format!("fencelock redlock reseed {} --after-delay …", node.address),
    }
}

fn as_json(status: &SetStatus) -> Value {
    let nodes = status.nodes.iter().map(|node| {
        json!({
            "node": node.address,
            "state": node.state.to_string(),
            "counters": node.counters,
            "durable": node.durable,
            "version": node.version,
            "set": node.set,
            "set_size": node.set_size,
            "replica_of": node.replica_of,
            "twin_of": node.twin_of,
            "to_do": to_do(status, node),
        })
    });
    json!({
        "nodes": nodes.collect::<Vec<_>>(),
        "voting": status.voting(),
        "majority": status.has_majority(),
    })
}
