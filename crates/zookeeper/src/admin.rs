//! The operator's verbs.

use crate::engine::ZooKeeperLock;
use crate::failure::Failure;
use crate::keys::{Data, Entry};
use crate::session::{Session, unavailable};
use crate::{keys, queue};
use async_trait::async_trait;
use fencelock_core::{Admin, Error, FencingToken, HolderInfo, LockName, Result, Waiter};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use zookeeper_client::{CreateMode, MultiWriteError};

/// What closing a queue may take, from when the session that closes it was opened.
const HASTE: Duration = Duration::from_millis(500);
/// How many of those who wait for one lock are shown; the others are counted.
const SHOWN: usize = 100;
/// How many locks are looked at together.
const TOGETHER: usize = 32;

#[async_trait]
impl Admin for ZooKeeperLock {
    async fn list(&self, prefix: &str) -> Result<Vec<(LockName, HolderInfo)>> {
        let session = self.inner.session().await?;
        session.connected().await?;
        let root = session.keys.root();
        session.call(session.client.sync(root)).await?;
        let parts = match session.call(session.client.list_children(root)).await {
            Err(Failure::NoNode) => Vec::new(),
            parts => parts?,
        };
        let mut names: Vec<_> = parts.iter().filter_map(|part| keys::decode(part)).collect();
        names.retain(|name| name.as_str().starts_with(prefix));
        names.sort();
        let mut held = Vec::new();
        for names in names.chunks(TOGETHER) {
            let mut asked = JoinSet::new();
            for name in names {
                let (engine, name) = (self.clone(), name.clone());
                asked.spawn(async move { Ok::<_, Error>(engine.told(&name).await?.map(|holder| (name, holder))) });
            }
            while let Some(told) = asked.join_next().await {
                held.extend(told.map_err(|_| unavailable("the runtime is going down".to_owned()))??);
            }
        }
        held.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(held)
    }

    async fn force_release(&self, name: &LockName) -> Result<bool> {
        self.take_away(name, None).await
    }

    async fn force_release_if(&self, name: &LockName, token: FencingToken) -> Result<bool> {
        self.take_away(name, Some(token)).await
    }
}

impl ZooKeeperLock {
    /// Who holds the lock and who waits for it; all that is asked about one queue leaves together.
    pub(crate) async fn told(&self, name: &LockName) -> Result<Option<HolderInfo>> {
        let session = self.inner.session().await?;
        let queue = session.keys.queue(name);
        loop {
            let mut entries = session.list_synced(&queue).await?;
            entries.sort_by(Entry::order);
            let Some(first) = entries.first().filter(|first| !first.is_closure()) else { return Ok(None) };
            let behind = u64::try_from(entries.len().saturating_sub(1)).unwrap_or(u64::MAX);
            let asked: Vec<_> = entries.iter().take(1 + SHOWN).map(|entry| format!("{queue}/{}", entry.node)).collect();
            // Each is sent when its future is made.
            let asked: Vec<_> = asked.iter().map(|path| session.client.get_data(path)).collect();
            let mut told = Vec::new();
            for answer in asked {
                told.push(session.call(answer).await);
            }
            let mut told = told.into_iter();
            let (data, stat) = match told.next() {
                Some(Ok((data, stat))) => (Data::read(&data), stat),
                // Gone between the two: then somebody else is first, or nobody.
                None | Some(Err(Failure::NoNode)) => continue,
                Some(Err(e)) => return Err(e.into()),
            };
            let mut waiting = Vec::new();
            for (entry, answer) in entries.iter().skip(1).zip(told) {
                match answer {
                    Ok((data, stat)) => {
                        let data = Data::read(&data);
                        let waiter = Waiter::new(data.holder).with_note(data.note.map(Into::into));
                        let waiter = waiter.with_claim(entry.claim());
                        let ago = session.ago(stat.ctime);
                        waiting.push(ago.map_or(waiter.clone(), |ago| waiter.with_waited_for(ago)));
                    }
                    Err(Failure::NoNode) => {}
                    Err(e) => return Err(e.into()),
                }
            }
            let gone = entries.len().min(1 + SHOWN) - 1 - waiting.len();
            let behind = behind.saturating_sub(u64::try_from(gone).unwrap_or(u64::MAX));
            let mut info = HolderInfo::new(data.holder, self.token(stat.czxid)).with_note(data.note.map(Into::into));
            if let Some(ago) = session.ago(stat.ctime) {
                info = info.with_asked_ago(ago);
            }
            return Ok(Some(info.with_claim(first.claim()).with_waiting(waiting).with_waiters(behind)));
        }
    }

    /// Takes the lock from its holder; with `only`, from no other hold than the one with this token.
    async fn take_away(&self, name: &LockName, only: Option<FencingToken>) -> Result<bool> {
        let session = self.inner.session().await?;
        let queue = session.keys.queue(name);
        loop {
            let entries = session.list_synced(&queue).await?;
            let Some(first) = queue::first(&entries).filter(|first| !first.is_closure()) else { return Ok(false) };
            let path = format!("{queue}/{}", first.node);
            let (data, stat) = match session.call(session.client.get_data(&path)).await {
                Ok(found) => found,
                Err(Failure::NoNode) => continue,
                Err(e) => return Err(e.into()),
            };
            if only.is_some_and(|only| self.token(stat.czxid) != only) {
                return Ok(false);
            }
            // The node is this hold's and never another's: its name has the claim's id.
            let delay = Data::read(&data).delay;
            let freed = if delay.is_zero() {
                session.gone(session.client.delete(&path, None)).await?
            } else {
                self.close(&session, &queue, first, delay).await?
            };
            if freed {
                return Ok(true);
            }
        }
    }

    /// Takes the holder's node away and puts one that is nobody's in its place, in
    /// one step; false if it was gone. That node lives in a session of its own,
    /// which is left to the servers at once: they end it after `delay`, or after
    /// the least time-out they give. Whoever is alive then takes it away on time.
    async fn close(&self, session: &Session, queue: &str, first: &Entry, delay: Duration) -> Result<bool> {
        let (path, closure) = (format!("{queue}/{}", first.node), format!("{queue}/{}", first.closure()));
        let client = session.open_brief((delay + HASTE).min(session.tempo.session).max(delay)).await?;
        let data = Data { delay, ..Data::default() }.write();
        let mut both = client.new_multi_writer();
        both.add_delete(&path, None).map_err(Failure::from)?;
        both.add_create(&closure, &data, &session.with_mode(CreateMode::Ephemeral)).map_err(Failure::from)?;
        match session.call(async { Ok(both.commit().await) }).await? {
            Ok(_) => {}
            Err(MultiWriteError::OperationFailed { source: zookeeper_client::Error::NoNode, .. }) => return Ok(false),
            Err(MultiWriteError::OperationFailed { source, .. } | MultiWriteError::RequestFailed { source }) => {
                return Err(Failure::from(source).into());
            }
        }
        let engine = Arc::downgrade(&self.inner);
        tokio::spawn(async move {
            tokio::time::sleep(delay + delay / 50).await;
            if let Some(engine) = engine.upgrade()
                && let Ok(session) = engine.session().await
            {
                // Not done is done by the servers.
                let _ = session.gone(session.client.delete(&closure, None)).await;
            }
        });
        Ok(true)
    }
}
