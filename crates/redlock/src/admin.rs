//! What operators ask of a lock.

use crate::ask::ask;
use crate::holders::Answer;
use crate::member::odd_answer;
use crate::set::Set;
use crate::votes::Forced;
use fencelock_core::{Error, ErrorKind, FencingToken, HolderInfo, LockName, Result};
use fencelock_redis::redis;
use fencelock_redis::{Node, NodeFailure};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// How many keys a step of the scan looks at.
const STEP: usize = 1_000;
/// How many locks are looked at together.
const TOGETHER: usize = 64;
/// The longest that listing may take in all.
const LIST: Duration = Duration::from_secs(30);
/// After this a name is asked about again where the answers did not decide it: an attempt is over by then.
const AGAIN: Duration = Duration::from_millis(100);

impl Set {
    /// Every held lock whose name begins with `prefix`, found by scanning all keys of a majority of nodes,
    /// which has a part of whatever another majority has. One of which it is not known whether it is held
    /// is listed, and says so in its note.
    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<(LockName, HolderInfo)>> {
        let too_long = || Error::new(ErrorKind::Unavailable, format!("not all was told in {LIST:?}"));
        timeout(LIST, self.listed(prefix))
            .await
            .unwrap_or_else(|_| Err(too_long().with_engine("redlock").with_operation("list")))
    }

    async fn listed(&self, prefix: &str) -> Result<Vec<(LockName, HolderInfo)>> {
        let (pattern, limit) = (self.keys.pattern(prefix), self.patience());
        let mut answers = ask(self.members.iter().map(|member| {
            let (member, pattern) = (Arc::clone(member), pattern.clone());
            async move {
                member.votes()?;
                scan(&member.node, &pattern, limit).await
            }
        }));
        let (mut names, mut answered) = (BTreeSet::new(), 0);
        while let Some((_, keys)) = answers.next().await {
            if let Ok(keys) = keys {
                answered += 1;
                names.extend(keys.iter().filter_map(|key| self.keys.name_of(key)));
            }
            if answered == self.majority() {
                break;
            }
        }
        if answered < self.majority() {
            return Err(self.too_few(answered, "list"));
        }
        let names: Vec<_> = names.into_iter().filter(|name| name.as_str().starts_with(prefix)).collect();
        let mut holders = Vec::new();
        for names in names.chunks(TOGETHER) {
            let mut asked = JoinSet::new();
            for name in names {
                let (set, name) = (Weak::clone(&self.itself), name.clone());
                asked.spawn(async move {
                    let set = set.upgrade().ok_or_else(gone)?;
                    Ok::<_, Error>(set.perhaps(&name).await?.map(|holder| (name, holder)))
                });
            }
            while let Some(holder) = asked.join_next().await {
                holders.extend(holder.map_err(|_| gone())??);
            }
        }
        holders.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(holders)
    }

    /// Whoever holds it, or may hold it.
    async fn perhaps(&self, name: &LockName) -> Result<Option<HolderInfo>> {
        let mut told = self.told(name).await;
        if matches!(told.answer(), Answer::Open) {
            sleep(AGAIN).await;
            told = self.told(name).await;
        }
        match told.answer() {
            Answer::Nobody => Ok(None),
            Answer::Holder(info) => Ok(Some(info)),
            Answer::Open if told.is_too_little() => Err(self.too_few(told.answered, "list")),
            Answer::Open => Ok(told.doubtful()),
        }
    }

    /// Ends the hold wherever a node answers; true if a majority had it, and it had its token.
    pub(crate) async fn force_release(&self, name: &LockName) -> Result<bool> {
        self.take_away(name, "").await
    }

    /// The same, if the hold is the one with this token. Not every node of its majority need have noted
    /// the token, and all have its claim's id: that is what the nodes compare.
    pub(crate) async fn force_release_if(&self, name: &LockName, token: FencingToken) -> Result<bool> {
        let found = self.holder(name).await.map_err(|e| e.with_operation("force_release_if"))?;
        let Some(found) = found.filter(|found| found.token == token) else { return Ok(false) };
        match found.claim {
            Some(claim) => self.take_away(name, &claim.to_string()).await,
            None => Err(anothers()),
        }
    }

    async fn take_away(&self, name: &LockName, only: &str) -> Result<bool> {
        let mut answers = self.force(&self.keys.of(name), only);
        let mut freed: HashMap<Arc<str>, (usize, bool)> = HashMap::new();
        let (mut foreign, mut answered) = (0, 0);
        while let Some((_, answer)) = answers.next().await {
            let Ok(answer) = answer else { continue };
            answered += 1;
            match answer {
                Forced::Freed { id, token } => {
                    let (parts, has_token) = freed.entry(id).or_default();
                    *parts += 1;
                    *has_token |= token.is_some();
                }
                Forced::Foreign => foreign += 1,
                Forced::Nothing => {}
            }
        }
        let (majority, silent) = (self.majority(), self.size().saturating_sub(answered));
        if answered < majority {
            return Err(self.too_few(answered, "force_release").with_name(name));
        }
        if foreign >= majority {
            return Err(anothers());
        }
        let (parts, has_token) = freed.into_values().max_by_key(|(parts, _)| *parts).unwrap_or_default();
        if parts >= majority && (has_token || silent == 0) {
            return Ok(has_token);
        }
        if parts + silent < majority {
            return Ok(false);
        }
        // No majority is left to whoever had it; whether it was one, the silent would have to say.
        let what = format!("{parts} of them had the same hold, which is ended there");
        Err(self.undecided(what, answered, "force_release").with_name(name))
    }
}

fn anothers() -> Error {
    let message = "the key holds another program's value, which is never touched; delete it by hand";
    Error::new(ErrorKind::Engine, message).with_engine("redlock")
}

fn gone() -> Error {
    Error::new(ErrorKind::Unavailable, "the client has gone").with_engine("redlock")
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
