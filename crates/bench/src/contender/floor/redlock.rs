//! Three scripts through redis-rs, each to all nodes at once: acquire, token, free.

use super::id;
use super::redis::open;
use crate::contender::{Contender, TTL, Task};
use crate::failure::Result;
use crate::server::Place;
use async_trait::async_trait;
use redis::Script;
use redis::aio::MultiplexedConnection;
use std::sync::Arc;
use tokio::task::JoinSet;

struct Floor {
    nodes: Vec<MultiplexedConnection>,
    scripts: Arc<Scripts>,
}

struct Scripts {
    acquire: Script,
    propose: Script,
    free: Script,
}

struct Floored {
    nodes: Vec<MultiplexedConnection>,
    scripts: Arc<Scripts>,
    lock: String,
    tag: String,
    id: String,
}

pub(super) async fn connect(place: &Place) -> Result<Box<dyn Contender>> {
    let mut nodes = Vec::new();
    for address in &place.addresses {
        nodes.push(open(address).await?);
    }
    let scripts = Arc::new(Scripts {
        acquire: Script::new(include_str!("redlock/acquire.lua")),
        propose: Script::new(include_str!("redlock/propose.lua")),
        free: Script::new(include_str!("redlock/free.lua")),
    });
    Ok(Box::new(Floor { nodes, scripts }))
}

#[async_trait]
impl Contender for Floor {
    async fn task(&self, name: &str) -> Result<Box<dyn Task>> {
        let tag = format!("floor:{{{name}}}:");
        // The engine takes no part without a counter; its own are made beforehand too.
        for node in &self.nodes {
            redis::cmd("SET").arg(format!("{tag}fence")).arg(1).exec_async(&mut node.clone()).await?;
        }
        let lock = format!("{tag}lock:{name}");
        let (nodes, scripts) = (self.nodes.clone(), Arc::clone(&self.scripts));
        Ok(Box::new(Floored { nodes, scripts, lock, tag, id: String::new() }))
    }
}

impl Floored {
    /// Sends it to all nodes and waits until a majority has answered with something that is `good`, as the engine
    /// does; no answers if a majority has not.
    async fn all(
        &self,
        which: fn(&Scripts) -> &Script,
        keys: &[&str],
        args: &[&str],
        good: fn(&redis::Value) -> bool,
    ) -> Result<Vec<redis::Value>> {
        let mut asked = JoinSet::new();
        for node in &self.nodes {
            let (mut node, scripts) = (node.clone(), Arc::clone(&self.scripts));
            let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
            let (keys, args) = (owned(keys), owned(args));
            asked.spawn(async move {
                let mut call = which(&scripts).prepare_invoke();
                for key in keys {
                    call.key(key);
                }
                for arg in args {
                    call.arg(arg);
                }
                call.invoke_async::<redis::Value>(&mut node).await
            });
        }
        let mut answers = Vec::new();
        while answers.len() <= self.nodes.len() / 2 {
            let Some(answer) = asked.join_next().await else { return Ok(Vec::new()) };
            let answer = answer??;
            if good(&answer) {
                answers.push(answer);
            }
        }
        // The others' answers are not waited for.
        asked.detach_all();
        Ok(answers)
    }
}

/// Numbers, or numbers as texts.
fn number(value: &redis::Value) -> Option<i64> {
    redis::from_redis_value_ref(value).ok()
}

/// Whether it begins with 1.
fn is_yes(answer: &redis::Value) -> bool {
    matches!(answer, redis::Value::Array(parts) if parts.first().and_then(number) == Some(1))
}

#[async_trait]
impl Task for Floored {
    async fn acquire(&mut self) -> Result<()> {
        if self.attempt().await? { Ok(()) } else { Err("it is held".into()) }
    }

    async fn attempt(&mut self) -> Result<bool> {
        self.id = format!("{:032x}", id());
        let (fence, void) = (format!("{}fence", self.tag), format!("{}void:{}", self.tag, self.id));
        let ttl = TTL.as_millis().to_string();
        let args = [&self.id, ttl.as_str(), "bench:1", "", "0"];
        let keys = [&self.lock, fence.as_str(), void.as_str()];
        let answers = self.all(|scripts| &scripts.acquire, &keys, &args, is_yes).await?;
        let counters = answers.iter().filter_map(|answer| match answer {
            redis::Value::Array(parts) => parts.get(1).and_then(number),
            _ => None,
        });
        let Some(newest) = counters.max() else { return Ok(false) };
        let token = newest + 1;
        let token = token.to_string();
        let accepted = self.all(|scripts| &scripts.propose, &[&fence, &self.lock], &[&token, &self.id], is_yes).await?;
        Ok(!accepted.is_empty())
    }

    async fn release(&mut self) -> Result<()> {
        let void = format!("{}void:{}", self.tag, self.id);
        let channel = format!("{}free", self.tag);
        self.all(|scripts| &scripts.free, &[&self.lock, &void], &[&self.id, "0", &channel], |_| true).await?;
        Ok(())
    }
}
