//! Data written under the lock in one transaction, and the late writer refused by the store itself.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test")]

mod common;

use common::{LONG, client, plain};
use fencelock_core::memory::MemoryLock;
use fencelock_core::{ErrorKind, LockClient};
use fencelock_etcd::OwnedInEtcd;
use fencelock_etcd::etcd_client::{Client, Compare, Txn, TxnOp};
use fencelock_lab::Etcd;
use std::sync::Arc;

async fn write(store: &mut Client, owned: Compare, value: &str) -> bool {
    store.txn(Txn::new().when([owned]).and_then([TxnOp::put("data", value, None)])).await.unwrap().succeeded()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_holder_writes() {
    let etcd = Etcd::start().unwrap();
    let (one, two, mut store) = (client(&etcd).await, client(&etcd).await, plain(&etcd).await);
    let old = one.acquire("a").await.unwrap();
    assert!(write(&mut store, old.owned().unwrap(), "first").await);
    assert_eq!(old.evidence().get("mod_revision"), Some(old.token().to_string().as_str()));
    let late = old.owned().unwrap();
    // Taken away by an operator: the old holder may not know yet, and writes all the same.
    two.force_release("a").await.unwrap();
    assert!(!write(&mut store, late.clone(), "late").await, "nobody holds");
    let new = tokio::time::timeout(LONG, two.acquire("a")).await.unwrap().unwrap();
    assert!(!write(&mut store, late, "late").await, "another holds");
    assert!(write(&mut store, new.owned().unwrap(), "second").await);
    assert_eq!(store.get("data", None).await.unwrap().kvs()[0].value_str().unwrap(), "second");
    let released = new.owned().unwrap();
    new.release().await.unwrap();
    assert!(!write(&mut store, released, "late").await, "released");
    assert_eq!(old.release().await.unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test]
async fn a_hold_elsewhere_has_no_such_test() {
    let memory = LockClient::new(Arc::new(MemoryLock::new())).unwrap();
    let guard = memory.acquire("a").await.unwrap();
    assert_eq!(guard.owned().unwrap_err().kind(), ErrorKind::Unsupported);
}
