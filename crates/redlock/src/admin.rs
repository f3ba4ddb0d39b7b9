//! Who holds a lock, as a majority tells it, and what operators ask.

use crate::ask::ask;
use crate::set::{Set, duration, odd_answer, text};
use fencelock_core::{ClaimId, Error, ErrorKind, FencingToken, HolderInfo, LockName, Result};
use fencelock_redis::redis::{self, Value};
use fencelock_redis::{Node, NodeFailure};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// How many keys a step of the scan looks at.
const STEP: usize = 1_000;

/// A node's part of a lock.
struct Part {
    left: Option<Duration>,
    token: Option<FencingToken>,
    holder: Arc<str>,
    note: Arc<str>,
    held_for: Duration,
}

impl Set {
    /// Whoever holds it on a majority, and has got a token.
    pub(crate) async fn holder(&self, name: &LockName) -> Result<Option<HolderInfo>> {
        let mut answers = self.inspect(&self.keys.of(name));
        let mut parts: HashMap<Arc<str>, Vec<Part>> = HashMap::new();
        let mut answered = 0;
        while let Some((_, answer)) = answers.next().await {
            let Ok(answer) = answer else { continue };
            answered += 1;
            if let Some((id, part)) = part(&answer)? {
                let parts = parts.entry(id).or_default();
                parts.push(part);
            }
            let most = parts.values().map(Vec::len).max().unwrap_or_default();
            if most >= self.majority() || (answered >= self.majority() && most + answers.left() < self.majority()) {
                break;
            }
        }
        if answered < self.majority() {
            return Err(self.too_few(answered, "inspect").with_name(name));
        }
        let found = parts.into_iter().find(|(_, parts)| parts.len() >= self.majority());
        Ok(found.and_then(|(id, parts)| info(&id, &parts)))
    }

    /// Every held lock whose name begins with `prefix`, found by scanning all keys of all nodes.
    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<(LockName, HolderInfo)>> {
        let (pattern, limit) = (self.keys.pattern(prefix), self.patience());
        let mut answers = ask(self.members.iter().map(|member| {
            let (member, pattern) = (Arc::clone(member), pattern.clone());
            async move { scan(&member.node, &pattern, limit).await }
        }));
        let (mut names, mut answered) = (BTreeSet::new(), 0);
        while let Some((_, keys)) = answers.next().await {
            if let Ok(keys) = keys {
                answered += 1;
                names.extend(keys.iter().filter_map(|key| self.keys.name_of(key)));
            }
        }
        if answered < self.majority() {
            return Err(self.too_few(answered, "list"));
        }
        let mut holders = Vec::new();
        for name in names.into_iter().filter(|name| name.as_str().starts_with(prefix)) {
            if let Some(holder) = self.holder(&name).await? {
                holders.push((name, holder));
            }
        }
        Ok(holders)
    }

    pub(crate) async fn force_release(&self, name: &LockName) -> Result<bool> {
        let mut answers = self.force(&self.keys.of(name));
        let (mut freed, mut foreign, mut answered) = (0, 0, 0);
        while let Some((_, answer)) = answers.next().await {
            let Ok(answer) = answer else { continue };
            answered += 1;
            freed += usize::from(answer == 1);
            foreign += usize::from(answer == -1);
        }
        if answered < self.majority() {
            return Err(self.too_few(answered, "force_release").with_name(name));
        }
        if foreign >= self.majority() {
            let message = "the key holds another program's value, which is never touched; delete it by hand";
            return Err(Error::new(ErrorKind::Engine, message).with_engine("redlock"));
        }
        // Those that did not answer may have made up its majority.
        Ok(freed > 0 && freed + (self.size() - answered) >= self.majority())
    }

    fn too_few(&self, answered: usize, operation: &'static str) -> Error {
        let message = format!("{answered} of {} nodes answered: no majority", self.size());
        Error::new(ErrorKind::Unavailable, message).with_engine("redlock").with_operation(operation)
    }
}

fn info(id: &str, parts: &[Part]) -> Option<HolderInfo> {
    let token = parts.iter().filter_map(|part| part.token).max();
    if !id.is_empty() && token.is_none() {
        return None; // still about to get it
    }
    let first = parts.first()?;
    let mut info = HolderInfo::new(Arc::clone(&first.holder), token.unwrap_or(FencingToken::new(0)))
        .with_note(Some(Arc::clone(&first.note)).filter(|note| !note.is_empty()))
        .with_held_for(first.held_for);
    if let Some(left) = parts.iter().filter_map(|part| part.left).min() {
        info = info.with_remaining(left);
    }
    match u128::from_str_radix(id, 16) {
        Ok(id) => Some(info.with_claim(ClaimId::from_bytes(id.to_be_bytes()))),
        Err(_) => Some(info),
    }
}

fn part(value: &Value) -> Result<Option<(Arc<str>, Part)>> {
    let Value::Array(parts) = value else { return Err(odd_answer().into()) };
    match parts.as_slice() {
        [] => Ok(None),
        [Value::Int(left)] => {
            let (holder, note, held_for) = ("a key of another program".into(), "".into(), Duration::ZERO);
            Ok(Some(("".into(), Part { left: duration(*left), token: None, holder, note, held_for })))
        }
        [Value::Int(left), id, token, holder, note, Value::Int(held_for)] => {
            let token = text(token).and_then(|token| token.parse().ok()).map(FencingToken::new);
            let (holder, note) = (text(holder).unwrap_or_default(), text(note).unwrap_or_default());
            let part =
                Part { left: duration(*left), token, holder, note, held_for: duration(*held_for).unwrap_or_default() };
            Ok(Some((text(id).unwrap_or_default(), part)))
        }
        _ => Err(odd_answer().into()),
    }
}

async fn scan(node: &Node, pattern: &str, limit: Duration) -> std::result::Result<Vec<String>, NodeFailure> {
    let (mut found, mut cursor) = (Vec::new(), "0".to_owned());
    loop {
        let mut scan = redis::cmd("SCAN");
        scan.arg(&cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(STEP);
        let answer = node.call(&scan, limit).await?;
        let (next, keys): (String, Vec<String>) = redis::from_redis_value(answer).map_err(|_| odd_answer())?;
        found.extend(keys);
        cursor = next;
        if cursor == "0" {
            return Ok(found);
        }
    }
}
