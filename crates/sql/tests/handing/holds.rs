//! Locks that are handed to one who has left, has held, or never hears of it.

use super::*;
use fencelock_core::{DistributedLock as _, ErrorKind, LockName, LossReason, Terms};
use std::sync::Arc;
use std::time::Instant;

/// It took the lock by asking, of which nothing is told, and was stopped.
pub(crate) async fn who_waited_and_took_it_by_asking_is_not_handed_it_again() {
    let db = Pg::start();
    let (holder, taker, next) = (listening(&db).await, listening(&db).await, listening(&db).await);
    let mut overheard = Overheard::of(&db).await;
    let guard = holder.named("a").ttl(ms(60_000)).acquire().await.unwrap();
    let taking = tokio::spawn(taker.named("a").ttl(ms(60_000)).wait_at_most(ms(60_000)).acquire());
    let first = overheard.next("w").await;
    let stopped = Waiter::start(&db, 40_000);
    let told = overheard.next_but(&[&first]).await;
    stopped.signal(Signal::STOP);
    // As if it had been freed for all, and the one that is stopped had asked first.
    let began = Instant::now();
    db.run(&format!(
        "UPDATE fencelock_locks SET claim_id = decode('{id}', 'hex'), token = token + 1, expires_at = {now} + 1000000
            WHERE name = 'a';
        SELECT pg_notify('{channel}', '61')",
        id = told[2],
        now = Pg::NOW,
        channel = open_channel(),
    ))
    .await;
    let taken = taking.await.unwrap().unwrap();
    assert!(began.elapsed() >= ms(950), "two hold it");
    let waiting = tokio::spawn(next.named("a").ttl(ms(60_000)).wait_at_most(ms(60_000)).acquire());
    let second = overheard.next_but(&[&first, &told]).await;
    tokio::time::sleep(PATIENCE).await;
    taken.release().await.unwrap();
    assert_eq!(overheard.next("g").await[3], second[2], "to the one who waits");
    let next = waiting.await.unwrap().unwrap();
    println!("held {:?} after one that was stopped with a lease of 1 s", began.elapsed());
    assert!(began.elapsed() < ms(1_000) + SLACK, "{:?}", began.elapsed());
    next.release().await.unwrap();
    assert!(guard.release().await.is_err());
}

/// As if its id had been handed the lock once more, and the news of that were lost or on its way.
pub(crate) async fn who_is_handed_it_again_does_not_hold_it_by_the_old_token() {
    let db = Pg::start();
    let (holder, other) = (listening(&db).await, listening(&db).await);
    let mut overheard = Overheard::of(&db).await;
    let again = async |name: &str| {
        db.run(&format!("UPDATE fencelock_locks SET token = token + 1 WHERE name = '{name}'")).await;
    };
    let ends =
        async |name: &str| db.number(&format!("SELECT expires_at FROM fencelock_locks WHERE name = '{name}'")).await;
    let guard = holder.named("renewed").ttl(ms(6_000)).acquire().await.unwrap();
    again("renewed").await;
    let before = ends("renewed").await;
    let lost = tokio::time::timeout(ms(5_500), guard.lost()).await;
    assert_eq!(lost.expect("refused by the next renewal"), LossReason::Revoked);
    assert_eq!(ends("renewed").await, before);
    for waits in [false, true] {
        let name = format!("released-{waits}");
        let guard = holder.named(&name).ttl(ms(60_000)).acquire().await.unwrap();
        // Whoever waits makes of the release one that would hand the lock on.
        let waiting = waits.then(|| tokio::spawn(other.named(&name).wait_at_most(ms(60_000)).acquire()));
        if waits {
            overheard.next("w").await;
            tokio::time::sleep(PATIENCE).await;
        }
        again(&name).await;
        assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
        assert!(ends(&name).await > 0, "it is another hold's");
        if let Some(waiting) = waiting {
            assert!(!waiting.is_finished());
            waiting.abort();
        }
    }
    // Of a cohort, row and lease have the last token of those that are reserved.
    let guard = holder.named("cohort").cohort(8).ttl(ms(6_000)).acquire().await.unwrap();
    let before = ends("cohort").await;
    renewed([&guard]).await;
    assert!(ends("cohort").await > before);
    guard.release().await.unwrap();
    assert_eq!(ends("cohort").await, 0);
}

pub(crate) async fn what_is_handed_to_one_who_has_left_is_handed_on() {
    let db = Pg::start();
    let (holder, left, next) = (listening(&db).await, listening(&db).await, listening(&db).await);
    let mut overheard = Overheard::of(&db).await;
    let guard = holder.named("a").ttl(ms(60_000)).acquire().await.unwrap();
    let e = left.named("a").ttl(ms(60_000)).wait_at_most(ms(300)).acquire().await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Timeout);
    let told = overheard.next("w").await;
    assert_eq!(overheard.next("x").await[2], told[2], "its undo says so");
    let waiting = tokio::spawn(next.named("a").wait_at_most(ms(60_000)).acquire());
    overheard.next("w").await;
    // As if the release had been under way meanwhile.
    let token = guard.token().as_i64() + 1;
    let (id, listener, round) = (&told[2], &told[3], &told[4]);
    db.run(&format!(
        "UPDATE fencelock_locks SET claim_id = decode('{id}', 'hex'), token = {token},
            expires_at = {now} + 60000000 WHERE name = 'a';
        SELECT pg_notify('{channel}', 'g 61 {id} {id} {listener} {round} 1 {token} 60000000')",
        now = Pg::NOW,
        channel = channel(&db).await,
    ))
    .await;
    let given_back = Instant::now();
    let next = tokio::time::timeout(ms(4_000), waiting).await.expect("at once").unwrap().unwrap();
    println!("handed on {:?} later", given_back.elapsed());
    assert!(next.token().as_i64() > token);
    next.release().await.unwrap();
    assert!(guard.release().await.is_err());
}

/// The first attempts have no answer in time, since the row is somebody's.
pub(crate) async fn it_is_given_back_until_that_is_done() {
    let db = Pg::start();
    let left = LockClient::new(Pg::connect(&format!("{}?request_timeout=300ms", db.url())).await.unwrap()).unwrap();
    let (holder, next) = (listening(&db).await, listening(&db).await);
    let mut overheard = Overheard::of(&db).await;
    let guard = holder.named("a").ttl(ms(60_000)).acquire().await.unwrap();
    let e = left.named("a").ttl(ms(60_000)).wait_at_most(ms(2_000)).acquire().await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Timeout);
    let told = overheard.next("w").await;
    overheard.next("x").await;
    let waiting = tokio::spawn(next.named("a").wait_at_most(ms(60_000)).acquire());
    overheard.next_but(&[&told]).await;
    let token = guard.token().as_i64() + 1;
    let (id, listener, round) = (&told[2], &told[3], &told[4]);
    let pool = db.pool().await;
    let mut transaction = pool.begin().await.unwrap();
    Pg::run_in(
        &mut transaction,
        &format!(
            "UPDATE fencelock_locks SET claim_id = decode('{id}', 'hex'), token = {token},
                expires_at = {now} + 60000000 WHERE name = 'a'",
            now = Pg::NOW,
        ),
    )
    .await;
    transaction.commit().await.unwrap();
    let mut transaction = pool.begin().await.unwrap();
    Pg::run_in(&mut transaction, "SELECT FROM fencelock_locks WHERE name = 'a' FOR UPDATE").await;
    db.run(&format!(
        "SELECT pg_notify('{channel}', 'g 61 {id} {id} {listener} {round} 1 {token} 60000000')",
        channel = channel(&db).await,
    ))
    .await;
    tokio::time::sleep(ms(1_500)).await;
    assert!(!waiting.is_finished(), "two hold it");
    transaction.commit().await.unwrap();
    let next = tokio::time::timeout(SLACK * 3, waiting).await.expect("long before it runs out").unwrap().unwrap();
    assert!(next.token().as_i64() > token);
    next.release().await.unwrap();
    assert!(guard.release().await.is_err());
}

/// Whoever lost it is to be waited for, with its lock delay, whenever the news comes that it was handed on.
pub(crate) async fn late_news_of_a_hold_that_is_over_frees_nothing() {
    let db = Pg::start();
    let (holder, engine) = (listening(&db).await, db.engine().await);
    let mut overheard = Overheard::of(&db).await;
    let guard = holder.named("a").ttl(ms(60_000)).acquire().await.unwrap();
    let terms = Terms::new(LockName::new("a").unwrap(), ms(40_000)).with_lock_delay(ms(20_000));
    let (claim, asking) = (terms.mint().unwrap(), Arc::clone(&engine));
    let waiting = tokio::spawn(async move { asking.acquire(&claim).await.unwrap() });
    let told = overheard.next("w").await;
    let (id, listener, round, token) = (&told[2], &told[3], &told[4], guard.token().as_i64() + 1);
    db.run(&format!(
        "UPDATE fencelock_locks SET claim_id = decode('{id}', 'hex'), token = {token}, expires_at = {now} + 60000000
            WHERE name = 'a';
        SELECT pg_notify('{channel}', '61')",
        now = Pg::NOW,
        channel = open_channel(),
    ))
    .await;
    let grant = waiting.await.unwrap();
    assert_eq!(grant.token.as_i64(), token, "found by its own look");
    drop(grant);
    db.run(&format!(
        "SELECT pg_notify('{channel}', 'g 61 {id} {id} {listener} {round} 1 {token} 60000000')",
        channel = channel(&db).await,
    ))
    .await;
    overheard.next("g").await;
    tokio::time::sleep(ms(500)).await;
    assert!(db.number("SELECT expires_at FROM fencelock_locks WHERE name = 'a'").await > 0);
    drop(engine);
}

pub(crate) async fn a_notice_that_is_lost_is_made_up_for() {
    let db = Pg::start();
    let (holder, client) = (listening(&db).await, listening(&db).await);
    let mut overheard = Overheard::of(&db).await;
    let guard = holder.named("a").ttl(ms(60_000)).acquire().await.unwrap();
    let waiting = tokio::spawn(client.named("a").ttl(ms(30_000)).wait_at_most(ms(60_000)).acquire());
    let told = overheard.next("w").await;
    let (id, token) = (&told[2], guard.token().as_i64() + 1);
    db.run(&format!(
        "UPDATE fencelock_locks SET claim_id = decode('{id}', 'hex'), token = {token}, expires_at = {} + 30000000
        WHERE name = 'a'",
        Pg::NOW
    ))
    .await;
    let next = tokio::time::timeout(ms(5_000) + SLACK, waiting).await.expect("by its next look").unwrap().unwrap();
    assert_eq!(next.token().as_i64(), token);
    next.release().await.unwrap();
    assert!(guard.release().await.is_err());
}
