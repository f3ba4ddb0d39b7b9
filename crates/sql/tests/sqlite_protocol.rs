//! Tokens, claim ids, undo and names, statement by statement.
#![cfg(feature = "sqlite")]
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests"
)]

mod sqlite;

use fencelock_core::{Attempt, DistributedLock, ErrorKind, LockClient};
use fencelock_sql::SqlLock;
use sqlite::*;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

#[tokio::test]
async fn tokens_grow_and_survive_reopening() {
    let file = File::new();
    let mut last = 0;
    for _ in 0..3 {
        let engine = file.engine().await;
        for _ in 0..3 {
            let grant = granted(&engine, &claim("a", ms(1000))).await;
            assert!(grant.token.get() > last, "{} after {last}", grant.token);
            last = grant.token.get();
            grant.lease.release().await.unwrap();
        }
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros();
    assert!(u128::from(last) <= now && u128::from(last) > now - 60_000_000, "the floor is Unix time: {last} at {now}");
}

#[tokio::test]
async fn tokens_grow_past_a_base_and_past_what_was_stored() {
    let file = File::new();
    let base = u64::try_from(i64::MAX).unwrap() - 10;
    let engine = SqlLock::sqlite(file.config().with_token_base(base)).await.unwrap();
    for above in 1..=9 {
        let grant = granted(&engine, &claim("a", ms(1000))).await;
        assert_eq!(grant.token.get(), base + above);
        grant.lease.release().await.unwrap();
    }
    // Another engine without the base goes on from the row.
    let grant = granted(&*file.engine().await, &claim("a", ms(1000))).await;
    assert_eq!(grant.token.get(), base + 10);
    grant.lease.release().await.unwrap();
    let spent = engine.try_acquire(&claim("a", ms(1000))).await.unwrap_err();
    assert_eq!(spent.kind(), ErrorKind::Engine, "no token is left, and none is given twice: {spent}");
}

#[tokio::test]
async fn the_same_claim_again_gets_the_same_token_and_more_time() {
    let file = File::new();
    let engine = file.engine().await;
    let mine = claim("a", ms(40_000));
    let first = granted(&engine, &mine).await;
    // As if most of its time had passed.
    file.run("UPDATE fencelock_locks SET expires_at = expires_at - 30000000").await;
    assert!(contended(&engine, &claim("a", ms(400))).await.unwrap() <= ms(10_000));
    let again = granted(&engine, &mine).await;
    assert_eq!(again.token, first.token);
    let left = contended(&engine, &claim("a", ms(400))).await.unwrap();
    assert!(left > ms(20_000) && left <= ms(40_000), "{left:?}");
}

#[tokio::test]
async fn dead_ids_stay_dead() {
    let file = File::new();
    let engine = file.engine().await;

    let released = claim("a", ms(60_000));
    granted(&engine, &released).await.lease.release().await.unwrap();
    dead(&engine, &released).await;

    let abandoned = claim("a", ms(1000));
    let grant = granted(&engine, &abandoned).await;
    engine.abandon(&abandoned).await.unwrap();
    dead(&engine, &abandoned).await;
    assert_eq!(grant.lease.release().await.unwrap_err().kind(), ErrorKind::Lost);

    let expired = claim("a", ms(50));
    let _grant = granted(&engine, &expired).await;
    tokio::time::sleep(ms(60)).await;
    dead(&engine, &expired).await;

    // Nor do they come back once others have been there.
    granted(&engine, &claim("a", ms(60_000))).await.lease.release().await.unwrap();
    dead(&engine, &abandoned).await;
}

#[tokio::test]
async fn an_abandoned_try_that_was_contended_is_dead_too() {
    let file = File::new();
    let engine = file.engine().await;
    let holder = granted(&engine, &claim("a", ms(60_000))).await;
    let late = claim("a", ms(1000));
    contended(&engine, &late).await;
    engine.abandon(&late).await.unwrap();
    holder.lease.release().await.unwrap();
    dead(&engine, &late).await;
    assert!(engine.inspect(late.name()).await.unwrap().is_none());
}

#[tokio::test]
async fn a_void_beats_the_acquire_that_comes_late() {
    let file = File::new();
    let engine = file.engine().await;
    let late = claim("a", ms(1000));
    drop(late.request()); // sent, and never answered
    engine.abandon(&late).await.unwrap();
    dead(&engine, &late).await;
    assert!(engine.inspect(late.name()).await.unwrap().is_none(), "it took nothing");
}

#[tokio::test]
async fn an_abandon_of_what_was_never_sent_asks_nobody() {
    let file = File::new();
    let engine = file.engine().await;
    let never = claim("a", ms(1000));
    std::fs::remove_file(&file.path).unwrap();
    engine.abandon(&never).await.unwrap();
}

#[tokio::test]
async fn release_of_an_unanswered_claim_voids_it() {
    let file = File::new();
    let engine = file.engine().await;
    let mine = claim("a", ms(60_000));
    drop(mine.request());
    granted(&engine, &mine).await.lease.release().await.unwrap();
    granted(&engine, &claim("a", ms(60_000))).await.lease.release().await.unwrap();
    dead(&engine, &mine).await;
}

#[tokio::test]
async fn old_voids_are_cleaned_and_foreign_ones_kept_for_a_day() {
    let file = File::new();
    let engine = file.engine().await;
    let first = claim("a", ms(1000));
    drop(first.request());
    engine.abandon(&first).await.unwrap();
    file.run("UPDATE fencelock_voids SET expires_at = 1").await;
    file.run("INSERT INTO fencelock_voids VALUES (x'01', 1, 'another boot')").await;
    for _ in 0..2 {
        let next = claim("b", ms(1000));
        drop(next.request());
        engine.abandon(&next).await.unwrap();
    }
    let left: Vec<String> = sqlx::query_scalar("SELECT boot_id FROM fencelock_voids ORDER BY boot_id")
        .fetch_all(&mut file.raw().await)
        .await
        .unwrap();
    assert_eq!(left.len(), 3, "{left:?}");
    assert_eq!(left[0], "", "the foreign one is on the wall clock now");
}

#[tokio::test]
async fn every_name_is_a_lock_of_its_own() {
    let file = File::new();
    let engine = file.engine().await;
    let long = "n".repeat(512);
    let nearly = format!("{}m", "n".repeat(511));
    let names =
        ["a", "A", "a/b", "a{b}", "a%", "a_", "鍵", "ключ", "e\u{301}", "é", "🔒", "1", "01", " 1", &long, &nearly];
    let mut grants = Vec::new();
    for name in names {
        grants.push(granted(&engine, &claim(name, ms(60_000))).await);
    }
    let mut held: Vec<_> = names.into_iter().collect();
    held.sort_unstable();
    let listed = engine.admin().unwrap().list("").await.unwrap();
    assert_eq!(listed.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), held);
    let under = engine.admin().unwrap().list("a").await.unwrap();
    assert_eq!(under.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["a", "a%", "a/b", "a_", "a{b}"]);
}

#[tokio::test]
async fn inspect_tells_who_and_for_how_long() {
    let file = File::new();
    let engine = file.engine().await;
    let mine = terms("a", ms(60_000)).with_note("req-7").with_lock_delay(ms(30_000)).mint().unwrap();
    let grant = granted(&engine, &mine).await;
    tokio::time::sleep(ms(20)).await;
    let info = file.engine().await.inspect(mine.name()).await.unwrap().unwrap();
    assert_eq!((&*info.holder, info.note.as_deref(), info.token), ("tester", Some("req-7"), grant.token));
    assert!(info.remaining.unwrap() > ms(70_000) && info.remaining.unwrap() < ms(90_000), "{info:?}");
    assert!(info.held_for.unwrap() >= ms(20) && info.held_for.unwrap() < ms(20_000), "{info:?}");
    assert_eq!(grant.ttl, ms(60_000));
    grant.lease.release().await.unwrap();
    assert!(engine.inspect(mine.name()).await.unwrap().is_none(), "release frees at once, lock delay or not");
}

#[tokio::test]
async fn what_force_release_frees_is_told_to_its_holder() {
    let file = File::new();
    let (one, other) = (file.client().await, file.client().await);
    let guard = one.named("a").ttl(ms(6_000)).acquire().await.unwrap();
    assert!(other.force_release("a").await.unwrap());
    assert!(!other.force_release("a").await.unwrap());
    let next = other.try_acquire("a").await.unwrap().unwrap();
    assert!(next.token() > guard.token());
    let reason = tokio::time::timeout(ms(20_000), guard.lost()).await.unwrap();
    assert_eq!(reason, fencelock_core::LossReason::Revoked);
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    next.release().await.unwrap();
}

#[tokio::test]
async fn a_forced_release_keeps_the_lock_delay() {
    let file = File::new();
    let (one, other, engine) = (file.client().await, file.client().await, file.engine().await);
    let guard = one.named("a").ttl(ms(8_000)).lock_delay(ms(4_000)).acquire().await.unwrap();
    let waiting = other.clone();
    let waiting = tokio::spawn(async move { waiting.named("a").wait_at_most(ms(20_000)).acquire().await.unwrap() });
    tokio::time::sleep(ms(100)).await;
    let forced = std::time::Instant::now();
    assert!(other.force_release("a").await.unwrap());
    assert!(!other.force_release("a").await.unwrap(), "nobody holds it");
    assert!(other.inspect("a").await.unwrap().is_none() && other.list("").await.unwrap().is_empty());
    match engine.try_acquire(&claim("a", ms(500))).await.unwrap() {
        Attempt::Contended { retry_after: Some(left), holder: None, .. } => assert!(left <= ms(4_000), "{left:?}"),
        other => panic!("not closed: {other:?}"),
    }
    assert_eq!(guard.lost().await, fencelock_core::LossReason::Revoked);
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    let next = waiting.await.unwrap();
    assert!(forced.elapsed() >= ms(3_990), "{:?}", forced.elapsed());
    assert!(forced.elapsed() < ms(15_000), "{:?}", forced.elapsed());
    next.release().await.unwrap();
}

#[tokio::test]
async fn what_a_forced_release_leaves() {
    let file = File::new();
    let engine = file.engine().await;
    let mine = terms("a", ms(500)).with_lock_delay(ms(60_000)).mint().unwrap();
    let first = granted(&engine, &mine).await;
    // Held by another container: what is left is not known, and the delay is the most.
    file.run("UPDATE fencelock_locks SET boot_id = 'another boot', delay = 2500000").await;
    assert!(engine.admin().unwrap().force_release(mine.name()).await.unwrap());
    contended(&engine, &claim("a", ms(500))).await;
    engine.abandon(&mine).await.unwrap();
    contended(&engine, &claim("a", ms(500))).await;
    tokio::time::sleep(ms(2550)).await;
    dead(&engine, &mine).await;
    let next = granted(&engine, &claim("a", ms(60_000))).await;
    assert!(next.token > first.token);
    assert!(engine.admin().unwrap().force_release(mine.name()).await.unwrap());
    granted(&engine, &claim("a", ms(500))).await; // without a delay it is free at once
    // A closed lock that another container closed is waited out for its delay, not for the ttl.
    let mine = terms("b", ms(60_000)).with_lock_delay(ms(400)).mint().unwrap();
    granted(&engine, &mine).await;
    assert!(engine.admin().unwrap().force_release(mine.name()).await.unwrap());
    file.run("UPDATE fencelock_locks SET boot_id = 'another boot' WHERE name = CAST('b' AS BLOB)").await;
    contended(&engine, &claim("b", ms(500))).await;
    tokio::time::sleep(ms(450)).await;
    granted(&engine, &claim("b", ms(500))).await;
}

#[tokio::test]
async fn a_lock_is_taken_over_when_its_time_is_up_and_no_sooner() {
    let file = File::new();
    let (one, other) = (file.engine().await, file.engine().await);
    let crashed = granted(&one, &claim("a", ms(300))).await;
    let started = std::time::Instant::now();
    let client = LockClient::new(other).unwrap();
    let guard = client.named("a").wait_at_most(ms(20_000)).acquire().await.unwrap();
    let waited = started.elapsed();
    assert!(waited >= ms(280) && waited < ms(10_000), "{waited:?}");
    assert!(guard.token() > crashed.token);
    assert_eq!(crashed.lease.release().await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(guard.is_held() && file.client().await.try_acquire("a").await.unwrap().is_none(), "the thief's hold stays");
}

#[tokio::test]
async fn a_hold_outlives_its_ttl_while_it_is_renewed() {
    let file = File::new();
    let (one, other) = (file.client().await, file.client().await);
    let guard = one.named("a").ttl(ms(4_000)).acquire().await.unwrap();
    for _ in 0..16 {
        tokio::time::sleep(ms(300)).await;
        assert!(guard.is_held() && other.try_acquire("a").await.unwrap().is_none());
    }
    let fixed = one.named("b").ttl(ms(2_500)).auto_renew(false).acquire().await.unwrap();
    fixed.extend(ms(20_000)).await.unwrap();
    tokio::time::sleep(ms(2_600)).await;
    assert!(fixed.is_held() && other.try_acquire("b").await.unwrap().is_none());
    fixed.release().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counter_under_contention_loses_no_update() {
    let file = File::new();
    let counter = Arc::new(std::sync::Mutex::new((0u32, 0u64)));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (client, counter) = (file.client().await, Arc::clone(&counter));
        for _ in 0..2 {
            let (client, counter) = (client.clone(), Arc::clone(&counter));
            tasks.spawn(async move {
                for _ in 0..10 {
                    let guard = client.named("n").wait_at_most(ms(60_000)).acquire().await.unwrap();
                    let read = counter.lock().unwrap().0;
                    tokio::time::sleep(ms(1)).await;
                    {
                        let mut counter = counter.lock().unwrap();
                        assert!(guard.token().get() > counter.1, "tokens grow");
                        *counter = (read + 1, guard.token().get());
                    }
                    guard.release().await.unwrap();
                }
            });
        }
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_eq!(counter.lock().unwrap().0, 80);
}

#[tokio::test]
async fn cancelled_and_timed_out_waiters_leave_nothing() {
    let file = File::new();
    let (one, other) = (file.client().await, file.client().await);
    let guard = one.acquire("a").await.unwrap();
    for micros in (0..6000).step_by(150) {
        let wait = other.named("a").wait_at_most(ms(2));
        let _ = tokio::time::timeout(std::time::Duration::from_micros(micros), wait.acquire()).await;
    }
    guard.release().await.unwrap();
    other.close().await;
    let third = file.client().await;
    assert!(third.inspect("a").await.unwrap().is_none());
    for micros in (0..3000).step_by(100) {
        let _ = tokio::time::timeout(std::time::Duration::from_micros(micros), one.try_acquire("b")).await;
    }
    one.close().await;
    assert!(third.inspect("b").await.unwrap().is_none());
}

#[tokio::test]
async fn renewals_that_go_together_are_told_apart() {
    let file = File::new();
    let client = file.client().await;
    let mut guards = Vec::new();
    for n in 0..200 {
        guards.push(client.named(&format!("{n}'\"\\[é")).ttl(ms(5_000)).acquire().await.unwrap());
    }
    let other = file.client().await;
    assert!(other.force_release("7'\"\\[é").await.unwrap());
    assert!(other.force_release("8'\"\\[é").await.unwrap());
    let thief = other.try_acquire("8'\"\\[é").await.unwrap().unwrap();
    renewed(guards.iter().enumerate().filter(|(n, _)| ![7, 8].contains(n)).map(|(_, guard)| guard)).await;
    for n in [7, 8] {
        assert_eq!(guards[n].lost().await, fencelock_core::LossReason::Revoked);
    }
    let lost: Vec<_> = (0..200).filter(|n| !guards[*n].is_held()).collect();
    assert_eq!(lost, [7, 8]);
    assert!(thief.is_held());
    assert_eq!(other.list("").await.unwrap().len(), 199);
}
