//! The code that is recommended for a lock inside a transaction compiles: what stands here is what `recommend` says.

#![allow(clippy::unused_async, dead_code, missing_docs, reason = "a test")]

use fencelock::{DoubleRun, FencingToken, Need, ResourceCheck, Service, recommend};
use sqlx::{Database, MySqlPool, PgPool, SqlitePool, Transaction};

type Done = Result<(), Box<dyn std::error::Error>>;

async fn work<DB: Database>(_: &mut Transaction<'_, DB>, _: FencingToken) -> Done {
    Ok(())
}

#[rustfmt::skip]
async fn sqlite(pool: SqlitePool) -> Done {
    use fencelock::DistributedLock as _;
    use fencelock::sql::{AcquireIn as _, SqlLock, sqlite::SqliteConfig};
    let url = fencelock::EngineUrl::parse("sqlite:/var/lib/app/locks.db")?; // the database of the data
    let locks = SqlLock::sqlite(SqliteConfig::from_url(&url)?).await?;
    locks.guarantees().require(fencelock::Level::Fenced)?;
    let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await?;
    let Some(hold) = locks.acquire_in(&mut transaction, "orders/1001").await? else {
        return Ok(()); // somebody else has it
    };
    work(&mut transaction, hold.token()).await?;
    transaction.commit().await?; // the lock ends with it
    Ok(())
}

#[rustfmt::skip]
async fn postgres(pool: PgPool) -> Done {
    use fencelock::DistributedLock as _;
    use fencelock::sql::{AcquireIn as _, SqlLock, postgres::PostgresConfig};
    let url = fencelock::EngineUrl::parse("postgres://app@db.internal/app")?; // the database of the data
    let locks = SqlLock::postgres(PostgresConfig::from_url(&url)?).await?;
    locks.guarantees().require(fencelock::Level::Fenced)?;
    let mut transaction = pool.begin().await?;
    let Some(hold) = locks.acquire_in(&mut transaction, "orders/1001").await? else {
        return Ok(()); // somebody else has it
    };
    work(&mut transaction, hold.token()).await?;
    transaction.commit().await?; // the lock ends with it
    Ok(())
}

#[rustfmt::skip]
async fn mysql(pool: MySqlPool) -> Done {
    use fencelock::DistributedLock as _;
    use fencelock::sql::{AcquireIn as _, SqlLock, mysql::MySqlConfig};
    let url = fencelock::EngineUrl::parse("mysql://app@db.internal/app")?; // the database of the data
    let locks = SqlLock::mysql(MySqlConfig::from_url(&url)?).await?;
    locks.guarantees().require(fencelock::Level::Fenced)?;
    let mut transaction = pool.begin().await?;
    let Some(hold) = locks.acquire_in(&mut transaction, "orders/1001").await? else {
        return Ok(()); // somebody else has it
    };
    work(&mut transaction, hold.token()).await?;
    transaction.commit().await?; // the lock ends with it
    Ok(())
}

#[rustfmt::skip]
async fn postgres_staying_up(pool: PgPool) -> Done {
    use fencelock::DistributedLock as _;
    use fencelock::sql::{AcquireIn as _, SqlLock, postgres::PostgresConfig};
    let url = fencelock::EngineUrl::parse("postgres://app@db.internal/app")?; // the database of the data
    let locks = SqlLock::postgres(PostgresConfig::from_url(&url)?.with_attested(["postgres.failover"])).await?;
    locks.guarantees().require(fencelock::Level::Replicated)?;
    let mut transaction = pool.begin().await?;
    let Some(hold) = locks.acquire_in(&mut transaction, "orders/1001").await? else {
        return Ok(()); // somebody else has it
    };
    work(&mut transaction, hold.token()).await?;
    transaction.commit().await?; // the lock ends with it
    Ok(())
}

#[test]
fn what_is_recommended_stands_here() {
    let need = Need::new(DoubleRun::Wrong).with_check(ResourceCheck::Transaction);
    let here: String = include_str!("chosen.rs").lines().map(|line| format!("{}\n", line.trim_start())).collect();
    let postgres = need.clone().with_service(Service::Postgres);
    let needs =
        [need.clone().on_one_host(), postgres.clone(), postgres.staying_up(), need.with_service(Service::MySql)];
    for need in needs {
        assert!(recommend(&need).dependency().contains("sqlx = { version = \"0.9\""), "{need:?}");
        let code: String = recommend(&need).code().lines().map(|line| format!("{}\n", line.trim_start())).collect();
        assert!(code.contains("acquire_in") && here.contains(&code), "{code}");
    }
}
