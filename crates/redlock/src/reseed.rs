//! Bringing a node back that has lost its counters.
//!
//! The counters of the others are not enough by themselves: a proposal that the
//! node had accepted before it forgot may still be under way, and the node would
//! accept the same number again. So it waits until every attempt that may have
//! counted it is over, and only then reads. (`tests/model.rs` finds the repeated
//! token where it does not wait.)

use crate::admit::{address, foreign, independent, refused, sized};
use crate::ask::here;
use crate::engine::LONGEST_ATTEMPT;
use crate::keys::SHARDS;
use crate::member::odd_answer;
use crate::meta::{Found, Record, State};
use crate::operate::{BATCH, RedlockOperator};
use crate::votes::text;
use fencelock_core::{Error, ErrorKind, Result};
use fencelock_redis::redis::{self, Value};
use std::time::Duration;

impl RedlockOperator {
    /// The shortest delay that keeps tokens right: the longest attempt, and a third of it
    /// for clocks that differ.
    pub const LEAST_DELAY: Duration = LONGEST_ATTEMPT.saturating_add(Duration::from_secs(1));

    /// Gives the node at `address` its counters back, from those of a majority of the
    /// others, after `delay`; true if there was anything to do.
    ///
    /// A delay of [`LEAST_DELAY`](Self::LEAST_DELAY) keeps tokens right. For exclusion
    /// it must also be longer than the longest ttl (with its lock delay) in use: the
    /// node has forgotten its part of the locks that are held.
    ///
    /// # Errors
    /// `InvalidConfig` if the node is not of the set or the delay is too short;
    /// `Unavailable` if it, or a majority of others with counters, does not answer;
    /// `Refused` if the nodes are not independent, or belong to different sets.
    ///
    /// # Cancel safety
    /// What was dropped midway is finished by running it again.
    pub async fn reseed(&self, address: &str, delay: Duration) -> Result<bool> {
        let told = |e: Error| e.with_engine("redlock").with_operation("reseed");
        self.bring_back(address, delay).await.map_err(told)
    }

    async fn bring_back(&self, node: &str, delay: Duration) -> Result<bool> {
        here()?;
        if delay < Self::LEAST_DELAY {
            let message = format!(
                "the delay is {:?} at least: an attempt that this node took part in before it forgot must be over",
                Self::LEAST_DELAY
            );
            return Err(Error::new(ErrorKind::InvalidConfig, message));
        }
        let set = &self.set;
        let Some(at) = set.members.iter().position(|member| member.node.address() == node) else {
            let nodes: Vec<_> = set.members.iter().map(|member| member.node.address()).collect();
            let message = format!("`{node}` is none of the nodes: {}", nodes.join(", "));
            return Err(Error::new(ErrorKind::InvalidConfig, message));
        };
        let (record, mut others) = self.others(at).await?;
        let (found, whole) = self.own(at, &record).await?;
        if whole {
            return Ok(false);
        }
        let reseeding = record.with(State::Reseeding);
        self.enter(at, found.as_ref(), &reseeding).await?;
        tokio::time::sleep(delay).await;
        for first in (0..SHARDS).step_by(BATCH as usize) {
            let largest = self.largest(&mut others, first).await?;
            self.seed(at, &reseeding, first, &largest).await?;
        }
        self.enter(at, Some(&reseeding), &record.with(State::Ready)).await?;
        Ok(true)
    }

    /// The set's record, and which nodes other than `at` are ready: a majority of all.
    async fn others(&self, at: usize) -> Result<(Record, Vec<usize>)> {
        let set = &self.set;
        let found = set.probe().await;
        independent(set, &found)?;
        let mut known: Option<Record> = None;
        let mut others = Vec::new();
        for (other, facts) in found.iter().enumerate() {
            let Ok(facts) = facts else { continue };
            if let Found::Foreign(layout) = &facts.record {
                return Err(foreign(set, other, layout));
            }
            let Some(record) = facts.record.ready().filter(|_| other != at) else { continue };
            if known.as_ref().is_some_and(|known| known.set != record.set) {
                return Err(refused(format!("{} belongs to another set", address(set, other))));
            }
            known = Some(record.clone());
            others.push(other);
        }
        match known {
            Some(record) if others.len() >= set.majority() => {
                sized(set, &record)?;
                Ok((record, others))
            }
            _ => {
                let message = format!(
                    "{} other nodes with counters answer, and {} are needed: nobody else knows which tokens were given out",
                    others.len(),
                    set.majority()
                );
                Err(Error::new(ErrorKind::Unavailable, message))
            }
        }
    }

    /// The node's own record now, and whether nothing is missing there.
    async fn own(&self, at: usize, record: &Record) -> Result<(Option<Record>, bool)> {
        let node = address(&self.set, at);
        let mut get = redis::cmd("GET");
        get.arg(self.set.keys.record());
        let answer = self.member(at)?.node.call(&get, self.patience()).await?;
        let found = match Found::read(text(&answer).as_deref()) {
            Found::Nothing => None,
            Found::Foreign(layout) => return Err(foreign(&self.set, at, &layout)),
            Found::Record(found) if found.set != record.set => {
                return Err(refused(format!("{node} belongs to another set; empty it first")));
            }
            Found::Record(found) => Some(found),
        };
        match found.as_ref().map(|found| found.state) {
            Some(State::Begun) => Err(refused(format!("`init` was interrupted before {node} was ready: run it again"))),
            Some(State::Ready) => Ok((found, self.counters(at).await? == SHARDS)),
            Some(State::Reseeding) | None => Ok((found, false)),
        }
    }

    /// The largest value of each counter of a batch, of a majority of nodes. Who fails is asked no more.
    async fn largest(&self, others: &mut Vec<usize>, first: u32) -> Result<Vec<u64>> {
        let fences = self.fences(first);
        let mut largest: Vec<(usize, u64)> = vec![(0, 0); fences.len()];
        let mut failed = None;
        for other in std::mem::take(others) {
            match self.values(other, &fences).await {
                Ok(values) => {
                    others.push(other);
                    for (place, value) in largest.iter_mut().zip(values) {
                        if let Some(counter) = value {
                            *place = (place.0 + 1, place.1.max(counter));
                        }
                    }
                }
                Err(e) => failed = Some(e),
            }
        }
        if others.len() < self.set.majority()
            && let Some(e) = failed
        {
            return Err(e);
        }
        if largest.iter().any(|(count, _)| *count < self.set.majority()) {
            let message = "a counter is missing on so many nodes that no majority has it: nobody knows which tokens were given out";
            return Err(refused(message));
        }
        Ok(largest.into_iter().map(|(_, value)| value).collect())
    }

    /// The values of these counters on one node; none where it is missing.
    async fn values(&self, at: usize, fences: &[String]) -> Result<Vec<Option<u64>>> {
        let mut get = redis::cmd("MGET");
        get.arg(fences);
        let Value::Array(values) = self.member(at)?.node.call(&get, self.patience()).await? else {
            return Err(odd_answer().into());
        };
        let read = |value| text(value).map(|counter| counter.parse().map_err(|_| odd_answer().into())).transpose();
        values.iter().map(read).collect()
    }
}
