//! Two clients of one SQLite file, by URL.
#![cfg(feature = "sqlite")]

use fencelock::{ErrorKind, Level, Scope};
use std::time::Duration;

#[tokio::test]
async fn two_clients_of_one_file_exclude_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}?ttl=5s&wait_at_most=10s", dir.path().join("locks.db").display());
    let (one, two) = (fencelock::connect(&url).await.unwrap(), fencelock::connect(&url).await.unwrap());

    let first = one.acquire("orders/1001").await.unwrap();
    assert!(two.try_acquire("orders/1001").await.unwrap().is_none());
    assert!(two.try_acquire("orders/1002").await.unwrap().is_some());
    let gave_up = two.named("orders/1001").wait_at_most(Duration::from_secs(1)).acquire().await.unwrap_err();
    assert_eq!(gave_up.kind(), ErrorKind::Timeout);

    let (waiter, token) = (two.named("orders/1001"), first.token());
    let waiting = tokio::spawn(async move { waiter.acquire().await });
    first.release().await.unwrap();
    let second = waiting.await.unwrap().unwrap();
    assert!(second.token() > token);
    assert!(one.try_acquire("orders/1001").await.unwrap().is_none());
    second.release().await.unwrap();
}

#[tokio::test]
async fn what_the_file_cannot_give_is_refused_at_connect() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", dir.path().join("locks.db").display());
    let refused = fencelock::builder(&url).require(Level::Replicated).connect().await.unwrap_err();
    assert_eq!((refused.kind(), refused.engine()), (ErrorKind::Refused, Some("sqlite")));
    assert_eq!(fencelock::connect(&url).await.unwrap().guarantees().scope(), Scope::Host);
}
