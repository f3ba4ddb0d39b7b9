//! MariaDB: what is asked of every server, and what is its own.
#![cfg(feature = "mysql")]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests")]

mod server;

use fencelock_core::{Admission, DistributedLock as _, ErrorKind, FencingToken, Gate as _, Level};
use fencelock_lab::MariaDb;
use fencelock_sql::mysql::MySqlGate;
use server::*;
use std::time::Instant;

const STATEMENTS: &str = "SELECT CAST(SUM(variable_value) AS SIGNED) FROM information_schema.global_status
    WHERE variable_name IN ('COM_INSERT', 'COM_UPDATE')";
const OPEN: &str = "SELECT count(*) FROM information_schema.innodb_trx";

macro_rules! of_every_server {
    ($($part:ident :: $name:ident ( $($argument:expr),* );)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            server::$part::$name::<My>($($argument),*).await;
        })*
    };
}

of_every_server! {
    crowds::each_is_answered_as_by_itself();
    crowds::of_two_for_one_name_one_is_granted();
    crowds::each_release_is_answered_as_by_itself();
    crowds::sixty_four_take_few_statements(&[], STATEMENTS);
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
    forced::a_forced_release_keeps_the_lock_delay();
    forced::what_a_forced_release_leaves();
    tables::every_name_is_a_lock_of_its_own();
    tables::ids_die_and_tokens_stay();
    tables::tokens_grow_past_a_base();
    tables::purging_repeats_no_token();
    tables::the_printed_statements_are_right();
    tables::wrong_shapes_are_refused(&[
        "ALTER TABLE fencelock_locks MODIFY token INT NOT NULL",
        "ALTER TABLE fencelock_locks DROP PRIMARY KEY",
        "ALTER TABLE fencelock_locks MODIFY name VARCHAR(512) NOT NULL",
        "ALTER TABLE fencelock_locks MODIFY name VARBINARY(64) NOT NULL",
        "ALTER TABLE fencelock_locks DROP PRIMARY KEY, ADD PRIMARY KEY (name(10))",
        "ALTER TABLE fencelock_locks ENGINE = MyISAM",
    ]);
    transactions::it_commits_with_the_data();
    transactions::leases_beside_an_open_one();
    transactions::no_update_is_lost();
    transactions::two_lines_guard_a_table_of_ones_own();
    transactions::an_outer_transaction_freezes_no_clock();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_isolation_as_default() {
    for level in ["READ-UNCOMMITTED", "READ-COMMITTED", "SERIALIZABLE"] {
        let setting = format!("--transaction-isolation={level}");
        faults::defaults_of_isolation_do_no_harm(My(MariaDb::start_with([setting]).unwrap())).await;
    }
}

#[tokio::test]
async fn too_many_connections_and_a_read_only_server_are_unavailable() {
    let db = My(MariaDb::start_with(["--max-connections=10", "--extra-max-connections=1"]).unwrap());
    let client = db.client().await;
    let pool = sqlx::mysql::MySqlPoolOptions::new().max_connections(20);
    let pool = pool.acquire_timeout(ms(3_000)).connect(&db.url()).await.unwrap();
    let mut taken = Vec::new();
    while let Ok(connection) = pool.acquire().await {
        taken.push(connection);
    }
    let e = My::connect(&db.url()).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    assert!(e.message().contains("too many"), "{e}");
    client.acquire("a").await.unwrap().release().await.unwrap(); // on what it has
    drop(taken);
    pool.close().await;
    // The server notices one by one that they are closed.
    until("room for more", async || {
        let Ok(mut one) = <sqlx::MySqlConnection as sqlx::Connection>::connect(&db.url()).await else { return false };
        let count = "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'root'";
        sqlx::query_scalar(count).fetch_one(&mut one).await.is_ok_and(|there: i64| there < 6)
    })
    .await;

    let app = format!("mysql://app@{}/test", db.address());
    db.run("CREATE USER app@'%'; GRANT ALL ON test.* TO app@'%'").await;
    let client = fencelock_core::LockClient::new(My::connect(&app).await.unwrap()).unwrap();
    db.run("SET GLOBAL read_only = 1").await;
    let e = client.try_acquire("a").await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    assert!(e.message().contains("no writes"), "{e}");
    db.run("SET GLOBAL read_only = 0").await;
    until("back", async || client.try_acquire("a").await.is_ok()).await;
}

#[tokio::test]
async fn the_level_is_what_the_server_gives() {
    let level = async |settings: &[&str]| {
        let db = My(MariaDb::start_with(settings.iter().copied()).unwrap());
        db.engine().await.guarantees().level()
    };
    let durable = "--innodb-flush-log-at-trx-commit=1";
    assert_eq!(level(&[durable]).await, Some(Level::Fenced));
    assert_eq!(level(&["--innodb-flush-log-at-trx-commit=2"]).await, Some(Level::Advisory));
    assert_eq!(level(&[durable, "--innodb-doublewrite=OFF"]).await, Some(Level::Advisory));
    assert_eq!(level(&[durable, "--log-bin=b", "--server-id=1"]).await, Some(Level::Advisory), "sync_binlog is 0");
    assert_eq!(level(&[durable, "--log-bin=b", "--server-id=1", "--sync-binlog=1"]).await, Some(Level::Fenced));
}

#[tokio::test]
async fn a_password_is_asked_for_and_never_told() {
    let db = My::start();
    db.run("CREATE USER app@'%' IDENTIFIED BY 'a right one'; GRANT ALL ON test.* TO app@'%'").await;
    let url = |who: &str| format!("mysql://{who}@{}/test", db.address());
    for wrong in ["app", "app:awrongone", "nobody:a%20right%20one"] {
        let e = My::connect(&url(wrong)).await.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Denied, "{wrong}: {e}");
        assert!(!format!("{e} {e:?}").contains("wrongone"), "{e}");
    }
    granted(&My::connect(&url("app:a%20right%20one")).await.unwrap(), &claim("a", ms(1_000))).await;
}

#[tokio::test]
async fn who_may_not_create_is_told_the_statements() {
    let db = My::start();
    db.run("CREATE USER app@'%'; GRANT SELECT, INSERT, UPDATE, DELETE ON test.* TO app@'%'").await;
    let url = format!("mysql://app@{}/test", db.address());
    let e = My::connect(&url).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Denied, "{e}");
    let statements = e.message().split_once("runs:\n").unwrap().1.to_owned();
    db.run(&statements).await;
    granted(&My::connect(&url).await.unwrap(), &claim("a", ms(1_000))).await;
    for (url, kind) in [
        (format!("mysql://nobody:x@{}/test", db.address()), ErrorKind::Denied),
        (format!("mysql://root@{}/none", db.address()), ErrorKind::InvalidConfig),
        ("mysql://root@127.0.0.1:1/test".to_owned(), ErrorKind::Unavailable),
    ] {
        let e = My::connect(&url).await.unwrap_err();
        assert_eq!(e.kind(), kind, "{url}: {e}");
    }
}

/// A new name's statement has the floor's row and waits for a gap, whose owner then wants the floor's row.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadlock_is_retried() {
    let db = My::start();
    let (client, pool) = (db.client().await, db.pool().await);
    db.run("CREATE TABLE weight (n BIGINT)").await;
    let deadlocks = "SELECT CAST(variable_value AS SIGNED) FROM information_schema.global_status \
                     WHERE variable_name = 'INNODB_DEADLOCKS'";
    let waits = "SELECT CAST(variable_value AS SIGNED) FROM information_schema.global_status \
                 WHERE variable_name = 'INNODB_ROW_LOCK_CURRENT_WAITS'";
    let before = db.number(deadlocks).await;
    for n in 0.. {
        // A machine that stands still may let the wait for the gap run out before the other wants the floor's row.
        if n >= 3 && (n >= 20 || db.number(deadlocks).await > before) {
            break;
        }
        let name = format!("new/{n}");
        let mut other = pool.begin().await.unwrap();
        // So much that it is not the one who has to give way.
        My::run_in(&mut other, "INSERT INTO weight SELECT seq FROM seq_1_to_500").await;
        My::run_in(&mut other, &format!("SELECT 1 FROM fencelock_locks WHERE name = '{name}' FOR UPDATE")).await;
        let (waiting, wanted) = (client.clone(), name.clone());
        let waiting =
            tokio::spawn(async move { waiting.named(&wanted).wait_at_most(ms(30_000)).acquire().await.unwrap() });
        until("it waits for the gap", async || db.number(waits).await > 0).await;
        My::run_in(&mut other, "UPDATE fencelock_locks SET note = 'x' WHERE name = ''").await;
        tokio::time::sleep(ms(100)).await;
        assert!(!waiting.is_finished());
        other.rollback().await.unwrap();
        waiting.await.unwrap().release().await.unwrap();
    }
    let met = db.number(deadlocks).await - before;
    println!("{met} deadlocks met");
    assert!(met >= 1, "the test shows nothing");
}

/// Somebody else's transaction has the row of one hold to itself; the holds renewed with it go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_row_holds_up_no_other_renewal() {
    let db = My::start();
    let client = db.client().await;
    let mut guards = Vec::new();
    for name in ["a", "b", "c"] {
        guards.push(client.named(name).ttl(ms(6_000)).acquire().await.unwrap());
    }
    let pool = db.pool().await;
    let mut outer = pool.begin().await.unwrap();
    My::run_in(&mut outer, "SELECT * FROM fencelock_locks WHERE name = 'b' FOR UPDATE").await;
    guards[1].lost().await;
    renewed([&guards[0], &guards[2]]).await;
    let held: Vec<_> = guards.iter().map(fencelock_core::LockGuard::is_held).collect();
    assert_eq!(held, [true, false, true]);
    outer.rollback().await.unwrap();
}

/// Somebody's transaction has one of the rows to itself: the others go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_row_holds_up_no_purge() {
    let db = My::start();
    let (engine, pool) = (db.engine().await, db.pool().await);
    db.run("INSERT INTO fencelock_locks SELECT CONCAT('n', seq), '', seq, 0, 0, 0, '', NULL, 0 FROM seq_1_to_200")
        .await;
    let mut other = pool.begin().await.unwrap();
    My::run_in(&mut other, "UPDATE fencelock_locks SET note = 'x' WHERE name = 'n7'").await;
    let dropped = engine.purge(ms(60_000)).await.unwrap();
    other.rollback().await.unwrap();
    assert!((100..200).contains(&dropped), "{dropped}");
    assert_eq!(db.number("SELECT COUNT(*) FROM fencelock_locks WHERE name = 'n7'").await, 1);
    assert_eq!(engine.purge(ms(60_000)).await.unwrap(), 200 - dropped);
}

/// More rows than one statement looks at, among them some that stay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_rows_are_purged_a_few_at_a_time() {
    let db = My::start();
    let engine = My::connect(&format!("{}?request_timeout=2s", db.url())).await.unwrap();
    db.run("INSERT INTO fencelock_locks SELECT CONCAT('n', seq), '', seq, 0, 0, 0, '', NULL, 0 FROM seq_1_to_12000")
        .await;
    db.run(&format!("UPDATE fencelock_locks SET acquired_at = {} WHERE token % 4000 = 0 AND name <> ''", My::NOW))
        .await;
    assert_eq!(engine.purge(ms(60_000)).await.unwrap(), 11_997);
    assert_eq!(db.number("SELECT token FROM fencelock_locks WHERE name = ''").await, 11_999);
    assert_eq!(db.number("SELECT COUNT(*) FROM fencelock_locks").await, 4);
}

#[tokio::test]
async fn the_gate() {
    let db = My::start();
    let pool = db.pool().await;
    db.run("CREATE TABLE data (n bigint); INSERT INTO data VALUES (0)").await;
    let gate = MySqlGate::open(pool.clone()).await.unwrap();
    let (old, new) = (FencingToken::new(7), FencingToken::new(8));
    let Admission::Admitted(mut pass) = gate.transaction("r", new).await.unwrap() else { panic!("stale") };
    // Nobody enters, with a larger token either, until that transaction has ended.
    let (other, waiting) = (MySqlGate::open(pool.clone()).await.unwrap(), Instant::now());
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
    assert_eq!(MySqlGate::open(pool).await.unwrap_err().kind(), ErrorKind::InvalidConfig);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_waiters_of_one_client_ask_as_one() {
    let db = My::start();
    let (holder, waiting) = (db.client().await, db.client().await);
    let guard = holder.named("a").ttl(ms(120_000)).acquire().await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let lock = waiting.named("a").wait_at_most(ms(120_000));
        tasks.spawn(async move { lock.acquire().await.unwrap().release().await.unwrap() });
    }
    tokio::time::sleep(ms(2_000)).await;
    let sent = "SELECT CAST(variable_value AS SIGNED) FROM information_schema.global_status
        WHERE variable_name = 'COM_STMT_EXECUTE'";
    let before = db.number(sent).await;
    tokio::time::sleep(ms(5_000)).await;
    let cost = db.number(sent).await - before;
    println!("100 waiters of one client, 5 s: {cost} statements");
    assert!((1..=60).contains(&cost), "{cost} statements: one of them asks every 250 to 500 ms");
    guard.release().await.unwrap();
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
}
