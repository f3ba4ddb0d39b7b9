//! The operator's verbs.

use crate::engine::ZooKeeperLock;
use crate::failure::Failure;
use crate::keys::{Data, Entry};
use crate::session::Session;
use crate::{keys, queue};
use async_trait::async_trait;
use fencelock_core::{Admin, DistributedLock, HolderInfo, LockName, Result};
use std::sync::Arc;
use std::time::Duration;
use zookeeper_client::{CreateMode, MultiWriteError};

/// What closing a queue may take, from when the session that closes it was opened.
const HASTE: Duration = Duration::from_millis(500);

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
        for name in names {
            if let Some(holder) = self.inspect(&name).await? {
                held.push((name, holder));
            }
        }
        Ok(held)
    }

    async fn force_release(&self, name: &LockName) -> Result<bool> {
        let session = self.inner.session().await?;
        let queue = session.keys.queue(name);
        loop {
            let entries = session.list_synced(&queue).await?;
            let Some(first) = queue::first(&entries).filter(|first| !first.is_closure()) else { return Ok(false) };
            let path = format!("{queue}/{}", first.node);
            let delay = match session.call(session.client.get_data(&path)).await {
                Ok((data, _)) => Data::read(&data).delay,
                Err(Failure::NoNode) => continue,
                Err(e) => return Err(e.into()),
            };
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
}

impl ZooKeeperLock {
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
