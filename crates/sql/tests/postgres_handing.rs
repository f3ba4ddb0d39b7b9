//! PostgreSQL: a release that hands the lock on by itself.
//!
//! Run as a child of itself, it is one client that waits, which can be killed or stopped.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod handing;
mod server;

use fencelock_core::{DistributedLock as _, LockClient, LockName, Terms};
use fencelock_lab::Postgres;
use handing::holds::*;
use handing::*;
use libtest_mimic::{Arguments, Failed, Trial};
use rustix::process::Signal;
use server::*;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

async fn once(client: LockClient) {
    client.acquire("a").await.unwrap().release().await.unwrap();
}

async fn a_handover_is_two_statements() {
    const EACH: u32 = 50;
    let db = Pg(Postgres::start_with(["fsync=off", "log_statement=all", "log_line_prefix=%a "]).unwrap());
    let sent = || {
        let log = std::fs::read_to_string(db.0.server().folder().join("log")).unwrap();
        log.lines().filter(|line| line.starts_with("fencelock LOG:  execute")).count()
    };
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(db.client().await);
    }
    // Each waits once, and listens from then on.
    let first = clients[0].acquire("a").await.unwrap();
    let waiting: Vec<_> = clients.iter().map(|client| tokio::spawn(once(client.clone()))).collect();
    tokio::time::sleep(ms(500)).await;
    first.release().await.unwrap();
    for waiting in waiting {
        waiting.await.unwrap();
    }
    let (inside, newest) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicI64::new(0)));
    let (before, began, mut tasks) = (sent(), Instant::now(), tokio::task::JoinSet::new());
    for client in clients {
        let (inside, newest) = (Arc::clone(&inside), Arc::clone(&newest));
        tasks.spawn(async move {
            for _ in 0..EACH {
                let guard = client.named("a").wait_at_most(ms(60_000)).acquire().await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two hold it");
                let token = guard.token().as_i64();
                assert!(token > newest.swap(token, Ordering::SeqCst), "tokens grow");
                tokio::time::sleep(ms(3)).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                guard.release().await.unwrap();
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let each = f64::from(u32::try_from(sent() - before).unwrap()) / f64::from(8 * EACH);
    println!("{each:.2} statements a handover, {:?} each", began.elapsed() / (8 * EACH));
    // And once in 17 releases all who wait ask.
    assert!(each <= 2.8, "{each:.2}");
}

/// It frees the lock as long as nobody has waited for 5 ms, and still knows then who waits.
async fn who_takes_it_again_and_again_gives_others_their_turn() {
    let db = Pg::start();
    let (client, mut overheard) = (listening(&db).await, Overheard::of(&db).await);
    let guard = client.named("a").ttl(ms(60_000)).acquire().await.unwrap();
    let mut again = tokio::spawn(client.named("a").ttl(ms(60_000)).wait_at_most(ms(60_000)).acquire());
    // One who waits and never asks, so that it cannot be the first to.
    let (id, mut session) = ("00112233445566778899aabbccddeeff", db.pool().await.acquire().await.unwrap().detach());
    sqlx::query("SELECT pg_advisory_lock(42)").execute(&mut session).await.unwrap();
    let told = format!("w 61 {id} 42 1 1000000 0 0 1 h - {}", guard.token());
    db.run(&format!("SELECT pg_notify('{}', '{told}')", channel(&db).await)).await;
    overheard.next("w").await;
    guard.release().await.unwrap();
    let handed = tokio::select! {
        granted = &mut again => {
            let guard = granted.unwrap().unwrap();
            tokio::time::sleep(PATIENCE).await;
            guard.release().await.unwrap();
            overheard.next("g").await
        }
        // So slow a machine that it had waited for 5 ms by the first release.
        handed = overheard.next("g") => handed,
    };
    assert_eq!(handed[3], id);
    drop(session);
}

/// For those who cannot be told.
async fn after_sixteen_handovers_it_is_free_for_all() {
    let db = Pg::start();
    let (one, other) = (listening(&db).await, listening(&db).await);
    let mut overheard = Overheard::of(&db).await;
    let tasks = [one, other].map(|client| {
        tokio::spawn(async move {
            for _ in 0..30 {
                let guard = client.named("a").wait_at_most(ms(60_000)).acquire().await.unwrap();
                tokio::time::sleep(ms(15)).await;
                guard.release().await.unwrap();
            }
        })
    });
    for task in tasks {
        task.await.unwrap();
    }
    let mut passed = Vec::new();
    while let Ok(notice) = tokio::time::timeout(ms(500), overheard.0.recv()).await {
        let notice = notice.unwrap();
        let words: Vec<_> = notice.payload().split(' ').collect();
        if words[0] == "g" && words[1] == "61" {
            passed.push(words[6].parse::<i64>().unwrap());
        }
    }
    assert!(passed.len() > 30, "it is handed on: {passed:?}");
    assert!(passed.iter().all(|times| *times <= 16), "{passed:?}");
}

async fn a_killed_waiter_is_passed_over() {
    let db = Pg::start();
    let (holder, mut overheard) = (listening(&db).await, Overheard::of(&db).await);
    let guard = holder.named("a").ttl(ms(60_000)).acquire().await.unwrap();
    let sessions = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted";
    let before = db.number(sessions).await;
    let mut dead = Waiter::start(&db, 60_000);
    let first = overheard.next("w").await;
    let next = Waiter::start(&db, 10_000);
    let second = overheard.next_but(&[&first]).await;
    dead.0.kill().unwrap();
    until("its session has ended", async || db.number(sessions).await == before + 1).await;
    tokio::time::sleep(PATIENCE).await;
    guard.release().await.unwrap();
    let handed = overheard.next("g").await;
    assert_eq!(handed[3], second[2], "to the one who lives");
    drop(next);
}

async fn a_stopped_waiter_delays_the_others_by_its_lease() {
    let db = Pg::start();
    let (holder, other, mut overheard) = (listening(&db).await, listening(&db).await, Overheard::of(&db).await);
    let guard = holder.named("a").ttl(ms(60_000)).acquire().await.unwrap();
    let stopped = Waiter::start(&db, 1_000);
    let first = overheard.next("w").await;
    let looked = Instant::now();
    let waiting = tokio::spawn(other.named("a").ttl(ms(60_000)).wait_at_most(ms(60_000)).acquire());
    overheard.next_but(&[&first]).await;
    stopped.signal(Signal::STOP);
    tokio::time::sleep(PATIENCE).await;
    let released = Instant::now();
    guard.release().await.unwrap();
    let next = waiting.await.unwrap().unwrap();
    println!("held {:?} after the release, of a lease of 1 s before it", released.elapsed());
    assert!(released.elapsed() >= ms(950), "two hold it");
    // Told of the lease when it was handed on: it did not wait for the next look of its own.
    assert!(looked.elapsed() < ms(4_900), "{:?}", looked.elapsed());
    stopped.signal(Signal::CONT);
    tokio::time::sleep(ms(300)).await;
    assert!(next.is_held());
    next.release().await.unwrap();
}

/// Anybody who may connect may send notices, and knows the channel that is called after the table.
async fn nobody_else_can_hand_it_on() {
    let db = Pg::start();
    let (holder, client) = (listening(&db).await, listening(&db).await);
    let mut overheard = Overheard::of(&db).await;
    let guard = holder.named("a").ttl(ms(60_000)).acquire().await.unwrap();
    let waiting = tokio::spawn(client.named("a").ttl(ms(30_000)).wait_at_most(ms(60_000)).acquire());
    let told = overheard.next("w").await;
    let (id, listener, round) = (&told[2], &told[3], &told[4]);
    db.run("CREATE ROLE nobody LOGIN").await;
    db.run(&format!(
        "SET ROLE nobody; SELECT pg_notify('{channel}', 'g 61 {id} {id} {listener} {round} 1 9 60000000')",
        channel = open_channel(),
    ))
    .await;
    tokio::time::sleep(ms(500)).await;
    assert!(!waiting.is_finished() && guard.is_held());
    // Who may not read the tables cannot learn the other.
    let pool = db.pool().await;
    let mut transaction = pool.begin().await.unwrap();
    Pg::run_in(&mut transaction, "SET LOCAL ROLE nobody").await;
    let read = sqlx::query("SELECT value FROM fencelock_locks_meta").fetch_all(&mut *transaction).await;
    assert!(read.is_err());
    drop(transaction);
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

/// Who may not write down a channel waits as it did before there was one.
async fn without_a_channel_of_their_own_they_are_woken() {
    let db = Pg::start();
    db.client().await.close().await;
    db.run(
        "DELETE FROM fencelock_locks_meta WHERE key <> 'layout'; CREATE ROLE app LOGIN;
        GRANT SELECT, INSERT, UPDATE, DELETE ON fencelock_locks, fencelock_locks_voids TO app;
        GRANT SELECT ON fencelock_locks_meta TO app",
    )
    .await;
    let url = format!("postgres://app@{}/postgres", db.address());
    let client = async || LockClient::new(Pg::connect(&url).await.unwrap()).unwrap();
    let (one, other) = (client().await, client().await);
    for _ in 0..5 {
        let guard = one.named("a").ttl(ms(60_000)).acquire().await.unwrap();
        let waiting = tokio::spawn(other.named("a").wait_at_most(ms(60_000)).acquire());
        tokio::time::sleep(ms(200)).await;
        let released = Instant::now();
        guard.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();
        assert!(released.elapsed() < ms(2_000), "{:?}", released.elapsed());
    }
    assert_eq!(db.number("SELECT count(*) FROM fencelock_locks_meta").await, 1);
}

/// As when a session that listens has stood in a transaction for so long that the server's queue of notices is full.
async fn where_no_notice_can_be_kept_locks_are_waited_for_and_released() {
    let db = Pg::start();
    db.client().await.close().await;
    db.run(
        "CREATE FUNCTION public.pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS
            $$ BEGIN RAISE 'too many notifications in the NOTIFY queue' USING ERRCODE = '54000'; END $$;
        ALTER DATABASE postgres SET search_path = public, pg_catalog",
    )
    .await;
    let (holder, other) = (db.client().await, db.client().await);
    let guard = holder.named("a").ttl(ms(60_000)).acquire().await.unwrap();
    let waiting = tokio::spawn(other.named("a").ttl(ms(60_000)).wait_at_most(ms(60_000)).acquire());
    tokio::time::sleep(ms(1_000)).await;
    assert!(!waiting.is_finished());
    // As if it had been flagged before the queue was full.
    db.run("UPDATE fencelock_locks SET waited = true WHERE name = 'a'").await;
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

/// Counted from when the news came, it would be believed after the server has let it go.
async fn a_hold_counts_from_before_it_was_asked_for() {
    let db = Pg::start();
    listening(&db).await;
    for (ttl, wait, renews) in [(10_000, 300, true), (10_000, 300, false), (1_500, 1_000, true)] {
        let (holder, next) = (db.engine().await, db.engine().await);
        let name = format!("{ttl}{renews}");
        let terms = Terms::new(LockName::new(name).unwrap(), ms(ttl));
        let terms = if renews { terms } else { terms.without_renewal() };
        // Both listen once each has waited.
        for (one, other) in [(&holder, &next), (&next, &holder)] {
            let grant = granted(one, &terms.clone().mint().unwrap()).await;
            let claim = terms.clone().mint().unwrap();
            let (waiting, _) = tokio::join!(other.acquire(&claim), async {
                tokio::time::sleep(ms(200)).await;
                grant.lease.release().await.unwrap();
            });
            waiting.unwrap().lease.release().await.unwrap();
        }
        let mut overheard = Overheard::of(&db).await;
        let long = Terms::new(terms.clone().mint().unwrap().name().clone(), ms(60_000));
        let grant = granted(&holder, &long.mint().unwrap()).await;
        let claim = terms.clone().mint().unwrap();
        let (engine, asked) = (Arc::clone(&next), claim.clone());
        let began = claim.now();
        let waiting = tokio::spawn(async move { engine.acquire(&asked).await.unwrap() });
        overheard.next("w").await;
        tokio::time::sleep(ms(wait)).await;
        let released = claim.now();
        grant.lease.release().await.unwrap();
        overheard.next("g").await;
        let next = waiting.await.unwrap();
        let sql = format!("SELECT expires_at - {} FROM fencelock_locks WHERE name = '{ttl}{renews}'", Pg::NOW);
        let (left, gone) = (db.number(&sql).await, claim.now().since(next.sent_at));
        let at_server = Duration::from_micros(u64::try_from(left).unwrap());
        println!("ttl {ttl} ms: {at_server:?} left at the server, {:?} here", next.ttl.saturating_sub(gone));
        assert!(next.sent_at >= began);
        if renews && wait * 2 < ttl {
            assert!(next.sent_at < released, "counted from the release, or later");
        } else {
            assert!(next.sent_at >= released, "asked for once more, since all or much of its time would be gone");
        }
        assert!(next.ttl.saturating_sub(gone) <= at_server + ms(1), "believed for longer than the server keeps it");
        next.lease.release().await.unwrap();
    }
}

macro_rules! trials {
    ($($name:ident),* $(,)?) => {
        vec![$(Trial::test(stringify!($name), || run($name()))),*]
    };
}

fn run(test: impl Future<Output = ()>) -> Result<(), Failed> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(test);
    Ok(())
}

fn main() -> ExitCode {
    if let Ok(url) = std::env::var("FENCELOCK_WAITS_AT") {
        run(wait_as_a_process(&url)).unwrap();
        return ExitCode::SUCCESS;
    }
    let trials = trials![
        a_handover_is_two_statements,
        who_takes_it_again_and_again_gives_others_their_turn,
        after_sixteen_handovers_it_is_free_for_all,
        a_killed_waiter_is_passed_over,
        a_stopped_waiter_delays_the_others_by_its_lease,
        who_waited_and_took_it_by_asking_is_not_handed_it_again,
        who_is_handed_it_again_does_not_hold_it_by_the_old_token,
        what_is_handed_to_one_who_has_left_is_handed_on,
        it_is_given_back_until_that_is_done,
        late_news_of_a_hold_that_is_over_frees_nothing,
        a_notice_that_is_lost_is_made_up_for,
        a_hold_counts_from_before_it_was_asked_for,
        nobody_else_can_hand_it_on,
        without_a_channel_of_their_own_they_are_woken,
        where_no_notice_can_be_kept_locks_are_waited_for_and_released,
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
