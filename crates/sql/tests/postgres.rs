//! PostgreSQL: what is asked of every server, and what is its own.
#![cfg(feature = "postgres")]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests")]

mod server;

use fencelock_core::{Admission, Capability, DistributedLock as _, ErrorKind, FencingToken, Gate as _, Level};
use fencelock_lab::Postgres;
use fencelock_sql::postgres::PostgresGate;
use server::*;
use std::sync::Arc;
use std::time::{Duration, Instant};

const OPEN: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'fencelock' AND state LIKE 'idle in transaction%'";

const FAILING: &str = "CREATE OR REPLACE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF {fails} THEN RAISE EXCEPTION 'in the way' USING ERRCODE = '{code}'; END IF; RETURN new; END $$;;
    CREATE OR REPLACE TRIGGER failing BEFORE INSERT OR UPDATE ON fencelock_locks FOR EACH ROW EXECUTE FUNCTION fail()";

/// Notes each statement that writes locks.
const WATCH: [&str; 3] = [
    "CREATE TABLE statements (n int)",
    "CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO statements VALUES (1); RETURN NULL; END $$",
    "CREATE TRIGGER noted AFTER UPDATE ON fencelock_locks FOR EACH STATEMENT EXECUTE FUNCTION noted()",
];

macro_rules! of_every_server {
    ($($part:ident :: $name:ident ( $($argument:expr),* );)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            server::$part::$name::<Pg>($($argument),*).await;
        })*
    };
}

of_every_server! {
    crowds::each_is_answered_as_by_itself();
    crowds::of_two_for_one_name_one_is_granted();
    crowds::each_release_is_answered_as_by_itself();
    crowds::sixty_four_take_few_statements(&WATCH, "SELECT count(*) FROM statements");
    crowds::a_locked_row_holds_up_no_other("SELECT 1 FROM fencelock_locks WHERE name = '{name}' FOR UPDATE");
    crowds::a_locked_row_holds_up_no_other_release("SELECT 1 FROM fencelock_locks WHERE name = '{name}' FOR UPDATE", "");
    crowds::what_never_left_is_not_undone();
    crowds::what_is_cut_off_is_undone();
    faults::killed_and_restarted();
    faults::dead_for_good_is_told_in_time();
    faults::sessions_that_end_lose_nothing();
    faults::a_lost_answer_leaves_nothing();
    faults::a_statement_that_runs_after_its_undo_takes_nothing();
    faults::a_statement_that_comes_late_takes_the_lock();
    faults::a_hung_server_is_told_in_time_and_gives_no_second_hold();
    faults::cancelled_at_any_point_leaves_no_transaction_and_no_row(OPEN);
    faults::renewals_that_go_together_are_told_apart();
    faults::conflicts_are_retried_or_contended("SELECT 1 FROM fencelock_locks WHERE name = '{name}' FOR UPDATE");
    faults::deadlocks_and_serialization_failures_are_retried("random() < 0.5", &[
        &FAILING.replace("{code}", "40001"),
        &FAILING.replace("{code}", "40P01"),
    ]);
    forced::a_forced_release_keeps_the_lock_delay();
    forced::what_a_forced_release_leaves();
    tables::every_name_is_a_lock_of_its_own();
    tables::ids_die_and_tokens_stay();
    tables::tokens_grow_past_a_base();
    tables::purging_repeats_no_token();
    tables::the_printed_statements_are_right();
    tables::wrong_shapes_are_refused(&[
        "ALTER TABLE fencelock_locks ALTER COLUMN token TYPE integer",
        "ALTER TABLE fencelock_locks DROP CONSTRAINT fencelock_locks_pkey",
        "ALTER TABLE fencelock_locks ADD COLUMN more integer",
        "ALTER TABLE fencelock_locks SET UNLOGGED",
    ]);
    transactions::it_commits_with_the_data();
    transactions::leases_beside_an_open_one();
    transactions::no_update_is_lost();
    transactions::two_lines_guard_a_table_of_ones_own();
    transactions::an_outer_transaction_freezes_no_clock();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeatable_read_and_serializable_as_defaults() {
    for level in ["repeatable read", "serializable"] {
        let setting = format!("default_transaction_isolation={level}");
        let db = Pg(Postgres::start_with(["fsync=off", &setting]).unwrap());
        faults::defaults_of_isolation_do_no_harm(db).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_of_one_client_send_next_to_nothing() {
    let db = Pg(Postgres::start_with(["fsync=off", "log_statement=all", "log_line_prefix=%a "]).unwrap());
    let (holder, waiting) = (db.client().await, db.client().await);
    let guard = holder.named("a").ttl(ms(120_000)).acquire().await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let waiting = waiting.clone();
        tasks.spawn(async move {
            waiting.named("a").wait_at_most(ms(120_000)).acquire().await.unwrap().release().await.unwrap();
        });
    }
    let sent = || {
        let log = std::fs::read_to_string(db.0.server().folder().join("log")).unwrap();
        log.lines()
            .filter(|line| line.starts_with("fencelock LOG:  execute") || line.starts_with("fencelock LOG:  statement"))
            .count()
    };
    let flagged = "SELECT count(*) FROM fencelock_locks WHERE name = 'a'::bytea AND waited";
    until("the first of them waits", async || db.number(flagged).await == 1).await;
    tokio::time::sleep(ms(1_000)).await;
    let before = sent();
    assert!(before > 0, "the log shows statements");
    tokio::time::sleep(ms(20_000)).await;
    let after = sent();
    println!("100 waiters of one client, 20 s: {} statements", after - before);
    assert!(after - before <= 10, "{} statements", after - before);
    guard.release().await.unwrap();
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_wakes_a_waiter_of_another_client() {
    let db = Pg::start();
    let (one, other) = (db.client().await, db.client().await);
    assert!(one.guarantees().has(Capability::NotifiedWaiting));
    let mut waits = Vec::new();
    for n in 0..20 {
        let guard = one.named("a").ttl(ms(120_000)).acquire().await.unwrap();
        let waiter = other.named("a").wait_at_most(ms(60_000));
        let waiting = tokio::spawn(async move { (waiter.acquire().await.unwrap(), Instant::now()) });
        let flagged = "SELECT count(*) FROM fencelock_locks WHERE name = 'a'::bytea AND waited";
        until("it waits", async || db.number(flagged).await == 1).await;
        if n == 10 {
            // The one that listens has gone: what it misses is looked for once it is back.
            db.end_sessions().await;
            tokio::time::sleep(ms(1_000)).await;
        }
        let released = Instant::now();
        guard.release().await.unwrap_or_else(|e| assert_eq!(e.kind(), ErrorKind::Unavailable));
        let (next, woken) = waiting.await.unwrap();
        waits.push(woken.duration_since(released));
        next.release().await.unwrap();
    }
    waits.sort_unstable();
    println!("from release to the next holder: median {:?}, longest {:?}", waits[10], waits[19]);
    // By itself it would look 5 s after it began to wait.
    assert!(waits[10] < ms(2_000), "{waits:?}");
}

/// Its acquire has begun, and so does not see the void, but has not yet come to the lock on its id.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_that_stalls_across_its_undo_takes_nothing() {
    let db = Pg::start();
    db.run(
        "CREATE TABLE stalls (seconds float8); INSERT INTO stalls VALUES (0);
        CREATE FUNCTION public.pg_try_advisory_xact_lock_shared(id bigint) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
            PERFORM pg_catalog.pg_sleep(seconds) FROM public.stalls;
            RETURN pg_catalog.pg_try_advisory_xact_lock_shared(id); END $$;
        ALTER DATABASE postgres SET search_path = public, pg_catalog",
    )
    .await;
    let pooler = fencelock_lab::PgBouncer::before(&db.0, 10).unwrap();
    let (pool, direct) = (db.pool().await, db.engine().await);
    // The server bounds the last by the statement's time-out.
    for url in [db.url(), pooler.url()] {
        let stalled = Pg::connect(&url).await.unwrap();
        granted(&stalled, &claim("a", ms(5_000))).await.lease.release().await.unwrap();
        for seconds in ["0.8", "1.5", "60"] {
            db.run(&format!("UPDATE stalls SET seconds = {seconds}")).await;
            let orphan = claim("a", ms(60_000));
            let (engine, sent) = (Arc::clone(&stalled), orphan.clone());
            let trying = tokio::spawn(async move { engine.try_acquire(&sent).await.map(drop) });
            let stalled = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
            until("it stalls", async || trying.is_finished() || db.number(stalled).await > 0).await;
            // A transaction of somebody's own is not waited for, long as it may be open.
            let mut other = pool.begin().await.unwrap();
            Pg::run_in(&mut other, "UPDATE fencelock_locks SET note = 'x' WHERE name = 'b'").await;
            until("undone", async || direct.abandon(&orphan).await.is_ok()).await;
            assert!(direct.inspect(orphan.name()).await.unwrap().is_none(), "{url}: {seconds}");
            let _ = trying.await.unwrap();
            assert!(direct.inspect(orphan.name()).await.unwrap().is_none(), "after its undo: {url}: {seconds}");
            other.rollback().await.unwrap();
        }
        db.run("UPDATE stalls SET seconds = 0").await;
    }
    granted(&direct, &claim("a", ms(1_000))).await;
}

/// More than one statement drops, while somebody's transaction has one of them to itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_rows_are_purged_a_few_at_a_time() {
    let db = Pg::start();
    let engine = Pg::connect(&format!("{}?request_timeout=4s", db.url())).await.unwrap();
    db.run(
        "INSERT INTO fencelock_locks
        SELECT convert_to(n::text, 'UTF8'), '', n, 0, 0, 0, false, '', NULL, 0 FROM generate_series(1, 100000) AS n",
    )
    .await;
    let pool = db.pool().await;
    // The purge waits for one that began before the floor was raised.
    let mut older = pool.begin().await.unwrap();
    Pg::run_in(&mut older, "UPDATE fencelock_locks SET note = 'x' WHERE name = 'b'").await;
    let purging = tokio::spawn(async move { engine.purge(ms(60_000)).await });
    let asks = "SELECT count(*) FROM pg_stat_activity
        WHERE application_name = 'fencelock' AND state = 'idle' AND query LIKE '%pg_locks%'";
    until("it has seen who began before", async || db.number(asks).await == 1).await;
    assert!(!purging.is_finished(), "it did not wait for an older transaction");
    let floor = "SELECT count(*) FROM fencelock_locks WHERE name = '' AND token = 100000";
    assert_eq!(db.number(floor).await, 1, "the floor is there before a row goes");
    // It began after the floor was raised, so it may stay open.
    let mut other = pool.begin().await.unwrap();
    Pg::run_in(&mut other, "UPDATE fencelock_locks SET note = 'x' WHERE name = '99999'").await;
    older.rollback().await.unwrap();
    let dropped = purging.await.unwrap().unwrap();
    other.rollback().await.unwrap();
    assert!((99_999..=100_000).contains(&dropped), "{dropped}");
    assert_eq!(db.number("SELECT count(*) FROM fencelock_locks").await, 100_001 - i64::try_from(dropped).unwrap());
}

#[tokio::test]
async fn too_many_connections_and_a_read_only_server_are_unavailable() {
    let db = Pg(Postgres::start_with(["fsync=off", "max_connections=9", "superuser_reserved_connections=0"]).unwrap());
    let client = db.client().await;
    let pool = sqlx::postgres::PgPoolOptions::new().max_connections(20);
    let pool = pool.acquire_timeout(ms(3_000)).connect(&db.url()).await.unwrap();
    let mut taken = Vec::new();
    while let Ok(connection) = pool.acquire().await {
        taken.push(connection);
    }
    let e = Pg::connect(&db.url()).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    assert!(e.message().contains("too many"), "{e}");
    client.acquire("a").await.unwrap().release().await.unwrap(); // on what it has
    drop(taken);
    pool.close().await;
    // The server notices one by one that they are closed.
    until("room for more", async || {
        let Ok(mut one) = <sqlx::PgConnection as sqlx::Connection>::connect(&db.url()).await else { return false };
        let count = "SELECT COUNT(*) FROM pg_stat_activity WHERE backend_type = 'client backend'";
        sqlx::query_scalar(count).fetch_one(&mut one).await.is_ok_and(|there: i64| there < 6)
    })
    .await;

    db.run("ALTER SYSTEM SET default_transaction_read_only = on").await;
    db.run("SELECT pg_reload_conf()").await;
    until("read-only", async || client.try_acquire("a").await.is_err()).await;
    let e = client.try_acquire("a").await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    assert!(e.message().contains("no writes"), "{e}");
    let writable = db.url() + "?options=-c%20default_transaction_read_only%3Doff";
    let mut operator = <sqlx::PgConnection as sqlx::Connection>::connect(&writable).await.unwrap();
    sqlx::raw_sql("ALTER SYSTEM RESET default_transaction_read_only").execute(&mut operator).await.unwrap();
    db.run("SELECT pg_reload_conf()").await;
    until("back", async || client.try_acquire("a").await.is_ok()).await;
}

#[tokio::test]
async fn the_level_is_what_the_server_gives() {
    let level = async |settings: &[&str]| {
        let db = Pg(Postgres::start_with(settings).unwrap());
        db.engine().await.guarantees().level()
    };
    assert_eq!(level(&[]).await, Some(Level::Fenced));
    assert_eq!(level(&["fsync=off"]).await, Some(Level::Advisory));
    assert_eq!(level(&["full_page_writes=off"]).await, Some(Level::Advisory));
    assert_eq!(level(&["synchronous_commit=off"]).await, Some(Level::Fenced), "on, in sessions of our own");
    let db = Pg(Postgres::start_durable().unwrap());
    let pooled = Pg::connect(&format!("{}?pooler=transaction", db.url())).await.unwrap();
    assert!(!pooled.guarantees().has(Capability::NotifiedWaiting));
    db.run("CREATE ROLE app LOGIN; GRANT ALL ON SCHEMA public TO app").await;
    let hidden = Pg::connect(&format!("postgres://app@{}/postgres?table=of_app", db.address())).await.unwrap();
    let e = hidden.guarantees().require(Level::Leased).unwrap_err();
    assert!(e.message().contains("pg_monitor"), "{e}");
}

/// However many connect at once, so that each happens to be given a session that is new and its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_pooler_is_seen_by_everyone() {
    let db = Pg::start();
    db.engine().await;
    let direct = db.url();
    for _ in 0..4 {
        let pooler = fencelock_lab::PgBouncer::before(&db.0, 40).unwrap();
        let mut tasks = tokio::task::JoinSet::new();
        for n in 0..12 {
            let url = if n % 4 == 3 { direct.clone() } else { pooler.url() };
            tasks.spawn(async move {
                let engine = Pg::connect(&format!("{url}?request_timeout=10s")).await.unwrap();
                let seen = engine.guarantees().deployment().contains("pooler");
                assert_eq!(seen, n % 4 != 3);
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
    }
}

#[tokio::test]
async fn a_password_is_asked_for_and_never_told() {
    use std::os::unix::fs::PermissionsExt as _;
    // Readable by the user that the server runs as.
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let rules = folder.path().join("pg_hba.conf");
    std::fs::write(&rules, "host all test 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n").unwrap();
    let db = Pg(Postgres::start_with(["fsync=off".to_owned(), format!("hba_file={}", rules.display())]).unwrap());
    db.run("CREATE ROLE app LOGIN PASSWORD 'a right one'; GRANT ALL ON SCHEMA public TO app").await;
    let url = |who: &str| format!("postgres://{who}@{}/postgres", db.address());
    for wrong in ["app", "app:awrongone", "nobody:a%20right%20one"] {
        let e = Pg::connect(&url(wrong)).await.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Denied, "{wrong}: {e}");
        assert!(!format!("{e} {e:?}").contains("wrongone"), "{e}");
    }
    granted(&Pg::connect(&url("app:a%20right%20one")).await.unwrap(), &claim("a", ms(1_000))).await;
}

#[tokio::test]
async fn who_may_not_create_is_told_the_statements() {
    let db = Pg::start();
    db.run("CREATE ROLE app LOGIN").await;
    let url = format!("postgres://app@{}/postgres", db.address());
    let e = Pg::connect(&url).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Denied, "{e}");
    let statements = e.message().split_once("runs:\n").unwrap().1.to_owned();
    db.run(&statements).await;
    let e = Pg::connect(&url).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Denied, "{e}");
    db.run(
        "GRANT SELECT, INSERT, UPDATE, DELETE ON fencelock_locks, fencelock_locks_voids, fencelock_locks_meta TO app",
    )
    .await;
    granted(&Pg::connect(&url).await.unwrap(), &claim("a", ms(1_000))).await;
    for (url, kind) in [
        (format!("postgres://nobody@{}/postgres", db.address()), ErrorKind::Denied),
        (format!("postgres://test@{}/none", db.address()), ErrorKind::InvalidConfig),
        (format!("postgres://test@{}/postgres?table=none.locks", db.address()), ErrorKind::InvalidConfig),
        ("postgres://test@127.0.0.1:1/postgres".to_owned(), ErrorKind::Unavailable),
    ] {
        let e = Pg::connect(&url).await.unwrap_err();
        assert_eq!(e.kind(), kind, "{url}: {e}");
    }
}

#[tokio::test]
async fn the_gate() {
    let db = Pg::start();
    let pool = db.pool().await;
    db.run("CREATE TABLE data (n bigint); INSERT INTO data VALUES (0)").await;
    let gate = PostgresGate::open(pool.clone()).await.unwrap();
    let (old, new) = (FencingToken::new(7), FencingToken::new(8));
    let Admission::Admitted(mut pass) = gate.transaction("r", new).await.unwrap() else { panic!("stale") };
    // Nobody enters, with a larger token either, until that transaction has ended.
    let (other, waiting) = (PostgresGate::open(pool.clone()).await.unwrap(), Instant::now());
    let entering = tokio::spawn(async move { other.transaction("r", FencingToken::new(9)).await.unwrap().is_stale() });
    tokio::time::sleep(ms(300)).await;
    assert!(!entering.is_finished());
    sqlx::query("UPDATE data SET n = 1").execute(&mut *pass).await.unwrap();
    pass.commit().await.unwrap();
    assert!(!entering.await.unwrap() && waiting.elapsed() >= ms(300));
    // That one was dropped, and so is its entering.
    let Admission::Stale(stale) = gate.transaction("r", old).await.unwrap() else { panic!("not stale") };
    assert_eq!(stale.newest, new);
    assert!(!gate.transaction("r", new).await.unwrap().is_stale(), "the same may enter again");
    let mut connection = pool.acquire().await.unwrap();
    let e = gate.enter(&mut connection, "r", new).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unsupported);
    let mut transaction = pool.begin().await.unwrap();
    assert!(gate.enter(&mut transaction, "r", old).await.unwrap().is_stale());
    drop(transaction);
    db.run("DROP TABLE fencelock_fences; CREATE TABLE fencelock_fences (resource text, fence bigint)").await;
    assert_eq!(PostgresGate::open(pool).await.unwrap_err().kind(), ErrorKind::InvalidConfig);
}

/// Told of a release, it asks, and somebody else was faster: the next release has to be told as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_loses_a_race_is_told_of_the_next_release() {
    let db = Pg::start();
    let (ours, other) = (db.client().await, db.client().await);
    let flagged = "SELECT count(*) FROM fencelock_locks WHERE name = 'x'::bytea AND waited";
    let mut lost = 0;
    for _ in 0..60 {
        let held = ours.acquire("x").await.unwrap();
        let waiter = tokio::spawn(other.acquire("x"));
        // In time to be told, and not so late that its own next look would do.
        let waits = async || {
            let begun = Instant::now();
            while db.number(flagged).await == 0 && !waiter.is_finished() {
                assert!(begun.elapsed() < Duration::from_secs(4), "it waits, and no release will be told");
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        waits().await;
        held.release().await.unwrap();
        let pause = Duration::from_micros(fastrand::u64(0..400));
        tokio::task::spawn_blocking(move || std::thread::sleep(pause)).await.unwrap();
        if let Some(held) = ours.try_acquire("x").await.unwrap() {
            lost += 1;
            waits().await;
            held.release().await.unwrap();
        }
        waiter.await.unwrap().unwrap().release().await.unwrap();
    }
    println!("it lost {lost} of 60 races");
}

/// Behind a pooler no session's settings bound a statement: each brings its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_pooler_a_locked_row_holds_up_no_other_release() {
    let lock_row = "SELECT 1 FROM fencelock_locks WHERE name = '{name}' FOR UPDATE";
    crowds::a_locked_row_holds_up_no_other_release::<Pg>(lock_row, "?pooler=transaction").await;
}

/// Having waited once, a client goes on to send what is ready together in one statement.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_waited_still_travels_together() {
    let db = Pg::start();
    let (client, other) = (db.client().await, db.client().await);
    let held = other.acquire("waited for").await.unwrap();
    let waiting = client.clone();
    let waiting = tokio::spawn(async move { waiting.acquire("waited for").await.unwrap() });
    tokio::time::sleep(ms(300)).await;
    held.release().await.unwrap();
    waiting.await.unwrap().release().await.unwrap();
    // Any acquire of this client could now tell that it waits.
    for part in WATCH {
        db.run(part).await;
    }
    let mut acquires = tokio::task::JoinSet::new();
    for n in 0..64 {
        let client = client.clone();
        acquires.spawn(async move { client.acquire(&format!("free {n}")).await.unwrap() });
    }
    let guards = acquires.join_all().await;
    let statements = db.number("SELECT count(*) FROM statements").await;
    println!("64 acquires: {statements} statements");
    assert!(statements <= 24, "{statements}");
    drop(guards);
}
