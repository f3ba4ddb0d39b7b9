//! Three scripts through redis-rs, each to all nodes at once: acquire with the token's number, a token where that was
//! not accepted or none is known, free.

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
    /// The largest counter that was told or proposed.
    known: Option<i64>,
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
        Ok(Box::new(Floored { nodes, scripts, lock, tag, id: String::new(), known: None }))
    }
}

impl Floored {
    /// Sends it to all nodes and waits until a majority has answered with something that is `good`, as the engine
    /// does; no good ones if a majority has not. The others that were told by then come after.
    async fn all(
        &self,
        which: fn(&Scripts) -> &Script,
        keys: &[&str],
        args: &[&str],
        good: fn(&redis::Value) -> bool,
    ) -> Result<(Vec<redis::Value>, Vec<redis::Value>)> {
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
        let (mut answers, mut others) = (Vec::new(), Vec::new());
        while answers.len() <= self.nodes.len() / 2 {
            let Some(answer) = asked.join_next().await else {
                others.append(&mut answers);
                break;
            };
            let answer = answer??;
            if good(&answer) { answers.push(answer) } else { others.push(answer) }
        }
        // The others' answers are not waited for.
        asked.detach_all();
        Ok((answers, others))
    }
}

/// Numbers, or numbers as texts.
fn number(value: &redis::Value) -> Option<i64> {
    redis::from_redis_value_ref(value).ok()
}

/// A part of an answer, as a number.
fn part(answer: &redis::Value, at: usize) -> Option<i64> {
    match answer {
        redis::Value::Array(parts) => parts.get(at).and_then(number),
        _ => None,
    }
}

/// Whether it is or begins with 1.
fn is_yes(answer: &redis::Value) -> bool {
    *answer == redis::Value::Int(1) || part(answer, 0) == Some(1)
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
        let guess = self.known.map(|known| known + 1);
        let number = guess.map_or_else(String::new, |guess| guess.to_string());
        let keeps = format!("{} {} 0 7 bench:1", self.id, guess.unwrap_or_default());
        let args = [keeps.as_str(), ttl.as_str(), number.as_str()];
        let keys = [&self.lock, fence.as_str(), void.as_str()];
        let (granted, others) = self.all(|scripts| &scripts.acquire, &keys, &args, is_yes).await?;
        let told = granted.iter().chain(&others).filter_map(|answer| part(answer, 1));
        self.known = told.chain(guess).chain(self.known).max();
        let (false, Some(newest)) = (granted.is_empty(), self.known) else { return Ok(false) };
        // Where that was accepted the answer is 1 alone.
        if guess.is_some() && granted.iter().all(|answer| *answer == redis::Value::Int(1)) {
            return Ok(true);
        }
        let token = newest + 1;
        self.known = Some(token);
        let token = token.to_string();
        let (accepted, _) =
            self.all(|scripts| &scripts.propose, &[&fence, &self.lock], &[&token, &self.id], is_yes).await?;
        Ok(!accepted.is_empty())
    }

    async fn release(&mut self) -> Result<()> {
        self.all(|scripts| &scripts.free, &[&self.lock], &[&self.id], |_| true).await?;
        Ok(())
    }
}
