//! What must be so of the nodes before any lock is asked for.

use crate::looks::look;
use crate::meta::{Found, Record};
use crate::probe::Facts;
use crate::set::Set;
use fencelock_core::{Error, ErrorKind, Result};
use fencelock_redis::NodeFailure;
use std::collections::HashMap;

/// Asks all nodes, and takes the set in if a majority belongs to it. A minority may be away, or without counters.
///
/// Who was away does not vote until it has come and was looked at. So each majority that this client ever
/// asks is one of nodes that were looked at, and shares one with every majority of anybody else: what is
/// guaranteed follows from the nodes that vote.
pub(crate) async fn admit(set: &Set) -> Result<()> {
    let found = set.probe_most().await;
    let reached = found.iter().filter(|facts| facts.is_ok()).count();
    if reached < set.majority() {
        return Err(unreachable(set, &found));
    }
    independent(set, &found)?;
    let record = membership(set, &found)?;
    for (member, facts) in set.members.iter().zip(found) {
        let Ok(facts) = facts else { continue };
        if facts.record.ready().is_none() {
            member.report_unseeded();
        }
        member.learn(facts, None);
    }
    set.belongs_to(record);
    set.conclude()?;
    let away = set.members.iter().enumerate().filter(|(_, member)| !member.is_known());
    away.for_each(|(at, _)| look(&set.itself, at));
    Ok(())
}

/// No two are the same server, and none is a replica.
pub(crate) fn independent(set: &Set, found: &[std::result::Result<Facts, NodeFailure>]) -> Result<()> {
    let mut servers: HashMap<&str, usize> = HashMap::new();
    for (at, facts) in found.iter().enumerate() {
        let Ok(facts) = facts else { continue };
        let node = address(set, at);
        if let Some(master) = facts.replica_of() {
            return Err(refused(format!(
                "{node} is a replica of {master}: its vote would be that of its master; name independent servers"
            )));
        }
        if let Some(run_id) = facts.run_id()
            && let Some(other) = servers.insert(run_id, at)
        {
            let other = address(set, other);
            return Err(refused(format!(
                "{other} and {node} are the same server (run id {run_id}), which would vote twice; name independent servers"
            )));
        }
    }
    Ok(())
}

/// The record of the set that a majority of nodes is ready for.
fn membership(set: &Set, found: &[std::result::Result<Facts, NodeFailure>]) -> Result<Record> {
    let mut ready: Option<(usize, &Record)> = None;
    let mut count = 0;
    for (at, facts) in found.iter().enumerate() {
        let Ok(facts) = facts else { continue };
        if let Found::Foreign(layout) = &facts.record {
            return Err(foreign(set, at, layout));
        }
        let Some(record) = facts.record.ready() else { continue };
        count += 1;
        match ready {
            None => ready = Some((at, record)),
            Some((_, first)) if *first == *record => {}
            Some((first, _)) => {
                return Err(refused(format!(
                    "{} and {} belong to different sets of nodes, which share no locks",
                    address(set, first),
                    address(set, at)
                )));
            }
        }
    }
    let Some((_, record)) = ready else {
        return Err(refused(
            "these nodes have no counters yet: run `fencelock redlock init` once, with this URL, before the first connect",
        ));
    };
    sized(set, record)?;
    if count < set.majority() {
        return Err(refused(format!(
            "{count} of {} nodes have their counters: no majority; `fencelock redlock status` tells which have not",
            set.size()
        )));
    }
    Ok(record.clone())
}

/// The set has as many nodes as are named.
pub(crate) fn sized(set: &Set, record: &Record) -> Result<()> {
    if record.nodes == set.size() {
        return Ok(());
    }
    Err(refused(format!(
        "the set was initialised with {} nodes, and {} are named: majorities of the two need not meet",
        record.nodes,
        set.size()
    )))
}

pub(crate) fn foreign(set: &Set, at: usize, layout: &str) -> Error {
    refused(format!(
        "the keys under `{}` on {} have layout `{layout}`, which this program does not write: the two would share no locks; \
         use one version, or another `prefix`",
        set.config.prefix,
        address(set, at)
    ))
}

/// Which nodes did not answer, and why the first of them did not.
fn unreachable(set: &Set, found: &[std::result::Result<Facts, NodeFailure>]) -> Error {
    let failures: Vec<_> =
        found.iter().enumerate().filter_map(|(at, facts)| Some((at, &facts.as_ref().err()?.error))).collect();
    let kinds: Vec<_> = failures.iter().map(|(_, e)| e.kind()).collect();
    let kind = match kinds.first() {
        Some(first) if kinds.iter().all(|kind| kind == first) => *first,
        _ => ErrorKind::Unavailable,
    };
    let nodes: Vec<_> = failures.iter().map(|(at, _)| address(set, *at)).collect();
    let why = failures.first().map_or("", |(_, e)| e.message());
    let reached = set.size() - failures.len();
    Error::new(
        kind,
        format!("{reached} of {} nodes answered: no majority; not {} ({why})", set.size(), nodes.join(", ")),
    )
}

pub(crate) fn address(set: &Set, at: usize) -> String {
    set.members.get(at).map(|member| member.node.address()).unwrap_or_default()
}

pub(crate) fn refused(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Refused, message)
}
