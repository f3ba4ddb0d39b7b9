//! Where the token is checked decides what it is worth: at no place, at the write alone,
//! before the first read and at the write. The same two late holders each time.
//!
//! `cargo run --example fenced_writes`

#![allow(clippy::print_stdout, reason = "it is for people to read")]

use fencelock::memory::MemoryGate;
use fencelock::{FencingToken, Gate};
use sqlx::{Connection, SqliteConnection};
use std::error::Error;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// A resource of one's own: any store with a conditional update will do.
struct Account(SqliteConnection);

impl Account {
    async fn open() -> Outcome<Self> {
        let mut account = SqliteConnection::connect("sqlite::memory:").await?;
        sqlx::raw_sql("CREATE TABLE account (balance INTEGER, fence INTEGER); INSERT INTO account VALUES (100, 0)")
            .execute(&mut account)
            .await?;
        Ok(Self(account))
    }

    async fn read(&mut self) -> Outcome<i64> {
        let (balance,) = sqlx::query_as("SELECT balance FROM account").fetch_one(&mut self.0).await?;
        Ok(balance)
    }

    /// Line one: before the first read. Whether the token is not stale.
    async fn enter(&mut self, token: FencingToken) -> Outcome<bool> {
        let line = "UPDATE account SET fence = $1 WHERE fence <= $1";
        Ok(sqlx::query(line).bind(token.as_i64()).execute(&mut self.0).await?.rows_affected() == 1)
    }

    /// Line two: the write, refused once a larger token has entered.
    async fn write(&mut self, balance: i64, token: FencingToken) -> Outcome<bool> {
        let line = "UPDATE account SET balance = $1 WHERE fence = $2";
        Ok(sqlx::query(line).bind(balance).bind(token.as_i64()).execute(&mut self.0).await?.rows_affected() == 1)
    }

    /// The half measure: the token is checked and raised by the write itself, and nobody enters.
    async fn write_only(&mut self, balance: i64, token: FencingToken) -> Outcome<bool> {
        let line = "UPDATE account SET balance = $1, fence = $2 WHERE fence <= $2";
        Ok(sqlx::query(line).bind(balance).bind(token.as_i64()).execute(&mut self.0).await?.rows_affected() == 1)
    }

    async fn write_unchecked(&mut self, balance: i64) -> Outcome {
        sqlx::query("UPDATE account SET balance = $1").bind(balance).execute(&mut self.0).await?;
        Ok(())
    }
}

fn show(how: &str, balance: i64, right: i64) {
    let verdict = if balance == right { "right" } else { "WRONG, a deposit is lost" };
    println!("  {how}: {balance} ({verdict})");
}

#[tokio::main]
async fn main() -> Outcome {
    // What a lock would give to a holder that is then paused, and to the next one.
    let (old, new) = (FencingToken::new(33), FencingToken::new(34));

    println!("The holder of token {old} reads 100 and is paused. The holder of {new} deposits 10.");
    println!("The first one wakes, and writes what it has read plus 5. Its deposit must not undo the other:");
    let mut account = Account::open().await?;
    let read = account.read().await?;
    let now = account.read().await? + 10;
    account.write_unchecked(now).await?;
    account.write_unchecked(read + 5).await?;
    show("no check          ", account.read().await?, 110);
    let mut account = Account::open().await?;
    let read = account.read().await?;
    let now = account.read().await? + 10;
    account.write_only(now, new).await?;
    let accepted = account.write_only(read + 5, old).await?;
    assert!(!accepted);
    show("at the write alone", account.read().await?, 110);

    println!("\nNow the first one wakes a little earlier: after the second has read, and before it writes.");
    println!("Acknowledged deposits have to be there in the end:");
    let mut account = Account::open().await?;
    let (first, second) = (account.read().await?, account.read().await?);
    let early = account.write_only(first + 5, old).await?;
    account.write_only(second + 10, new).await?;
    show("at the write alone", account.read().await?, if early { 115 } else { 110 });
    let mut account = Account::open().await?;
    account.enter(old).await?;
    let first = account.read().await?;
    account.enter(new).await?;
    let second = account.read().await?;
    let early = account.write(first + 5, old).await?;
    account.write(second + 10, new).await?;
    show("entered, and at the write", account.read().await?, if early { 115 } else { 110 });

    println!("\nA gate makes both steps one type: without entering there is no way to the data.");
    let balance = MemoryGate::<i64>::new();
    let late = balance.enter((), "account", old).await?.admitted()?;
    let current = balance.enter((), "account", new).await?.admitted()?;
    println!("  {new} deposits: {:?}", current.apply(|balance| *balance += 10));
    if let Err(stale) = late.apply(|balance| *balance += 5).admitted() {
        println!("  {old} deposits: refused, {stale}");
    }
    println!("\nGates: MemoryGate, SqliteGate, PostgresGate, MySqlGate, RedisGate; in etcd and ZooKeeper the test of");
    println!("ownership goes into your own transaction (examples etcd_owned, zookeeper_multi).");
    Ok(())
}
