//! Acquire and release beside the same two statements sent raw through sqlx.
//!
//! `cargo bench -p fencelock-sql --features postgres,mysql,sqlite`; it takes about half a minute and starts its own servers.
//! All of it runs on one processor; `-- --unpinned` leaves that to the scheduler.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, missing_docs, reason = "a benchmark")]

use fencelock_core::{EngineUrl, LockClient};
use fencelock_lab::{MariaDb, Postgres};
use fencelock_sql::SqlLock;
use fencelock_sql::mysql::MySqlConfig;
use fencelock_sql::postgres::PostgresConfig;
use fencelock_sql::sqlite::SqliteConfig;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use sqlx::sqlite::{SqliteJournalMode, SqliteSynchronous};
use sqlx::{AssertSqlSafe, ConnectOptions, MySqlConnection, PgConnection, SqliteConnection};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const ROUNDS: usize = 101;
const PAIRS: u32 = 40;

const PG_NOW: &str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
const MY_NOW: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";

fn fill(sql: &str, now: &str, quote: char) -> Arc<str> {
    let name = |name: &str| format!("{quote}{name}{quote}");
    let sql = sql.replace("{now}", now).replace("{locks}", &name("fencelock_locks")).replace("{reserve}", "");
    sql.replace("{voids}", &name("fencelock_locks_voids")).into()
}

/// The values' order, as the server wants it.
fn ordered(sql: &str) -> (Arc<str>, Vec<usize>) {
    let sql: Vec<_> = sql.lines().filter(|line| !line.trim_start().starts_with("--")).collect();
    let (mut text, mut order) = (String::new(), Vec::new());
    for (n, part) in sql.join("\n").split('$').enumerate() {
        if n == 0 {
            text.push_str(part);
            continue;
        }
        order.push(usize::from(part.as_bytes()[0] - b'1'));
        text.push('?');
        text.push_str(&part[1..]);
    }
    (text.into(), order)
}

fn id() -> ([u8; 16], i64) {
    let id = fastrand::u128(..).to_be_bytes();
    (id, i64::from_be_bytes(id[..8].try_into().unwrap()))
}

async fn raw_postgres(connection: &mut PgConnection, acquire: &Arc<str>, free: &Arc<str>) {
    let (id, number) = id();
    let rows = sqlx::query(AssertSqlSafe(Arc::clone(acquire))).bind(&b"raw"[..]).bind(&id[..]).bind(1_i64);
    let rows = rows.bind(30_000_000_i64).bind("bench:1").bind(None::<&str>).bind(number).bind("200").bind(0_i64);
    assert_eq!(rows.fetch_all(&mut *connection).await.unwrap().len(), 1);
    let rows = sqlx::query(AssertSqlSafe(Arc::clone(free))).bind(&b"raw"[..]).bind(&id[..]).bind("channel");
    let rows = rows.bind(None::<&str>).bind(i64::MIN).bind(i64::MAX);
    assert_eq!(rows.fetch_all(connection).await.unwrap().len(), 1);
}

async fn raw_mysql(connection: &mut MySqlConnection, acquire: &(Arc<str>, Vec<usize>), free: &(Arc<str>, Vec<usize>)) {
    let (id, _) = id();
    let mut query = sqlx::query(AssertSqlSafe(Arc::clone(&acquire.0)));
    for n in &acquire.1 {
        query = match n {
            0 => query.bind(&b"raw"[..]),
            1 => query.bind(&id[..]),
            2 => query.bind(1_i64),
            3 => query.bind(30_000_000_i64),
            4 => query.bind("bench:1"),
            5 => query.bind(None::<&str>),
            _ => query.bind(0_i64),
        };
    }
    let taken = query.execute(&mut *connection).await.unwrap();
    assert!(taken.rows_affected() == 1 && taken.last_insert_id() > 0);
    let mut query = sqlx::query(AssertSqlSafe(Arc::clone(&free.0)));
    for n in &free.1 {
        query = if *n == 0 { query.bind(&b"raw"[..]) } else { query.bind(&id[..]) };
    }
    assert_eq!(query.execute(connection).await.unwrap().rows_affected(), 1);
}

/// As the engine connects: without a log line for each statement.
fn raw_options<O: ConnectOptions + std::str::FromStr<Err = sqlx::Error>>(url: &str) -> O {
    url.parse::<O>().unwrap().disable_statement_logging()
}

async fn raw_sqlite(connection: &mut SqliteConnection) {
    let (id, _) = id();
    // The clock and the time are read as the engine does, though they cost next to nothing.
    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap();
    let acquire = include_str!("../src/sqlite/sql/acquire.sql").replace("{reserve}", "");
    let acquire = sqlx::query(AssertSqlSafe(acquire));
    let acquire = acquire.bind(&b"raw"[..]).bind(&id[..]).bind(now).bind(now).bind(30_000_000_i64).bind("frame");
    let acquire = acquire.bind("bench:1").bind(None::<&str>).bind(now).bind(0_i64);
    assert_eq!(acquire.fetch_all(&mut *connection).await.unwrap().len(), 1);
    let free = sqlx::query(include_str!("../src/sqlite/sql/free.sql")).bind(&b"raw"[..]).bind(&id[..]);
    assert_eq!(free.fetch_all(connection).await.unwrap().len(), 1);
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// The same two statements through sqlx alone.
enum Raw {
    Postgres(PgConnection, Arc<str>, Arc<str>),
    MySql(MySqlConnection, (Arc<str>, Vec<usize>), (Arc<str>, Vec<usize>)),
    Sqlite(SqliteConnection),
}

impl Raw {
    async fn pair(&mut self) {
        match self {
            Self::Postgres(connection, acquire, free) => raw_postgres(connection, acquire, free).await,
            Self::MySql(connection, acquire, free) => raw_mysql(connection, acquire, free).await,
            Self::Sqlite(connection) => raw_sqlite(connection).await,
        }
    }
}

/// Both in turn, in small groups, so that whatever else the machine does meets both alike.
async fn compare(what: &str, client: &LockClient, mut raw: Raw) {
    let lock = client.named("raw");
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let started = Instant::now();
        for _ in 0..PAIRS {
            lock.acquire().await.unwrap().release().await.unwrap();
        }
        with.push(started.elapsed() / PAIRS);
        let started = Instant::now();
        for _ in 0..PAIRS {
            raw.pair().await;
        }
        without.push(started.elapsed() / PAIRS);
    }
    let (least, most) = (*with.iter().min().unwrap(), *without.iter().min().unwrap());
    let (ours, raw) = (median(with), median(without));
    println!(
        "{what}: acquire + release {ours:?}, the same two statements raw {raw:?}: {:.2} of raw; at their best {least:?} and {most:?}: {:.2}",
        ours.as_secs_f64() / raw.as_secs_f64(),
        least.as_secs_f64() / most.as_secs_f64(),
    );
}

/// One processor for us and for the servers, which inherit it. On several, what is measured is where the scheduler puts
/// who is woken: the same statements took twice as long from one connection as from the next.
fn pin() {
    let allowed = sched_getaffinity(None).unwrap();
    let last = (0..CpuSet::MAX_CPU).rev().find(|cpu| allowed.is_set(*cpu)).unwrap();
    let mut one = CpuSet::new();
    one.set(last);
    sched_setaffinity(None, &one).unwrap();
}

fn main() {
    if !std::env::args().any(|word| word == "--unpinned") {
        pin();
    }
    // On one thread what is compared is the work. On several, a task that is alone and waits for
    // a socket is moved between the workers, which costs raw more than us.
    let one = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    one.block_on(async { tokio::spawn(bench("one thread")).await.unwrap() });
    drop(one);
    let several = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    // On a worker, as what the client does: the main thread is woken more slowly.
    several.block_on(async { tokio::spawn(bench("two threads")).await.unwrap() });
}

/// All three, or those that are named.
async fn bench(threads: &str) {
    let named: Vec<_> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let wanted = |name: &str| named.is_empty() || named.iter().any(|named| named == name);
    if wanted("postgres") {
        postgres(Postgres::start_durable().unwrap(), &format!("PostgreSQL, {threads}")).await;
        postgres(Postgres::start().unwrap(), &format!("PostgreSQL that waits for no disk, {threads}")).await;
    }
    if wanted("mysql") {
        mysql(MariaDb::start_durable().unwrap(), &format!("MariaDB, {threads}")).await;
        mysql(MariaDb::start().unwrap(), &format!("MariaDB that waits for no disk, {threads}")).await;
    }
    if wanted("sqlite") {
        sqlite(threads).await;
    }
}

async fn postgres(server: Postgres, what: &str) {
    let config = PostgresConfig::from_url(&EngineUrl::parse(&server.url()).unwrap()).unwrap();
    let client = LockClient::new(SqlLock::postgres(config).await.unwrap()).unwrap();
    let mut connection = raw_options::<sqlx::postgres::PgConnectOptions>(&server.url()).connect().await.unwrap();
    // The server bounds each statement of ours, which costs it the setting of a timer.
    let bounds = "SET statement_timeout = 2000; SET lock_timeout = 200";
    sqlx::raw_sql(bounds).execute(&mut connection).await.unwrap();
    let then = concat!("\n", include_str!("../src/postgres/sql/tries.sql"));
    let acquire = fill(&include_str!("../src/postgres/sql/acquire.sql").replace("{then}", then), PG_NOW, '"');
    let free = fill(include_str!("../src/postgres/sql/free.sql"), PG_NOW, '"');
    compare(what, &client, Raw::Postgres(connection, acquire, free)).await;
}

async fn mysql(server: MariaDb, what: &str) {
    let config = MySqlConfig::from_url(&EngineUrl::parse(&server.url()).unwrap()).unwrap();
    let client = LockClient::new(SqlLock::mysql(config).await.unwrap()).unwrap();
    let mut connection = raw_options::<sqlx::mysql::MySqlConnectOptions>(&server.url()).connect().await.unwrap();
    sqlx::raw_sql("SET SESSION max_statement_time = 2").execute(&mut connection).await.unwrap();
    let acquire = ordered(&fill(include_str!("../src/mysql/sql/acquire.sql"), MY_NOW, '`'));
    let free = ordered(&fill(include_str!("../src/mysql/sql/free.sql"), MY_NOW, '`'));
    client.acquire("raw").await.unwrap().release().await.unwrap(); // the row is there for both
    compare(what, &client, Raw::MySql(connection, acquire, free)).await;
}

async fn sqlite(threads: &str) {
    let directory = tempfile::tempdir().unwrap();
    let config = SqliteConfig::new(directory.path().join("locks.db"));
    let client = LockClient::new(SqlLock::sqlite(config).await.unwrap()).unwrap();
    // A file each: in one, the other's writes would be seen as another process's.
    let other = SqliteConfig::new(directory.path().join("raw.db"));
    drop(SqlLock::sqlite(other).await.unwrap());
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(directory.path().join("raw.db"));
    let options = options.journal_mode(SqliteJournalMode::Wal).synchronous(SqliteSynchronous::Full);
    let connection = options.disable_statement_logging().connect().await.unwrap();
    compare(&format!("SQLite, {threads}"), &client, Raw::Sqlite(connection)).await;
}
