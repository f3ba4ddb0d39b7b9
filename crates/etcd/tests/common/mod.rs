//! What the fault tests share.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a test; each uses some of it"
)]

use fencelock_core::{AcquireOptions, LockClient, LockGuard, Wait};
use fencelock_etcd::etcd_client::{Client, GetOptions};
use fencelock_etcd::{EtcdConfig, EtcdLock};
use fencelock_lab::Etcd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub(crate) const TTL: Duration = Duration::from_secs(3);
/// The longest that anything which must happen may take on a loaded machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) fn config(etcd: &Etcd) -> EtcdConfig {
    EtcdConfig::new(etcd.endpoints())
}

pub(crate) async fn client(etcd: &Etcd) -> LockClient {
    connect(config(etcd)).await
}

pub(crate) async fn connect(config: EtcdConfig) -> LockClient {
    let mut options = AcquireOptions::default();
    (options.ttl, options.wait) = (TTL, Wait::AtMost(LONG));
    let engine = fencelock_lab::connected(|| EtcdLock::connect(config.clone())).await.unwrap();
    LockClient::builder(engine).defaults(options).build().unwrap()
}

/// A plain connection to the store.
pub(crate) async fn plain(etcd: &Etcd) -> Client {
    Client::connect(etcd.endpoints(), None).await.unwrap()
}

pub(crate) async fn keys(etcd: &Etcd, beginning: &str) -> Vec<String> {
    let found = plain(etcd).await.get(beginning, Some(GetOptions::new().with_prefix().with_keys_only())).await.unwrap();
    found.kvs().iter().map(|kv| kv.key_str().unwrap().to_owned()).collect()
}

pub(crate) async fn leases(etcd: &Etcd) -> usize {
    plain(etcd).await.leases().await.unwrap().leases().len()
}

pub(crate) async fn revision(etcd: &Etcd) -> i64 {
    plain(etcd).await.get("none", None).await.unwrap().header().unwrap().revision()
}

pub(crate) async fn until(what: &str, limit: Duration, mut holds: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + limit;
    while !holds().await {
        assert!(Instant::now() < end, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until each has been renewed from now on, and none is in doubt. What is lost is never renewed again.
pub(crate) async fn renewed(guards: impl IntoIterator<Item = &LockGuard>) {
    let guards: Vec<_> = guards.into_iter().map(|guard| (guard, guard.monitor().deadline())).collect();
    until("renewed", LONG, async || {
        guards.iter().all(|(guard, before)| {
            assert!(guard.is_held(), "{} is lost", guard.name());
            guard.monitor().deadline() > *before && !guard.in_jeopardy()
        })
    })
    .await;
}

/// Waits until so many places are in the queue of the name.
pub(crate) async fn queued(etcd: &Etcd, name: &str, count: usize) {
    let queue = format!("fencelock/l/{name}/");
    until("they are all queued", LONG, async || keys(etcd, &queue).await.len() == count).await;
}

/// One hold: who, its token, and from when to when it was believed.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) who: usize,
    pub(crate) token: u64,
    pub(crate) from: Instant,
    pub(crate) to: Instant,
}

/// Holds as they were believed, from all clients of a test.
#[derive(Clone, Default)]
pub(crate) struct History(Arc<Mutex<Vec<Held>>>);

impl History {
    /// Holds until the work is done or the loss is told, and notes it; the last moment believed is read before each question.
    pub(crate) async fn hold(&self, who: usize, guard: &LockGuard, work: impl Future<Output = ()>) {
        let from = Instant::now();
        let mut to = from;
        let mut work = Box::pin(work);
        loop {
            let asked = Instant::now();
            if !guard.is_held() {
                break;
            }
            to = asked;
            tokio::select! {
                () = &mut work => break,
                () = tokio::time::sleep(Duration::from_millis(1)) => {}
            }
        }
        let held = Held { who, token: guard.token().get(), from, to };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(held);
    }

    /// The holds in the order of their beginnings, having seen that no two overlap and that tokens grow.
    pub(crate) fn checked(&self) -> Vec<Held> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        held.sort_by_key(|held| held.from);
        for pair in held.windows(2) {
            assert!(pair[0].to <= pair[1].from, "two held at once: {pair:?}");
            assert!(pair[0].token < pair[1].token, "a token did not grow: {pair:?}");
        }
        held
    }
}
