//! Acquire and release beside the same two statements sent raw through sqlx.
//!
//! `cargo bench -p fencelock-sql --features postgres,mysql`; it takes about half a minute and starts its own servers.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, missing_docs, reason = "a benchmark")]

use fencelock_core::{EngineUrl, LockClient};
use fencelock_lab::{MariaDb, Postgres};
use fencelock_sql::SqlLock;
use fencelock_sql::mysql::MySqlConfig;
use fencelock_sql::postgres::PostgresConfig;
use sqlx::{AssertSqlSafe, ConnectOptions, MySqlConnection, PgConnection};
use std::sync::Arc;
use std::time::{Duration, Instant};

const ROUNDS: usize = 9;
const PAIRS: u32 = 400;

const PG_NOW: &str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
const MY_NOW: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";

fn fill(sql: &str, now: &str, quote: char) -> Arc<str> {
    let name = |name: &str| format!("{quote}{name}{quote}");
    let sql = sql.replace("{now}", now).replace("{locks}", &name("fencelock_locks"));
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
    let rows = rows.bind(30_000_000_i64).bind("bench:1").bind(None::<&str>).bind(number).bind("200");
    assert_eq!(rows.fetch_all(&mut *connection).await.unwrap().len(), 1);
    let rows = sqlx::query(AssertSqlSafe(Arc::clone(free))).bind(&b"raw"[..]).bind(&id[..]).bind("channel");
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
            _ => query.bind(None::<&str>),
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

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2] / PAIRS
}

async fn ours(client: &LockClient, name: &str) -> Duration {
    let lock = client.named(name);
    let started = Instant::now();
    for _ in 0..PAIRS {
        lock.acquire().await.unwrap().release().await.unwrap();
    }
    started.elapsed()
}

fn tell(what: &str, ours: Vec<Duration>, raw: Vec<Duration>) {
    let (ours, raw) = (median(ours), median(raw));
    let ratio = ours.as_secs_f64() / raw.as_secs_f64();
    println!("{what}: acquire + release {ours:?}, the same two statements raw {raw:?}: {ratio:.2} of raw");
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    // On a worker, as what the client does: the main thread is woken more slowly.
    tokio::spawn(bench()).await.unwrap();
}

async fn bench() {
    let server = Postgres::start().unwrap();
    let config = PostgresConfig::from_url(&EngineUrl::parse(&server.url()).unwrap()).unwrap();
    let client = LockClient::new(SqlLock::postgres(config).await.unwrap()).unwrap();
    let mut connection = raw_options::<sqlx::postgres::PgConnectOptions>(&server.url()).connect().await.unwrap();
    let acquire = fill(include_str!("../src/postgres/sql/acquire.sql"), PG_NOW, '"');
    let free = fill(include_str!("../src/postgres/sql/free.sql"), PG_NOW, '"');
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        with.push(ours(&client, "raw").await);
        let started = Instant::now();
        for _ in 0..PAIRS {
            raw_postgres(&mut connection, &acquire, &free).await;
        }
        without.push(started.elapsed());
    }
    tell("PostgreSQL", with, without);

    let server = MariaDb::start().unwrap();
    let config = MySqlConfig::from_url(&EngineUrl::parse(&server.url()).unwrap()).unwrap();
    let client = LockClient::new(SqlLock::mysql(config).await.unwrap()).unwrap();
    let mut connection = raw_options::<sqlx::mysql::MySqlConnectOptions>(&server.url()).connect().await.unwrap();
    let acquire = ordered(&fill(include_str!("../src/mysql/sql/acquire.sql"), MY_NOW, '`'));
    let free = ordered(&fill(include_str!("../src/mysql/sql/free.sql"), MY_NOW, '`'));
    client.acquire("raw").await.unwrap().release().await.unwrap(); // the row is there for both
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        with.push(ours(&client, "raw").await);
        let started = Instant::now();
        for _ in 0..PAIRS {
            raw_mysql(&mut connection, &acquire, &free).await;
        }
        without.push(started.elapsed());
    }
    tell("MariaDB", with, without);
}
