//! G1 and G2: nothing stale is accepted, and no acknowledged update is lost.

use super::sweep::Before;
use crate::history::holds::LockHistory;
use crate::history::{Event, Finding, GateAnswer, Verdict, What};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// One step at a resource.
#[derive(Debug)]
struct Step {
    id: (u32, u32),
    token: u64,
    called: u64,
    /// When it answered, and what: unknown if the worker was killed before.
    answered: Option<u64>,
    answer: GateAnswer,
    /// Entering has none.
    value: Option<u64>,
}

impl Step {
    fn accepted(&self) -> Option<u64> {
        self.answered.filter(|_| self.answer == GateAnswer::Accepted)
    }
}

/// All steps at one resource.
#[derive(Debug, Default)]
pub(super) struct Resource {
    name: Arc<str>,
    steps: Vec<Step>,
    count: Option<u64>,
    list: Option<Vec<u64>>,
}

/// Whose, where, and with which value: what tells an answer's call.
type Call<'a> = ((u32, u32), &'a str, Option<u64>);

pub(super) fn by_resource(events: &[Event], locks: &[LockHistory]) -> Vec<Resource> {
    let holds = locks.iter().flat_map(|lock| &lock.holds);
    let tokens: HashMap<_, _> = holds.filter_map(|h| h.token.map(|token| (h.id, token))).collect();
    let mut resources: BTreeMap<&str, Resource> = BTreeMap::new();
    let mut under_way: HashMap<Call<'_>, usize> = HashMap::new();
    for event in events {
        let id = (event.worker, event.hold);
        let (name, value, answer) = match &event.what {
            What::Enter { resource } => (resource, None, None),
            What::Write { resource, value } | What::Append { resource, element: value } => {
                (resource, Some(*value), None)
            }
            What::Entered { resource, answer } => (resource, None, Some(*answer)),
            What::Wrote { resource, value, answer } | What::Appended { resource, element: value, answer } => {
                (resource, Some(*value), Some(*answer))
            }
            What::FinalCount { resource, value } => {
                resources.entry(resource).or_default().count = Some(*value);
                continue;
            }
            What::FinalList { resource, elements } => {
                resources.entry(resource).or_default().list = Some(elements.clone());
                continue;
            }
            _ => continue,
        };
        let resource = resources.entry(name).or_default();
        resource.name = Arc::clone(name);
        if let Some(answer) = answer {
            let step = under_way.remove(&(id, name, value)).and_then(|at| resource.steps.get_mut(at));
            if let Some(step) = step {
                (step.answered, step.answer) = (Some(event.at), answer);
            }
        } else {
            under_way.insert((id, name, value), resource.steps.len());
            let token = tokens.get(&id).copied().unwrap_or_default();
            let (called, answer) = (event.at, GateAnswer::Unknown);
            resource.steps.push(Step { id, token, called, answered: None, answer, value });
        }
    }
    resources.into_values().collect()
}

/// Whatever was accepted was called before any larger token had entered.
pub(super) fn judge_stale(resource: &Resource, verdict: &mut Verdict) {
    let entered = resource.steps.iter().filter(|step| step.value.is_none());
    let entered = Before::of(entered.filter_map(|step| step.accepted().map(|at| (at, step.token, step.id))));
    for step in &resource.steps {
        let Some((newest, id)) = entered.before(step.called) else { continue };
        // What came from the newest itself could not have been stale.
        verdict.asked += u64::from(newest > step.token);
        if let Some(at) = step.accepted().filter(|_| newest > step.token) {
            verdict.found((step.called, at), || Finding {
                subject: resource.name.to_string(),
                message: format!("accepted from token {} after {newest} had entered", step.token),
                holds: vec![id, step.id],
                span: (step.called, at),
            });
        }
    }
}

/// Every acknowledged update is there at the end, once, and nothing that nobody made.
pub(super) fn judge_lost(resource: &Resource, verdict: &mut Verdict) {
    let writes: Vec<_> = resource.steps.iter().filter_map(|step| step.value.map(|value| (value, step))).collect();
    verdict.asked += writes.iter().filter(|(_, step)| step.accepted().is_some()).count() as u64;
    let mut tell = |message: String, step: Option<&Step>| {
        let holds = step.map(|step| step.id).into_iter().collect();
        let span = step.map_or((0, 0), |step| (step.called, step.answered.unwrap_or(step.called)));
        verdict.found(span, || Finding { subject: resource.name.to_string(), message, holds, span });
    };
    if let Some(list) = &resource.list {
        judge_list(list, &writes, &mut tell);
    } else {
        judge_count(resource.count, writes, &mut tell);
    }
}

type Tell<'a> = &'a mut dyn FnMut(String, Option<&Step>);

fn judge_count(last: Option<u64>, mut writes: Vec<(u64, &Step)>, tell: Tell<'_>) {
    writes.sort_by_key(|(value, step)| (*value, step.answered));
    let mut reached = 0;
    for same in writes.chunk_by(|a, b| a.0 == b.0) {
        let mut accepted = same.iter().filter(|(_, step)| step.accepted().is_some());
        let (first, value) = (accepted.next(), same.first().map_or(0, |(value, _)| *value));
        for (_, step) in accepted {
            tell(format!("{value} was written and acknowledged twice: an update is lost"), Some(step));
        }
        if let (Some((_, step)), Some(last)) = (first, last)
            && value > last
        {
            tell(format!("{value} was acknowledged, and at the end it is {last}"), Some(step));
        }
        let made = first.is_some() || same.iter().any(|(_, step)| step.answer == GateAnswer::Unknown);
        if made && value == reached + 1 {
            reached = value;
        }
    }
    if let Some(last) = last.filter(|last| *last > reached) {
        tell(format!("at the end it is {last}, and nobody wrote {}", reached + 1), None);
    }
}

fn judge_list(list: &[u64], writes: &[(u64, &Step)], tell: Tell<'_>) {
    let mut places: HashMap<u64, usize> = HashMap::new();
    for (at, element) in list.iter().enumerate() {
        if places.insert(*element, at).is_some() {
            tell(format!("{element} is in it twice"), None);
        }
    }
    let attempts: HashMap<u64, &Step> = writes.iter().copied().collect();
    for element in list {
        match attempts.get(element) {
            None => tell(format!("{element} is in it, and nobody appended it"), None),
            Some(step) if step.answer == GateAnswer::Stale => {
                tell(format!("{element} was refused, and is in it"), Some(step));
            }
            Some(_) => {}
        }
    }
    // Acknowledged before another was asked for means before it in the list.
    let acknowledged = writes.iter().filter_map(|(element, step)| {
        let at = step.accepted()?;
        Some((at, *places.get(element)? as u64, *element))
    });
    let earlier = Before::of(acknowledged);
    for (element, step) in writes {
        let Some(place) = places.get(element) else {
            if step.accepted().is_some() {
                tell(format!("{element} was acknowledged, and is not in it"), Some(step));
            }
            continue;
        };
        if let Some((behind, other)) = earlier.before(step.called)
            && behind > *place as u64
        {
            tell(format!("{element} is before {other}, which was acknowledged first"), Some(step));
        }
    }
}
