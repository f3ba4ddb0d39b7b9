//! Servers that die, sessions that end, answers that are lost, statements that come late.

use super::*;
use fencelock_core::{Admin as _, LossReason};
use fencelock_lab::{Mood, Proxy};

pub(crate) async fn killed_and_restarted<D: Db>() {
    let mut db = D::start();
    let (one, other) = (db.client().await, db.client().await);
    // A loaded server takes its time to start.
    let guard = one.named("a").ttl(ms(20_000)).acquire().await.unwrap();
    // Idle, so that they only find out when they are used again.
    drop(other.acquire("b").await.unwrap());
    db.kill();
    let e = other.try_acquire("c").await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    db.restart();
    until("served again", async || other.try_acquire("c").await.is_ok()).await;
    assert!(other.try_acquire("a").await.unwrap().is_none(), "what was acknowledged is kept");
    renewed([&guard]).await;
    assert!(other.try_acquire("a").await.unwrap().is_none());
    let token = guard.token();
    guard.release().await.unwrap();
    assert!(other.acquire("a").await.unwrap().token() > token);
}

pub(crate) async fn dead_for_good_is_told_in_time<D: Db>() {
    let mut db = D::start();
    let guard = db.client().await.named("a").ttl(ms(1_000)).acquire().await.unwrap();
    db.kill();
    let started = Instant::now();
    assert_eq!(guard.lost().await, LossReason::Expired);
    assert!(started.elapsed() < ms(1_000) + SLACK, "{:?}", started.elapsed());
    assert!(!guard.is_held());
}

pub(crate) async fn sessions_that_end_lose_nothing<D: Db>() {
    let db = D::start();
    let (one, other) = (db.client().await, db.client().await);
    let guard = one.named("a").ttl(ms(4_000)).acquire().await.unwrap();
    let (granted, monitor) = (guard.monitor().deadline().unwrap(), guard.monitor());
    // Renewed twice at least meanwhile: its deadline is that much further on.
    let twice = || monitor.deadline().is_some_and(|now| now.since(granted) > ms(2_500));
    let waiting = other.clone();
    let waiting = tokio::spawn(async move { waiting.named("a").wait_at_most(ms(60_000)).acquire().await });
    for n in 0.. {
        if n >= 10 && twice() {
            break;
        }
        assert!(n < 100, "no renewal found another connection");
        tokio::time::sleep(ms(150)).await;
        db.end_sessions().await;
        assert!(guard.is_held(), "renewals found another connection");
        assert!(!waiting.is_finished());
        // An idle connection that broke is replaced without a word.
        one.acquire("b").await.unwrap().release().await.unwrap();
    }
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    assert!(other.list("").await.unwrap().is_empty());
}

pub(crate) async fn a_lost_answer_leaves_nothing<D: Db>() {
    let db = D::start();
    let proxy = Proxy::before(db.address()).unwrap();
    let engine = db.through(&proxy).await;
    let client = LockClient::new(Arc::<SqlLock>::clone(&engine)).unwrap();
    drop(client.acquire("a").await.unwrap());
    until("released", async || client.pending() == 0).await;
    let direct = db.client().await;

    proxy.set(Mood::DropReplies);
    let e = client.try_acquire("a").await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    assert!(direct.inspect("a").await.unwrap().is_some(), "the statement ran");
    proxy.set(Mood::Honest);
    proxy.cut();
    until("undone", async || direct.inspect("a").await.unwrap().is_none()).await;
    until("done", async || client.pending() == 0).await;
    assert!(db.number("SELECT count(*) FROM fencelock_locks_voids").await >= 1, "the id is void");
    let guard = client.try_acquire("a").await.unwrap().unwrap();

    // The answer to a renewal or two is lost: the hold is in doubt, and then is not.
    proxy.cut();
    guard.release().await.unwrap_or_else(|e| assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}"));
    until("released after all", async || direct.inspect("a").await.unwrap().is_none()).await;
}

pub(crate) async fn a_statement_that_runs_after_its_undo_takes_nothing<D: Db>() {
    let db = D::start();
    let proxy = Proxy::before(db.address()).unwrap();
    let (late, direct) = (db.through(&proxy).await, db.engine().await);
    // Its statements are prepared, so that the next one goes out in one piece.
    granted(&late, &claim("a", ms(60_000))).await.lease.release().await.unwrap();
    proxy.set(Mood::DelayRequests(ms(4_000)));
    let orphan = claim("a", ms(60_000));
    let e = late.try_acquire(&orphan).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    assert!(orphan.is_unanswered());
    direct.abandon(&orphan).await.unwrap();
    tokio::time::sleep(ms(4_000)).await;
    assert!(direct.inspect(orphan.name()).await.unwrap().is_none(), "it came, and took nothing");
    dead(&direct, &orphan).await;
    granted(&direct, &claim("a", ms(60_000))).await;
}

/// The same without the undo, so that the test is known to see what it looks for.
pub(crate) async fn a_statement_that_comes_late_takes_the_lock<D: Db>() {
    let db = D::start();
    let proxy = Proxy::before(db.address()).unwrap();
    let (late, direct) = (db.through(&proxy).await, db.engine().await);
    granted(&late, &claim("a", ms(60_000))).await.lease.release().await.unwrap();
    proxy.set(Mood::DelayRequests(ms(4_000)));
    let orphan = claim("a", ms(60_000));
    late.try_acquire(&orphan).await.unwrap_err();
    until("it came", async || direct.inspect(orphan.name()).await.unwrap().is_some()).await;
}

pub(crate) async fn a_hung_server_is_told_in_time_and_gives_no_second_hold<D: Db>() {
    let db = D::start();
    let (one, other) = (db.client().await, db.client().await);
    let guard = one.named("a").ttl(ms(1_200)).acquire().await.unwrap();
    db.freeze();
    let lost = guard.lost().await;
    assert_eq!(lost, LossReason::Expired);
    db.thaw();
    let next = other.named("a").wait_at_most(ms(30_000)).acquire().await.unwrap();
    assert!(!guard.is_held() && next.token() > guard.token());
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(next.is_held());
}

pub(crate) async fn cancelled_at_any_point_leaves_no_transaction_and_no_row<D: Db>(open_transactions: &str) {
    let db = D::start();
    let client = db.client().await;
    for micros in (0..12_000).step_by(60) {
        let wait = Duration::from_micros(micros);
        let _ = tokio::time::timeout(wait, client.acquire("a")).await;
        let _ = tokio::time::timeout(wait, client.try_acquire("b")).await;
    }
    client.close().await;
    let other = db.client().await;
    assert!(other.list("").await.unwrap().is_empty());
    // The server finds out one by one that a connection was closed.
    until("no transaction is open", async || db.number(open_transactions).await == 0).await;
}

pub(crate) async fn defaults_of_isolation_do_no_harm<D: Db>(db: D) {
    let counter = Arc::new(std::sync::Mutex::new((0u32, 0u64)));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (client, counter) = (db.client().await, Arc::clone(&counter));
        tasks.spawn(async move {
            for _ in 0..25 {
                let guard = client.named("n").wait_at_most(ms(60_000)).acquire().await.unwrap();
                let read = counter.lock().unwrap().0;
                tokio::task::yield_now().await;
                {
                    let mut counter = counter.lock().unwrap();
                    assert!(guard.token().get() > counter.1, "tokens grow");
                    *counter = (read + 1, guard.token().get());
                }
                guard.release().await.unwrap();
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_eq!(counter.lock().unwrap().0, 100);
    let guard = db.client().await.named("r").ttl(ms(4_000)).acquire().await.unwrap();
    renewed([&guard]).await;
}

pub(crate) async fn renewals_that_go_together_are_told_apart<D: Db>() {
    let db = D::start();
    let client = db.client().await;
    let mut guards = Vec::new();
    for n in 0..150 {
        guards.push(client.named(&format!("{n}'\"\\[é$1?")).ttl(ms(5_000 + n % 3 * 200)).acquire().await.unwrap());
    }
    let other = db.client().await;
    assert!(other.force_release("7'\"\\[é$1?").await.unwrap());
    assert!(other.force_release("8'\"\\[é$1?").await.unwrap());
    let thief = other.try_acquire("8'\"\\[é$1?").await.unwrap().unwrap();
    let others = guards.iter().enumerate().filter(|(n, _)| ![7, 8].contains(n)).map(|(_, guard)| guard);
    renewed(others).await;
    for n in [7, 8] {
        assert_eq!(guards[n].lost().await, LossReason::Revoked);
    }
    let lost: Vec<_> = (0..150).filter(|n| !guards[*n].is_held()).collect();
    assert_eq!(lost, [7, 8]);
    assert!(thief.is_held());
    assert_eq!(other.list("").await.unwrap().len(), 149);
}

/// Others' transactions in the way, each kind of it: what the engine sends goes through in the end,
/// or is contended, and never comes out as an error of the database.
pub(crate) async fn conflicts_are_retried_or_contended<D: Db>(lock_row: &str) {
    let db = D::start();
    let (client, pool) = (db.client().await, db.pool().await);
    client.acquire("a").await.unwrap().release().await.unwrap();
    client.acquire("b").await.unwrap().release().await.unwrap();

    // A lock wait time-out: contended while another transaction has the row to itself, and granted after it.
    let mut other = pool.begin().await.unwrap();
    D::run_in(&mut other, &lock_row.replace("{name}", "a")).await;
    assert!(client.try_acquire("a").await.unwrap().is_none());
    let waiting = client.clone();
    let waiting = tokio::spawn(async move { waiting.named("a").wait_at_most(ms(30_000)).acquire().await });
    tokio::time::sleep(ms(1_500)).await;
    assert!(!waiting.is_finished());
    other.rollback().await.unwrap();
    let guard = waiting.await.unwrap().unwrap();

    // A release that meets it is unknown, retried by the client, and done once the row is free.
    let mut other = pool.begin().await.unwrap();
    D::run_in(&mut other, &lock_row.replace("{name}", "a")).await;
    let e = guard.release().await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    other.rollback().await.unwrap();
    until("released", async || client.inspect("a").await.unwrap().is_none()).await;

    // A session that ends in mid-statement: not known, sent again, and nothing of either copy stays.
    for _ in 0..3 {
        let mut other = pool.begin().await.unwrap();
        D::run_in(&mut other, &lock_row.replace("{name}", "a")).await;
        let trying = client.clone();
        let trying = tokio::spawn(async move { trying.try_acquire("a").await });
        tokio::time::sleep(ms(60)).await;
        db.end_engine_sessions(&mut other).await;
        match trying.await.unwrap() {
            Ok(taken) => assert!(taken.is_none()),
            Err(e) => assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}"),
        }
        other.rollback().await.unwrap();
        until("undone", async || client.pending() == 0).await;
        assert!(client.inspect("a").await.unwrap().is_none());
    }
}

/// What a database answers when transactions are in each other's way: by triggers,
/// every other write fails so, and then all of them.
pub(crate) async fn deadlocks_and_serialization_failures_are_retried<D: Db>(half: &str, triggers: &[&str]) {
    for trigger in triggers {
        let db = D::start();
        let (engine, client) = (db.engine().await, db.client().await);
        client.acquire("a").await.unwrap().release().await.unwrap();
        for part in trigger.replace("{fails}", half).split(";;") {
            db.run(part).await;
        }
        for n in 0..5 {
            // One at a time: of several rows that are renewed together every other one would fail each time.
            let guard = client.named("a").ttl(ms(3_000)).acquire().await.unwrap();
            renewed([&guard]).await;
            guard.release().await.unwrap();
            client.acquire(&format!("new/{n}")).await.unwrap().release().await.unwrap();
        }
        for part in trigger.replace("{fails}", "1 = 1").split(";;") {
            db.run(part).await;
        }
        let mine = claim("a", ms(60_000));
        let e = engine.try_acquire(&mine).await.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
        assert!(e.message().contains("in the way"), "{e}");
        assert!(!mine.is_unanswered(), "each was undone by the server");
        assert!(engine.inspect(mine.name()).await.unwrap().is_none());
        let e = client.named("a").wait_at_most(ms(1_000)).acquire().await.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Unavailable, "never reached: {e}");
    }
}
