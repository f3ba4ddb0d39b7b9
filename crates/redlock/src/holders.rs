//! Who holds a lock, as far as the answers of the nodes decide it.

use crate::member::odd_answer;
use crate::set::Set;
use crate::votes::{duration, parts, text, token};
use fencelock_core::{ClaimId, Error, ErrorKind, FencingToken, HolderInfo, LockName, Result};
use fencelock_redis::NodeFailure;
use fencelock_redis::redis::Value;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// A node's part of a lock.
#[derive(Clone, Debug)]
struct Part {
    left: Option<Duration>,
    token: Option<FencingToken>,
    holder: Arc<str>,
    note: Arc<str>,
    held_for: Duration,
}

/// What the nodes have told so far.
pub(crate) struct Told {
    size: usize,
    pub(crate) answered: usize,
    /// By claim id; an empty one is another program's key.
    parts: HashMap<Arc<str>, Vec<Part>>,
}

/// What that comes to.
pub(crate) enum Answer {
    Nobody,
    Holder(HolderInfo),
    /// The nodes that have not told may make up a majority.
    Open,
}

impl Told {
    fn majority(&self) -> usize {
        self.size / 2 + 1
    }

    fn silent(&self) -> usize {
        self.size.saturating_sub(self.answered)
    }

    /// Fewer answered than could decide anything.
    pub(crate) fn is_too_little(&self) -> bool {
        self.answered < self.majority()
    }

    pub(crate) fn answer(&self) -> Answer {
        let silent = self.silent();
        let most = self.parts.iter().max_by_key(|(_, parts)| parts.len());
        let Some((id, parts)) = most else {
            return if silent < self.majority() { Answer::Nobody } else { Answer::Open };
        };
        if parts.len() + silent < self.majority() {
            return Answer::Nobody;
        }
        let token = parts.iter().filter_map(|part| part.token).max();
        match token {
            _ if parts.len() < self.majority() => Answer::Open,
            Some(token) => Answer::Holder(self.info(id, parts, token)),
            None if id.is_empty() => Answer::Holder(self.info(id, parts, FencingToken::new(0))),
            // About to get its token; unless that is noted on a node that has not told.
            None if silent == 0 => Answer::Nobody,
            None => Answer::Open,
        }
    }

    /// Who holds it if anybody does, where the answers do not decide it; that is in the note.
    pub(crate) fn doubtful(&self) -> Option<HolderInfo> {
        let (id, parts) = self.parts.iter().max_by_key(|(_, parts)| parts.len())?;
        let token = parts.iter().filter_map(|part| part.token).max().unwrap_or(FencingToken::new(0));
        let mut info = self.info(id, parts, token);
        let doubt = format!(
            "not known whether it holds: {} of {} nodes say so, {} did not answer",
            parts.len(),
            self.size,
            self.silent()
        );
        let note = info.note.map_or(doubt.clone(), |note| format!("{doubt}; {note}"));
        (info.note, info.remaining) = (Some(note.into()), None);
        Some(info)
    }

    fn info(&self, id: &str, parts: &[Part], token: FencingToken) -> HolderInfo {
        let mut info = HolderInfo::new("", token);
        if let Some(first) = parts.first() {
            info = HolderInfo::new(Arc::clone(&first.holder), token)
                .with_note(Some(Arc::clone(&first.note)).filter(|note| !note.is_empty()))
                .with_held_for(first.held_for);
        }
        // It keeps a majority until so many have run out that the rest is none.
        let mut lefts: Vec<_> = parts.iter().map(|part| part.left.unwrap_or(Duration::MAX)).collect();
        lefts.sort_unstable_by(|a, b| b.cmp(a));
        if let Some(left) = lefts.get(self.majority() - 1).filter(|left| **left < Duration::MAX) {
            info = info.with_remaining(*left);
        }
        match u128::from_str_radix(id, 16) {
            Ok(id) => info.with_claim(ClaimId::from_bytes(id.to_be_bytes())),
            Err(_) => info,
        }
    }
}

impl Set {
    /// Whoever holds it on a majority, and has got a token.
    ///
    /// # Errors
    /// `Unavailable` if the answers do not decide it.
    pub(crate) async fn holder(&self, name: &LockName) -> Result<Option<HolderInfo>> {
        let told = self.told(name).await;
        match told.answer() {
            Answer::Nobody => return Ok(None),
            Answer::Holder(info) => return Ok(Some(info)),
            Answer::Open => {}
        }
        if told.is_too_little() {
            return Err(self.too_few(told.answered, "inspect").with_name(name));
        }
        let parts = told.parts.values().map(Vec::len).max().unwrap_or_default();
        Err(self.undecided(format!("{parts} nodes say the same"), told.answered, "inspect").with_name(name))
    }

    /// What the nodes tell of the lock, until that decides who holds it. An answer that cannot be read is none.
    pub(crate) async fn told(&self, name: &LockName) -> Told {
        let mut answers = self.inspect(&self.keys.of(name));
        let mut told = Told { size: self.size(), answered: 0, parts: HashMap::new() };
        while let Some((_, answer)) = answers.next().await {
            let Ok(part) = answer.and_then(|answer| part(&answer)) else { continue };
            told.answered += 1;
            if let Some((id, part)) = part {
                told.parts.entry(id).or_default().push(part);
            }
            if !matches!(told.answer(), Answer::Open) {
                break;
            }
        }
        told
    }

    pub(crate) fn too_few(&self, answered: usize, operation: &'static str) -> Error {
        let message = format!("{answered} of {} nodes answered: no majority", self.size());
        Error::new(ErrorKind::Unavailable, message).with_engine("redlock").with_operation(operation)
    }

    pub(crate) fn undecided(&self, what: String, answered: usize, operation: &'static str) -> Error {
        let (size, silent) = (self.size(), self.size().saturating_sub(answered));
        let message = format!("{answered} of {size} nodes answered, and {what}: the {silent} that did not decide it");
        Error::new(ErrorKind::Unavailable, message).with_engine("redlock").with_operation(operation)
    }
}

fn part(value: &Value) -> std::result::Result<Option<(Arc<str>, Part)>, NodeFailure> {
    match parts(value)? {
        [] => Ok(None),
        [Value::Int(left)] => {
            let (holder, note, held_for) = ("a key of another program".into(), "".into(), Duration::ZERO);
            Ok(Some(("".into(), Part { left: duration(*left), token: None, holder, note, held_for })))
        }
        [Value::Int(left), id, noted, holder, note, Value::Int(held_for)] => {
            let (holder, note) = (text(holder).unwrap_or_default(), text(note).unwrap_or_default());
            let held_for = duration(*held_for).unwrap_or_default();
            let part = Part { left: duration(*left), token: token(noted)?, holder, note, held_for };
            Ok(Some((text(id).unwrap_or_default(), part)))
        }
        _ => Err(odd_answer()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(size: usize, answers: &[Option<(&str, Option<u64>, u64)>]) -> Answer {
        let mut told = Told { size, answered: answers.len(), parts: HashMap::new() };
        for (id, token, secs) in answers.iter().flatten() {
            let (left, token) = (Some(Duration::from_secs(*secs)), token.map(FencingToken::new));
            let part = Part { left, token, holder: "h".into(), note: "".into(), held_for: Duration::ZERO };
            told.parts.entry((*id).into()).or_default().push(part);
        }
        told.answer()
    }

    #[test]
    fn unknown_is_neither_yes_nor_no() {
        let (x, y, new) = (Some(("a", Some(5), 9)), Some(("b", Some(6), 9)), Some(("a", None, 9)));
        assert!(matches!(told(3, &[None, None]), Answer::Nobody), "one part at most is left");
        assert!(matches!(told(3, &[x, None]), Answer::Open), "the third may have the other part");
        assert!(matches!(told(3, &[x, None, None]), Answer::Nobody));
        assert!(matches!(told(3, &[x, x]), Answer::Holder(_)));
        assert!(matches!(told(3, &[x, y]), Answer::Open));
        assert!(matches!(told(5, &[x, y, None, None]), Answer::Nobody));
        assert!(matches!(told(5, &[None, None]), Answer::Open));
        assert!(matches!(told(3, &[new, new]), Answer::Open), "its token may be noted on the third");
        assert!(matches!(told(3, &[new, new, None]), Answer::Nobody), "not yet");
        assert!(matches!(told(3, &[new, x]), Answer::Holder(info) if info.token.get() == 5));
    }

    #[test]
    fn a_hold_lasts_as_long_as_its_majority() {
        let part = |secs| Some(("a", Some(5), secs));
        let Answer::Holder(info) = told(3, &[part(3), part(9), part(6)]) else { panic!("held by all three") };
        assert_eq!(info.remaining, Some(Duration::from_secs(6)));
    }
}
