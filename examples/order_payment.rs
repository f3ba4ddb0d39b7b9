//! A shop sells its last pair of shoes: which of lock, gate, version column and unique
//! key catches what, and what is sold twice without them.
//!
//! `cargo run --example order_payment`

#![allow(clippy::print_stdout, reason = "it is for people to read")]

use fencelock::sql::sqlite::SqliteGate;
use fencelock::{Gate, LockClient};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use std::error::Error;
use std::time::Duration;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Short, so that a pause outlasts it soon.
const TTL: Duration = Duration::from_millis(600);

/// What protects the sale.
#[derive(Clone, Copy, Default)]
struct Layers {
    /// One at a time, as long as the lock lasts.
    lock: bool,
    /// The data refuses the token of an earlier hold.
    gate: bool,
    /// The data refuses a write by what has changed since it was read.
    version: bool,
    /// The data refuses the same order twice.
    key: bool,
}

#[derive(Debug, PartialEq)]
enum Sale {
    Sold,
    SoldOut,
    RefusedBy(&'static str),
}

struct Shop {
    data: SqlitePool,
    gate: SqliteGate,
    locks: LockClient,
}

impl Shop {
    /// A customer pays: read the stock, think for `pause`, write it back less one.
    async fn checkout(&self, item: &str, order: &str, layers: Layers, pause: Duration) -> Outcome<Sale> {
        let guard = match layers.lock {
            // Without renewal, as for a process that stands still.
            true => Some(self.locks.named(item).ttl(TTL).auto_renew(false).acquire().await?),
            false => None,
        };
        let token = guard.as_ref().map(|guard| guard.token()).filter(|_| layers.gate);

        let mut reading = self.data.begin_with("BEGIN IMMEDIATE").await?;
        if let Some(token) = token
            && self.gate.enter(&mut reading, item, token).await?.is_stale()
        {
            return Ok(Sale::RefusedBy("gate"));
        }
        let query = sqlx::query_as("SELECT pairs, version FROM stock WHERE item = ?").bind(item);
        let (pairs, version): (i64, i64) = query.fetch_one(&mut *reading).await?;
        reading.commit().await?;
        if pairs == 0 {
            return Ok(Sale::SoldOut);
        }
        tokio::time::sleep(pause).await;

        // Dropped without a commit, it leaves nothing behind.
        let mut writing = self.data.begin_with("BEGIN IMMEDIATE").await?;
        if let Some(token) = token
            && self.gate.enter(&mut writing, item, token).await?.is_stale()
        {
            return Ok(Sale::RefusedBy("gate"));
        }
        let set = "UPDATE stock SET pairs = ?, version = version + 1 WHERE item = ? AND (version = ? OR NOT ?)";
        let write = sqlx::query(set).bind(pairs - 1).bind(item).bind(version).bind(layers.version);
        if write.execute(&mut *writing).await?.rows_affected() == 0 {
            return Ok(Sale::RefusedBy("version"));
        }
        let table = if layers.key { "payments" } else { "payments_without_key" };
        let pay = format!("INSERT OR IGNORE INTO {table} VALUES (?, ?)");
        let paid = sqlx::query(sqlx::AssertSqlSafe(pay)).bind(item).bind(order).execute(&mut *writing).await?;
        if paid.rows_affected() == 0 {
            return Ok(Sale::RefusedBy("unique key"));
        }
        writing.commit().await?;
        if let Some(guard) = guard {
            // Lost, if we were paused; then the next holder's lock is left alone.
            let _ = guard.release().await;
        }
        Ok(Sale::Sold)
    }

    async fn stock(&self, item: &str, pairs: i64) -> Outcome {
        sqlx::query("INSERT INTO stock VALUES (?, ?, 0)").bind(item).bind(pairs).execute(&self.data).await?;
        Ok(())
    }

    /// Two customers, one pair; the first one takes `pause` between reading and writing.
    async fn race(&self, item: &str, layers: Layers, pause: Duration) -> Outcome<String> {
        self.stock(item, 1).await?;
        let second = async {
            tokio::time::sleep(TTL / 10).await;
            self.checkout(item, "order 2", layers, Duration::ZERO).await
        };
        let (first, second) = tokio::join!(self.checkout(item, "order 1", layers, pause), second);
        Ok(told(1, &[first?, second?]))
    }

    /// One customer, two pairs; the answer got lost, and the same order is sent again.
    async fn again(&self, item: &str, layers: Layers) -> Outcome<String> {
        self.stock(item, 2).await?;
        let mut sales = Vec::new();
        for _ in 0..2 {
            sales.push(self.checkout(item, "order 1", layers, Duration::ZERO).await?);
        }
        Ok(told(1, &sales))
    }
}

fn told(right: usize, sales: &[Sale]) -> String {
    let sold = sales.iter().filter(|sale| **sale == Sale::Sold).count();
    let refused = sales.iter().find_map(|sale| match sale {
        Sale::RefusedBy(layer) => Some(format!(", {layer} refused")),
        Sale::SoldOut => Some(", second told".to_owned()),
        Sale::Sold => None,
    });
    let verdict = if sold > right { "WRONG" } else { "right" };
    format!("{verdict}: {sold} of {right}{}", refused.unwrap_or_default())
}

#[tokio::main]
async fn main() -> Outcome {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("shop.db");
    let gate = SqliteGate::open(&file).await?;
    let data = SqlitePool::connect_with(SqliteConnectOptions::new().filename(&file)).await?;
    let tables = "CREATE TABLE stock (item TEXT PRIMARY KEY, pairs INTEGER, version INTEGER);
        CREATE TABLE payments (item TEXT, number TEXT, UNIQUE (item, number));
        CREATE TABLE payments_without_key (item TEXT, number TEXT)";
    sqlx::raw_sql(tables).execute(&data).await?;
    let locks = fencelock::connect(format!("sqlite:{}", directory.path().join("locks.db").display())).await?;
    let shop = Shop { data, gate, locks };

    let none = Layers::default();
    let lock = Layers { lock: true, ..none };
    let rows = [
        ("nothing", none),
        ("lock", lock),
        ("lock and gate", Layers { gate: true, ..lock }),
        ("lock and version", Layers { version: true, ..lock }),
        ("version alone", Layers { version: true, ..none }),
        ("lock, gate and key", Layers { gate: true, key: true, ..lock }),
        ("all four", Layers { lock: true, gate: true, version: true, key: true }),
    ];
    println!("{:18}  {:34}  {:34}  same order sent twice", "layers", "two at once", "the first one paused");
    for (name, layers) in rows {
        let at_once = shop.race(&format!("{name} 1"), layers, TTL / 4).await?;
        let paused = shop.race(&format!("{name} 2"), layers, TTL * 2).await?;
        let again = shop.again(&format!("{name} 3"), layers).await?;
        println!("{name:18}  {at_once:34}  {paused:34}  {again}");
    }
    println!("\nA lock makes customers wait for each other, and so spares them the refusals. What a paused one");
    println!("writes late only the data can refuse: by the token (gate) or by what it has read (version).");
    println!("An order that is sent twice is right by all of them, in its turn: that takes a unique key.");
    shop.locks.close().await;
    Ok(())
}
