//! The tables: names, voids, shapes, purging.

use super::*;
use fencelock_core::Admin as _;

pub(crate) async fn every_name_is_a_lock_of_its_own<D: Db>() {
    let db = D::start();
    let engine = db.engine().await;
    let long = "n".repeat(512);
    let nearly = format!("{}m", "n".repeat(511));
    let names = [
        "a", "A", "a ", "a/b", "a{b}", "a%", "a_", "鍵", "ключ", "e\u{301}", "é", "🔒", "1", "01", " 1", &long, &nearly,
    ];
    for name in names {
        granted(&engine, &claim(name, ms(60_000))).await;
    }
    let mut held: Vec<_> = names.into_iter().collect();
    held.sort_unstable();
    let listed = engine.admin().unwrap().list("").await.unwrap();
    assert_eq!(listed.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), held);
    let under = engine.admin().unwrap().list("a").await.unwrap();
    assert_eq!(under.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["a", "a ", "a%", "a/b", "a_", "a{b}"]);
}

pub(crate) async fn ids_die_and_tokens_stay<D: Db>() {
    let db = D::start();
    let engine = db.engine().await;
    let mine = claim("a", ms(2_500));
    let first = granted(&engine, &mine).await;
    let again = granted(&engine, &mine).await;
    assert_eq!(first.token, again.token, "the hold's own");
    contended(&engine, &claim("a", ms(2_500))).await;
    tokio::time::sleep(ms(2_600)).await;
    dead(&engine, &mine).await;
    let next = granted(&engine, &claim("a", ms(60_000))).await;
    assert!(next.token > first.token);
    assert_eq!(first.lease.release().await.unwrap_err().kind(), ErrorKind::Lost);
    next.lease.release().await.unwrap();
    // Never back: a copy that asks for less comes after one that gave more.
    let mine = claim("b", ms(60_000));
    granted(&engine, &mine).await;
    let before = engine.inspect(mine.name()).await.unwrap().unwrap().remaining.unwrap();
    db.run("UPDATE fencelock_locks SET expires_at = expires_at + 60000000 WHERE holder = 'tester' AND expires_at > 0")
        .await;
    granted(&engine, &mine).await;
    let after = engine.inspect(mine.name()).await.unwrap().unwrap().remaining.unwrap();
    assert!(after > before + ms(50_000), "{before:?} {after:?}");
    // A void beats the acquire that comes late, and is cleaned when its time is up.
    let late = claim("c", ms(1_000));
    drop(late.request());
    engine.abandon(&late).await.unwrap();
    dead(&engine, &late).await;
    db.run("UPDATE fencelock_locks_voids SET expires_at = 1").await;
    let other = claim("c", ms(1_000));
    drop(other.request());
    engine.abandon(&other).await.unwrap();
    assert_eq!(db.number("SELECT count(*) FROM fencelock_locks_voids").await, 1);
    let odd = Terms::new(LockName::new("d").unwrap(), ms(1_000)).with_note("no\0te").with_holder("h\0").mint().unwrap();
    match engine.try_acquire(&odd).await {
        Ok(_) => {}
        Err(e) => assert!(e.kind() == ErrorKind::Engine && !odd.is_unanswered(), "{e}"),
    }
}

pub(crate) async fn tokens_grow_past_a_base<D: Db>() {
    let db = D::start();
    let url = format!("{}?token_base=8000000000000000000&connections=1", db.url());
    let engine = D::connect(&url).await.unwrap();
    let first = granted(&engine, &claim("a", ms(60_000))).await;
    assert_eq!(first.token.get(), 8_000_000_000_000_000_001);
    first.lease.release().await.unwrap();
    let plain = db.engine().await;
    assert_eq!(granted(&plain, &claim("a", ms(1_000))).await.token.get(), 8_000_000_000_000_000_002);
    let unix = u64::try_from(db.number(&format!("SELECT {}", D::NOW)).await).unwrap();
    let now = granted(&plain, &claim("b", ms(1_000))).await.token.get();
    assert!(now > unix - 10_000_000 && now < unix + 10_000_000, "the server's time otherwise");
}

/// Beside clients that go on; the clock is taken back by giving tokens ahead of it.
pub(crate) async fn purging_repeats_no_token<D: Db>() {
    let db = D::start();
    let engine = db.engine().await;
    let client = db.client().await;
    let kept = client.named("kept").ttl(ms(60_000)).acquire().await.unwrap();
    for n in 0..150 {
        client.acquire(&format!("old/{n}")).await.unwrap().release().await.unwrap();
    }
    let crashed = claim("old/crashed", ms(60_000));
    let _crashed = granted(&engine, &crashed).await;
    client.acquire("young").await.unwrap().release().await.unwrap();
    let ahead = 5_000_000_000_000_000_i64;
    let long_ago = format!("{} - 7200000000", D::NOW);
    db.run(&format!(
        "UPDATE fencelock_locks SET acquired_at = {long_ago}, token = token + {ahead} WHERE acquired_at > 0"
    ))
    .await;
    db.run(&format!("UPDATE fencelock_locks SET expires_at = {long_ago} WHERE holder = 'tester'")).await;
    db.run(&format!("UPDATE fencelock_locks SET acquired_at = {} WHERE name = 'young'", D::NOW)).await;
    let newest = db.number("SELECT max(token) FROM fencelock_locks WHERE name NOT IN ('kept', 'young')").await;

    assert_eq!(engine.purge(ms(1_000)).await.unwrap_err().kind(), ErrorKind::InvalidConfig);
    let first = db.number("SELECT token FROM fencelock_locks WHERE name = 'old/0'").await;
    let busy = client.clone();
    let busy = tokio::spawn(async move {
        let mut last = u64::try_from(first).unwrap();
        for n in 0..60 {
            let guard = busy.named("old/0").wait_at_most(ms(30_000)).acquire().await.unwrap();
            assert!(guard.token().get() > last, "{n}");
            last = guard.token().get();
            guard.release().await.unwrap();
            tokio::time::sleep(ms(50)).await;
        }
    });
    let purged = engine.purge(ms(3_600_000)).await.unwrap();
    busy.await.unwrap();
    assert!(purged == 151 || purged == 150, "{purged}");
    assert!(kept.is_held());
    assert_eq!(db.number("SELECT count(*) FROM fencelock_locks WHERE name IN ('kept', 'young')").await, 2);
    for n in 1..150 {
        let guard = client.acquire(&format!("old/{n}")).await.unwrap();
        assert!(guard.token().as_i64() > newest, "{n}: {} after {newest}", guard.token());
        guard.release().await.unwrap();
    }
    assert!(client.acquire("old/crashed").await.unwrap().token().as_i64() > newest);
    assert!(client.list("").await.unwrap().iter().all(|(name, _)| !name.as_str().is_empty()));
}

/// The statements in the error make tables that are then accepted.
pub(crate) async fn the_printed_statements_are_right<D: Db>() {
    let db = D::start();
    let url = format!("{}?create=false&table=odd_Name", db.url());
    let e = D::connect(&url).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{e}");
    let statements = e.message().split_once("runs:\n").unwrap().1.to_owned();
    db.run(&statements).await;
    let engine = D::connect(&url).await.unwrap();
    let grant = granted(&engine, &claim("a", ms(60_000))).await;
    assert_eq!(grant.lease.evidence().get("table"), Some("odd_Name"));
    contended(&engine, &claim("a", ms(1_000))).await;
    let plain = db.engine().await;
    granted(&plain, &claim("a", ms(1_000))).await; // another table, another lock
}

pub(crate) async fn wrong_shapes_are_refused<D: Db>(wrong: &[&str]) {
    let db = D::start();
    db.engine().await;
    db.run("UPDATE fencelock_locks_meta SET value = 2").await;
    let e = D::connect(&db.url()).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Refused, "{e}");
    db.run("UPDATE fencelock_locks_meta SET value = 1").await;
    db.engine().await;
    for sql in wrong {
        db.run("DROP TABLE fencelock_locks").await;
        db.engine().await;
        db.run(sql).await;
        let e = D::connect(&db.url()).await.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{sql}: {e}");
        assert!(e.message().contains("CREATE TABLE"), "{e}");
    }
    db.run("DROP TABLE fencelock_locks").await;
    let (mut tasks, url) = (tokio::task::JoinSet::new(), db.url());
    db.run("DROP TABLE fencelock_locks_voids").await;
    for _ in 0..10 {
        let url = url.clone();
        tasks.spawn(async move { D::connect(&url).await.map(drop) });
    }
    while let Some(opened) = tasks.join_next().await {
        opened.unwrap().unwrap(); // many may make them at once
    }
}
