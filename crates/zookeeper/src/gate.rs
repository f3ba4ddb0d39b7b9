//! Writes of the caller's own that ZooKeeper accepts only while the lock is held.

use crate::config::invalid;
use crate::failure::Failure;
use fencelock_core::{Evidence, LockGuard, Result};
use zookeeper_client::{CheckWriter, Client};

/// Turns a hold into a condition of the caller's own `multi`.
///
/// The data in ZooKeeper that the lock guards needs no other gate: the servers
/// check in one step that the hold's node is there and apply the writes, or do
/// neither. A holder that was paused past its session finds its node gone and
/// changes nothing, however late it writes. (Read what the write depends on
/// after the lock was acquired.)
///
/// ```no_run
/// use fencelock_core::LockClient;
/// use fencelock_zookeeper::{InStore, zookeeper_client::Client};
/// # async fn count(locks: LockClient, client: Client) -> Result<(), Box<dyn std::error::Error>> {
/// let guard = locks.acquire("counters/visits").await?;
/// let (data, stat) = client.get_data("/visits").await?;
/// let visits: u64 = String::from_utf8(data)?.parse()?;
/// let mut write = guard.check_in(&client)?;
/// write.add_set_data("/visits", (visits + 1).to_string().as_bytes(), Some(stat.version))?;
/// write.commit().await?; // `CheckFailed` if the lock had been lost
/// # Ok(()) }
/// ```
pub trait InStore {
    /// A `multi` of `client` that begins with the test that the hold's node is
    /// there. `client` is any client of the same ensemble.
    ///
    /// # Errors
    /// `InvalidConfig` if this is no hold on ZooKeeper, or if `client` has a
    /// chroot that the hold's node is not under.
    fn check_in<'a>(&self, client: &'a Client) -> Result<CheckWriter<'a>>;
}

impl InStore for LockGuard {
    fn check_in<'a>(&self, client: &'a Client) -> Result<CheckWriter<'a>> {
        self.evidence().check_in(client)
    }
}

impl InStore for Evidence {
    fn check_in<'a>(&self, client: &'a Client) -> Result<CheckWriter<'a>> {
        let (Some(path), Some(_)) = (self.get("path"), self.get("czxid")) else {
            return Err(invalid("the hold is not on ZooKeeper"));
        };
        let chroot = client.path().trim_end_matches('/');
        let within = path.strip_prefix(chroot).filter(|path| path.starts_with('/'));
        let Some(path) = within else {
            return Err(invalid(format!("the hold's node is not under the client's chroot {chroot}")));
        };
        // The name has the claim's id in it and the data is never set again, so it is this node in its first version.
        client.new_check_writer(path, Some(0)).map_err(|e| Failure::from(e).into())
    }
}
