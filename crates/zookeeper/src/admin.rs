//! The operator's verbs.

use crate::engine::ZooKeeperLock;
use crate::failure::Failure;
use crate::{keys, queue};
use async_trait::async_trait;
use fencelock_core::{Admin, DistributedLock, HolderInfo, LockName, Result};

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
            let Some(first) = queue::first(&entries) else { return Ok(false) };
            if session.gone(session.client.delete(&format!("{queue}/{}", first.node), None)).await? {
                return Ok(true);
            }
        }
    }
}
