//! What the tests on PostgreSQL and on MariaDB share.
#![allow(
    dead_code,
    unused_imports,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "each test uses some of it, and tests may panic"
)]

pub(crate) mod crowds;
pub(crate) mod faults;
pub(crate) mod forced;
pub(crate) mod tables;
#[cfg(feature = "tls")]
pub(crate) mod tls;
pub(crate) mod transactions;

use async_trait::async_trait;
use fencelock_core::{
    Attempt, Claim, DistributedLock, EngineUrl, ErrorKind, Grant, LockClient, LockGuard, LockName, Result, Terms,
};
use fencelock_sql::SqlLock;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a loaded machine may add to anything that should be quick.
pub(crate) const SLACK: Duration = Duration::from_secs(8);

/// A database server of the lab, and a way into it that knows nothing of locks.
#[async_trait]
pub(crate) trait Db: Sized + Send + Sync + 'static {
    /// The number of the present, in microseconds of Unix time.
    const NOW: &'static str;

    type Sqlx: sqlx::Database;

    fn start() -> Self;
    fn url(&self) -> String;
    fn address(&self) -> SocketAddr;
    fn freeze(&self);
    fn thaw(&self);
    fn kill(&mut self);
    fn restart(&mut self);

    async fn connect(url: &str) -> Result<Arc<SqlLock>>;
    async fn run(&self, sql: &str);
    async fn number(&self, sql: &str) -> i64;
    async fn pool(&self) -> sqlx::Pool<Self::Sqlx>;
    async fn run_in(transaction: &mut sqlx::Transaction<'_, Self::Sqlx>, sql: &str);
    async fn number_in(transaction: &mut sqlx::Transaction<'_, Self::Sqlx>, sql: &str) -> i64;
    /// The same from within a transaction.
    async fn end_engine_sessions(&self, transaction: &mut sqlx::Transaction<'_, Self::Sqlx>);
    /// Ends every session of the engine's.
    async fn end_sessions(&self);

    async fn engine(&self) -> Arc<SqlLock> {
        Self::connect(&self.url()).await.unwrap()
    }

    async fn client(&self) -> LockClient {
        LockClient::new(self.engine().await).unwrap()
    }

    /// A client that goes through a proxy, and gives up soon, though not before a machine that stands still goes on.
    async fn through(&self, proxy: &fencelock_lab::Proxy) -> Arc<SqlLock> {
        let via = format!("127.0.0.1:{}", proxy.port());
        let url = self.url().replace(&self.address().to_string(), &via);
        let url = format!("{url}?request_timeout=1500ms");
        fencelock_lab::connected(|| Self::connect(&url)).await.unwrap()
    }
}

/// Waits until the sessions that are counted so have ended.
async fn none_left<D: Db>(db: &D, count: &str) {
    let started = Instant::now();
    while db.number(count).await > 0 {
        assert!(started.elapsed() < SLACK * 3, "the sessions have not ended");
        tokio::time::sleep(ms(5)).await;
    }
}

#[cfg(feature = "postgres")]
pub(crate) struct Pg(pub(crate) fencelock_lab::Postgres);

#[cfg(feature = "postgres")]
#[async_trait]
impl Db for Pg {
    type Sqlx = sqlx::Postgres;

    const NOW: &'static str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

    fn start() -> Self {
        Self(fencelock_lab::Postgres::start().unwrap())
    }
    fn url(&self) -> String {
        self.0.url()
    }
    fn address(&self) -> SocketAddr {
        self.0.address()
    }
    fn freeze(&self) {
        self.0.freeze();
    }
    fn thaw(&self) {
        self.0.thaw();
    }
    fn kill(&mut self) {
        self.0.server_mut().kill();
    }
    fn restart(&mut self) {
        self.0.restart().unwrap();
    }
    async fn connect(url: &str) -> Result<Arc<SqlLock>> {
        SqlLock::postgres(fencelock_sql::postgres::PostgresConfig::from_url(&EngineUrl::parse(url)?)?).await
    }
    async fn run(&self, sql: &str) {
        use sqlx::{Connection as _, Executor as _};
        let mut connection = sqlx::PgConnection::connect(&self.url()).await.unwrap();
        connection.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned()))).await.unwrap();
    }
    async fn number(&self, sql: &str) -> i64 {
        use sqlx::Connection as _;
        let mut connection = sqlx::PgConnection::connect(&self.url()).await.unwrap();
        sqlx::query_scalar(sqlx::AssertSqlSafe(sql.to_owned())).fetch_one(&mut connection).await.unwrap()
    }
    async fn pool(&self) -> sqlx::Pool<sqlx::Postgres> {
        sqlx::PgPool::connect(&self.url()).await.unwrap()
    }
    async fn run_in(transaction: &mut sqlx::Transaction<'_, sqlx::Postgres>, sql: &str) {
        use sqlx::Executor as _;
        transaction.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned()))).await.unwrap();
    }
    async fn number_in(transaction: &mut sqlx::Transaction<'_, sqlx::Postgres>, sql: &str) -> i64 {
        sqlx::query_scalar(sqlx::AssertSqlSafe(sql.to_owned())).fetch_one(&mut **transaction).await.unwrap()
    }
    async fn end_sessions(&self) {
        // Those that were there, since new ones come.
        self.run(
            "CREATE TABLE IF NOT EXISTS ended (pid int); DELETE FROM ended;
            INSERT INTO ended SELECT pid FROM pg_stat_activity WHERE application_name = 'fencelock';
            SELECT pg_terminate_backend(pid) FROM ended",
        )
        .await;
        let left = "SELECT count(*) FROM pg_stat_activity JOIN ended USING (pid) WHERE application_name = 'fencelock'";
        none_left(self, left).await;
    }
    async fn end_engine_sessions(&self, _: &mut sqlx::Transaction<'_, sqlx::Postgres>) {
        self.end_sessions().await;
    }
}

#[cfg(feature = "mysql")]
pub(crate) struct My(pub(crate) fencelock_lab::MariaDb);

#[cfg(feature = "mysql")]
#[async_trait]
impl Db for My {
    type Sqlx = sqlx::MySql;

    const NOW: &'static str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";

    fn start() -> Self {
        // Not synced, but written: what a killed process has acknowledged is kept.
        let settings = ["--innodb-flush-log-at-trx-commit=2", "--innodb-flush-method=nosync"];
        Self(fencelock_lab::MariaDb::start_with(settings).unwrap())
    }
    fn url(&self) -> String {
        self.0.url()
    }
    fn address(&self) -> SocketAddr {
        self.0.address()
    }
    fn freeze(&self) {
        self.0.server().stop();
    }
    fn thaw(&self) {
        self.0.server().cont();
    }
    fn kill(&mut self) {
        self.0.server_mut().kill();
    }
    fn restart(&mut self) {
        self.0.restart().unwrap();
    }
    async fn connect(url: &str) -> Result<Arc<SqlLock>> {
        SqlLock::mysql(fencelock_sql::mysql::MySqlConfig::from_url(&EngineUrl::parse(url)?)?).await
    }
    async fn run(&self, sql: &str) {
        use sqlx::{Connection as _, Executor as _};
        let mut connection = sqlx::MySqlConnection::connect(&self.url()).await.unwrap();
        connection.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned()))).await.unwrap();
    }
    async fn number(&self, sql: &str) -> i64 {
        use sqlx::Connection as _;
        let mut connection = sqlx::MySqlConnection::connect(&self.url()).await.unwrap();
        sqlx::query_scalar(sqlx::AssertSqlSafe(sql.to_owned())).fetch_one(&mut connection).await.unwrap()
    }
    async fn pool(&self) -> sqlx::Pool<sqlx::MySql> {
        sqlx::MySqlPool::connect(&self.url()).await.unwrap()
    }
    async fn run_in(transaction: &mut sqlx::Transaction<'_, sqlx::MySql>, sql: &str) {
        use sqlx::Executor as _;
        transaction.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned()))).await.unwrap();
    }
    async fn number_in(transaction: &mut sqlx::Transaction<'_, sqlx::MySql>, sql: &str) -> i64 {
        sqlx::query_scalar(sqlx::AssertSqlSafe(sql.to_owned())).fetch_one(&mut **transaction).await.unwrap()
    }
    async fn end_sessions(&self) {
        use sqlx::{Connection as _, Executor as _, Row as _};
        let mut connection = sqlx::MySqlConnection::connect(&self.url()).await.unwrap();
        let sql = "SELECT CAST(id AS SIGNED) FROM information_schema.processlist WHERE id <> connection_id() AND user = 'root'";
        let rows = connection.fetch_all(sqlx::raw_sql(sql)).await.unwrap();
        let mut left = "SELECT count(*) FROM information_schema.processlist WHERE id IN (0".to_owned();
        for row in rows {
            let id: i64 = row.get(0);
            let _ = connection.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(format!("KILL {id}")))).await;
            left += &format!(", {id}");
        }
        left += ")";
        none_left(self, &left).await;
    }
    async fn end_engine_sessions(&self, transaction: &mut sqlx::Transaction<'_, sqlx::MySql>) {
        use sqlx::{Executor as _, Row as _};
        let sql = "SELECT CAST(id AS SIGNED) FROM information_schema.processlist \
                   WHERE id <> connection_id() AND user = 'root' AND info LIKE '%fencelock_locks%'";
        for row in transaction.fetch_all(sqlx::raw_sql(sql)).await.unwrap() {
            let kill = format!("KILL {}", row.get::<i64, _>(0));
            let _ = transaction.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(kill))).await;
        }
    }
}

pub(crate) fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

pub(crate) fn claim(name: &str, ttl: Duration) -> Claim {
    Terms::new(LockName::new(name).unwrap(), ttl).with_holder("tester").mint().unwrap()
}

pub(crate) async fn granted(engine: &SqlLock, claim: &Claim) -> Grant {
    match engine.try_acquire(claim).await.unwrap() {
        Attempt::Granted(grant) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

pub(crate) async fn contended(engine: &SqlLock, claim: &Claim) {
    match engine.try_acquire(claim).await.unwrap() {
        Attempt::Contended { .. } => {}
        other => panic!("not contended: {other:?}"),
    }
}

pub(crate) async fn dead(engine: &SqlLock, claim: &Claim) {
    let e = engine.try_acquire(claim).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Lost, "{e}");
}

/// Waits until it is so, looking often.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !holds().await {
        assert!(started.elapsed() < SLACK * 3, "not in time: {what}");
        tokio::time::sleep(ms(10)).await;
    }
}

/// Waits until each has been renewed from now on, and none is in doubt. What is lost is never renewed again.
pub(crate) async fn renewed(guards: impl IntoIterator<Item = &LockGuard>) {
    let guards: Vec<_> = guards.into_iter().map(|guard| (guard, guard.monitor().deadline())).collect();
    until("renewed", async || {
        guards.iter().all(|(guard, before)| {
            assert!(guard.is_held(), "{} is lost", guard.name());
            guard.monitor().deadline() > *before && !guard.in_jeopardy()
        })
    })
    .await;
}
