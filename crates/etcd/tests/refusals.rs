//! A full store, expired tokens, permissions, another layout: each survived or told.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stderr, missing_docs, reason = "a test")]

mod common;

use common::{LONG, client, config, connect, keys, plain, renewed, until};
use fencelock_core::{ErrorKind, LockClient, Secret};
use fencelock_etcd::EtcdLock;
use fencelock_etcd::etcd_client::DeleteOptions;
use fencelock_lab::{Etcd, EtcdSettings};
use std::process::Command;
use std::time::Duration;

/// Holds go on and are released; acquires are refused with what to do; when there is room again all is well.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_store_refuses_acquires_and_keeps_holds() {
    let settings = EtcdSettings::default().with_arguments(["--quota-backend-bytes", "400000"]);
    let etcd = Etcd::start_with(&settings).unwrap();
    let one = client(&etcd).await;
    let guard = one.acquire("held").await.unwrap();
    let mut store = plain(&etcd).await;
    let mut filled = 0;
    while store.put(format!("fill/{filled}"), vec![b'x'; 20_000], None).await.is_ok() {
        filled += 1;
        assert!(filled < 1_000);
    }
    let refused = one.acquire("new").await.unwrap_err();
    eprintln!("the store is full: {refused}");
    assert_eq!(refused.kind(), ErrorKind::Engine);
    assert!(refused.message().contains("NOSPACE"), "{refused}");
    // Connecting needs no room, and neither does a hold.
    let two = client(&etcd).await;
    assert!(two.try_acquire("held").await.is_err_and(|e| e.kind() == ErrorKind::Engine));
    // Keepalives need no room. One may have been under way.
    renewed([&guard]).await;
    renewed([&guard]).await;
    guard.release().await.unwrap();
    assert_eq!(keys(&etcd, "fencelock/l/").await, [""; 0]);

    let delete = DeleteOptions::new().with_prefix();
    store.delete("fill/", Some(delete)).await.unwrap();
    let revision = common::revision(&etcd).await;
    etcd.ctl(["compact", &revision.to_string()]).unwrap();
    etcd.ctl(["defrag"]).unwrap();
    etcd.ctl(["alarm", "disarm"]).unwrap();
    let again = one.acquire("new").await.unwrap();
    again.release().await.unwrap();
    until("nothing is pending", LONG, async || one.pending() == 0).await;
}

fn signed(folder: &std::path::Path, ttl: &str) -> String {
    let key = |name: &str| folder.join(name).display().to_string();
    format!("jwt,pub-key={},priv-key={},sign-method=RS256,ttl={ttl}", key("pub.pem"), key("key.pem"))
}

/// A server whose tokens are signed and end after 2 s.
fn with_tokens(folder: &std::path::Path) -> Etcd {
    for arguments in
        [["genrsa", "-out", "key.pem", "2048"].as_slice(), &["rsa", "-in", "key.pem", "-pubout", "-out", "pub.pem"]]
    {
        let made = Command::new("openssl").args(arguments).current_dir(folder).output().unwrap();
        assert!(made.status.success());
    }
    let token = signed(folder, "2s");
    let etcd = Etcd::start_with(&EtcdSettings::default().with_arguments(["--auth-token", &token])).unwrap();
    for words in [
        "user add root:secret",
        "role add root",
        "user grant-role root root",
        "user add app:word",
        "role add app",
        "role grant-permission --prefix=true app readwrite fencelock/",
        "user grant-role app app",
        "auth enable",
    ] {
        etcd.ctl(words.split(' ')).unwrap();
    }
    etcd
}

async fn works(one: &LockClient, name: &str) {
    let guard = one.acquire(name).await.unwrap();
    assert!(one.try_acquire(name).await.unwrap().is_none());
    guard.release().await.unwrap();
}

/// Tokens expire while a lock is held, waited for and released: each is renewed unnoticed.
#[tokio::test(flavor = "multi_thread")]
async fn expired_tokens_are_renewed() {
    let folder = tempfile::tempdir().unwrap();
    let etcd = with_tokens(folder.path());
    let config = || config(&etcd).with_user("app", Secret::new("word"));
    let (holder, waiter) = (connect(config()).await, connect(config()).await);
    let guard = holder.acquire("a").await.unwrap();
    let lock = waiter.named("a");
    let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
    tokio::time::sleep(Duration::from_secs(7)).await;
    // Three tokens later.
    renewed([&guard]).await;
    guard.release().await.unwrap();
    let released = std::time::Instant::now();
    let next = tokio::time::timeout(LONG, waiting).await.unwrap().unwrap();
    eprintln!("handed over {:?} after the release, with tokens that had expired", released.elapsed());
    assert!(released.elapsed() < Duration::from_secs(15));
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(next.is_held());
    // A loss is heard too, on a stream whose token has expired.
    let root = ["--user", "root:secret", "del", next.evidence().get("key").unwrap()].map(str::to_owned);
    etcd.ctl(root).unwrap();
    tokio::time::timeout(LONG, next.lost()).await.unwrap();
    works(&holder, "b").await;
    // Whoever changes permissions makes every token old at once.
    etcd.ctl(["--user", "root:secret", "role", "add", "other"]).unwrap();
    works(&holder, "c").await;
    works(&waiter, "c").await;
}

/// However many tokens have expired before: a new watch that the server takes back costs a new stream and no more.
#[tokio::test(flavor = "multi_thread")]
async fn many_expired_tokens_make_no_handover_slower() {
    let folder = tempfile::tempdir().unwrap();
    let etcd = with_tokens(folder.path());
    let config = || config(&etcd).with_user("app", Secret::new("word"));
    let (holder, waiter) = (connect(config()).await, connect(config()).await);
    let (mut took, long) = (Vec::new(), Duration::from_secs(20));
    for _ in 0..9 {
        let guard = holder.named("a").ttl(long).acquire().await.unwrap();
        let lock = waiter.named("a").ttl(long);
        let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
        // By now the stream's token has expired, and the watch of this waiter has been taken back.
        tokio::time::sleep(Duration::from_millis(2_200)).await;
        let released = std::time::Instant::now();
        guard.release().await.unwrap();
        tokio::time::timeout(LONG, waiting).await.unwrap().unwrap().release().await.unwrap();
        took.push(released.elapsed());
    }
    took.sort_unstable();
    eprintln!("the handovers took {took:?}");
    // The machine may stand still in one or two of them.
    assert!(took[6] < Duration::from_secs(2), "{took:?}");
}

/// For a while nearly every token has expired when it arrives, new ones too: a try is granted or says within its limit
/// that it got no answer, a waiter keeps its place and the holder its lock, and both go on when tokens last again.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_that_hardly_last_are_waited_out() {
    let folder = tempfile::tempdir().unwrap();
    let mut etcd = with_tokens(folder.path());
    let config = || config(&etcd).with_user("app", Secret::new("word"));
    let (holder, waiter) = (connect(config()).await, connect(config()).await);
    let long = Duration::from_secs(40);
    let guard = holder.named("a").ttl(long).acquire().await.unwrap();
    let lock = waiter.named("a").ttl(long);
    let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
    tokio::time::sleep(Duration::from_secs(1)).await;
    etcd.restart_with(0, ["--auth-token", &signed(folder.path(), "1ms")]).unwrap();
    let asked = std::time::Instant::now();
    for _ in 0..3 {
        match holder.try_acquire("b").await {
            Ok(granted) => drop(granted),
            Err(refused) => {
                eprintln!("with tokens that hardly last: {refused} after {:?}", asked.elapsed());
                assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
            }
        }
    }
    // The lease, the lock, and the traces of a try whose answer was lost, in 2 s each.
    assert!(asked.elapsed() < Duration::from_secs(3 * 3 * 2 + 15), "{:?}", asked.elapsed());
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(!waiting.is_finished() && guard.is_held());
    etcd.restart_with(0, ["--auth-token", &signed(folder.path(), "2s")]).unwrap();
    until("it is released", LONG, async || holder.try_acquire("b").await.is_ok_and(|b| b.is_some())).await;
    guard.release().await.unwrap();
    let next = tokio::time::timeout(LONG, waiting).await.unwrap().unwrap();
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let etcd = with_tokens(folder.path());
    let denied = |outcome: fencelock_core::Result<std::sync::Arc<EtcdLock>>, word: &str| {
        let e = outcome.err().unwrap();
        assert_eq!(e.kind(), ErrorKind::Denied, "{e}");
        assert!(!format!("{e} {e:?}").contains(word));
    };
    denied(EtcdLock::connect(config(&etcd)).await, "never");
    denied(EtcdLock::connect(config(&etcd).with_user("app", Secret::new("wrong-word"))).await, "wrong-word");
    denied(
        EtcdLock::connect(config(&etcd).with_prefix("theirs").with_user("app", Secret::new("word"))).await,
        "word\"",
    );
    // Taken away while connected: told, and nothing is retried for ever.
    let one = connect(config(&etcd).with_user("app", Secret::new("word"))).await;
    works(&one, "a").await;
    eprintln!("such a user is told of {}, level {:?}", one.guarantees().deployment(), one.guarantees().level());
    etcd.ctl("--user root:secret role revoke-permission --prefix=true app fencelock/".split(' ')).unwrap();
    let e = one.acquire("a").await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Denied, "{e}");
    until("nothing is pending", Duration::from_secs(30), async || one.pending() == 0).await;
}

/// Who is not let in any more is told so while connected too: nobody waits for a proof that will not come.
#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_any_more_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let etcd = with_tokens(folder.path());
    let config = || config(&etcd).with_user("app", Secret::new("word"));
    let (one, two) = (connect(config()).await, connect(config()).await);
    let guard = one.acquire("a").await.unwrap();
    let lock = two.named("a");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    etcd.ctl(["--user", "root:secret", "user", "delete", "app"]).unwrap();
    for pause in [0, 4] {
        tokio::time::sleep(Duration::from_secs(pause)).await;
        let asked = std::time::Instant::now();
        let e = tokio::time::timeout(LONG, one.acquire("b")).await.unwrap().unwrap_err();
        eprintln!("told {e} after {:?}", asked.elapsed());
        assert!(e.kind() == ErrorKind::Denied && asked.elapsed() < Duration::from_secs(20), "{e}");
    }
    let e = tokio::time::timeout(LONG, waiting).await.unwrap().unwrap().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Denied, "{e}");
    drop(guard);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_layout_is_refused() {
    let etcd = Etcd::start().unwrap();
    client(&etcd).await;
    plain(&etcd).await.put("fencelock/meta", "fencelock-etcd 1", None).await.unwrap();
    let e = EtcdLock::connect(config(&etcd)).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Refused, "{e}");
    assert!(e.message().contains("fencelock-etcd 1"));
    works(&connect(config(&etcd).with_prefix("other")).await, "a").await;
}

/// A name that leads nowhere is told within the limits, not waited for.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_there_is_unavailable() {
    let dead = format!("127.0.0.1:{}", fencelock_lab::free_port());
    let config = fencelock_etcd::EtcdConfig::new([dead]).with_request_timeout(Duration::from_millis(500));
    let e = EtcdLock::connect(config).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
}
