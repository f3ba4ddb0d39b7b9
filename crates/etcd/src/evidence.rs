//! Ownership, tested inside the caller's own transaction.

use etcd_client::{Compare, CompareOp};
use fencelock_core::{Error, ErrorKind, Evidence, LockGuard, Result};

/// The test that a lock is still held, for a transaction of the caller's own on the same etcd.
///
/// The transaction succeeds only if the hold's key is there as it was made, in
/// the same atomic step as the writes: no late writer gets through, whatever
/// its clock says, and no token needs to be stored with the data.
///
/// What is compared is the key's `mod_revision`, which is the hold's token for as long as the hold is there: a place
/// is written once. Its `create_revision` alone would not do: a forced release of a hold with a lock delay leaves the
/// key where it is, as nobody's, and changes the other. Without this trait, and in another language, compare the `key`
/// and the `mod_revision` that [`LockGuard::evidence`] tells.
///
/// ```no_run
/// use fencelock_core::LockGuard;
/// use fencelock_etcd::OwnedInEtcd;
/// use fencelock_etcd::etcd_client::{Client, Txn, TxnOp};
///
/// # async fn example(guard: &LockGuard, mut etcd: Client) -> Result<(), Box<dyn std::error::Error>> {
/// let stock: i64 = match etcd.get("stock/shoes", None).await?.kvs().first() {
///     Some(kv) => kv.value_str()?.parse()?,
///     None => 0,
/// };
/// let sell = Txn::new()
///     .when([guard.owned()?])
///     .and_then([TxnOp::put("stock/shoes", (stock - 1).to_string(), None)]);
/// if !etcd.txn(sell).await?.succeeded() {
///     return Err("the lock was lost: nothing was written".into());
/// }
/// # Ok(()) }
/// ```
pub trait OwnedInEtcd {
    /// True in a transaction exactly while the hold's key is there.
    ///
    /// # Errors
    /// `Unsupported` if the hold is not in etcd.
    fn owned(&self) -> Result<Compare>;
}

impl OwnedInEtcd for Evidence {
    fn owned(&self) -> Result<Compare> {
        let revision = self.get("mod_revision").and_then(|revision| revision.parse().ok());
        match (self.get("key"), revision) {
            (Some(key), Some(revision)) => Ok(Compare::mod_revision(key, CompareOp::Equal, revision)),
            _ => Err(Error::new(ErrorKind::Unsupported, "this hold has no evidence in etcd")),
        }
    }
}

impl OwnedInEtcd for LockGuard {
    fn owned(&self) -> Result<Compare> {
        self.evidence().owned()
    }
}
