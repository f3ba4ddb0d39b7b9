//! A user with no more permissions than the crate's page lists.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs, reason = "a test")]

mod common;

use common::{operator, renewed};
use fencelock_core::{EngineUrl, ErrorKind, LockClient};
use fencelock_lab::RedisNodes;
use fencelock_redlock::{RedlockConfig, RedlockLock};
use std::time::Duration;

/// As in README.md.
fn permissions() -> Vec<String> {
    let page = include_str!("../README.md");
    let list = page.split("An ACL user needs ").nth(1).unwrap().split("to re-seed").next().unwrap();
    let words = list.split(|c: char| c.is_whitespace() || matches!(c, '`' | ',' | ';'));
    words.filter(|word| word.starts_with(['+', '~', '&'])).map(|word| word.replace("<prefix>", "redlock")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_listed_permissions_are_enough() {
    let nodes = RedisNodes::start(3).unwrap();
    operator(&nodes).init(0).await.unwrap();
    let permissions = permissions();
    assert!(permissions.len() > 20, "{permissions:?}");
    for node in nodes.nodes() {
        let mut words = vec!["ACL", "SETUSER", "app", "on", ">hush", "-@all"];
        words.extend(permissions.iter().map(String::as_str));
        assert!(node.command(&words).unwrap().starts_with("+OK"), "{words:?}");
    }
    let config = |who: &str| {
        let url = EngineUrl::parse(&format!("redlock://{who}@{}?request_timeout=1s", nodes.addresses())).unwrap();
        RedlockConfig::from_url(&url).unwrap()
    };
    let wrong = RedlockLock::connect(config("app:guess")).await.unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::Denied, "{wrong}");
    assert!(!format!("{wrong:?}").contains("guess"));
    let engine = RedlockLock::connect(config("app:hush")).await.unwrap();
    let client = LockClient::builder(engine).build().unwrap();
    let guard = client.named("a").ttl(Duration::from_secs(5)).acquire().await.unwrap();
    let waiter = {
        let client = client.clone();
        tokio::spawn(async move { client.named("a").lock_delay(Duration::from_millis(50)).acquire().await })
    };
    renewed([&guard]).await;
    assert!(client.inspect("a").await.unwrap().is_some());
    assert_eq!(client.list("").await.unwrap().len(), 1);
    guard.release().await.unwrap();
    let next = waiter.await.unwrap().unwrap();
    assert!(client.force_release("a").await.unwrap());
    assert!(client.inspect("a").await.unwrap().is_none());
    drop(next);
}
