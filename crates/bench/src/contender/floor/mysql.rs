//! Two statements through sqlx, on as many connections as the engine has.

use super::connections::{Connection, Connections};
use super::id;
use crate::contender::{Contender, TTL, Task, ours};
use crate::failure::Result;
use crate::server::Place;
use async_trait::async_trait;
use sqlx::mysql::{MySqlArguments, MySqlConnectOptions, MySqlConnection};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Executor as _, MySql};
use std::sync::Arc;

const NOW: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";

/// A statement, and the order in which its values are wanted.
struct Statement {
    sql: Arc<str>,
    order: Vec<usize>,
}

struct Statements {
    acquire: Statement,
    insert: Statement,
    free: Statement,
}

struct Floor {
    connections: Connections<MySqlConnection>,
    statements: Arc<Statements>,
}

struct Floored {
    connection: Connection<MySqlConnection>,
    statements: Arc<Statements>,
    name: Vec<u8>,
    id: [u8; 16],
}

/// `$1` and so on become `?`: the server knows values by their place alone.
fn statement(sql: &str) -> Statement {
    let sql = sql.replace("{now}", NOW).replace("{locks}", "fencelock_locks");
    let sql = sql.replace("{voids}", "fencelock_locks_voids");
    let lines: Vec<_> = sql.lines().filter(|line| !line.trim_start().starts_with("--")).collect();
    let text = lines.join("\n");
    let mut parts = text.split('$');
    let (mut sql, mut order) = (parts.next().unwrap_or_default().to_owned(), Vec::new());
    for part in parts {
        let mut characters = part.chars();
        order.extend(characters.next().and_then(|digit| digit.to_digit(10)).map(|digit| digit as usize));
        sql.push('?');
        sql.push_str(characters.as_str());
    }
    Statement { sql: sql.into(), order }
}

pub(super) async fn connect(place: &Place) -> Result<Box<dyn Contender>> {
    // It makes the tables.
    drop(ours::client(place, TTL).await?);
    let options = place.url.parse::<MySqlConnectOptions>()?.disable_statement_logging();
    let bounds = "SET SESSION max_statement_time = 2";
    let mut connections = Vec::new();
    for _ in 0..4 {
        let mut connection = options.connect().await?;
        connection.execute(bounds).await?;
        connections.push(connection);
    }
    let connections = Connections::new(connections);
    let statements = Arc::new(Statements {
        acquire: statement(include_str!("sql/mysql-acquire.sql")),
        insert: statement(include_str!("sql/mysql-insert.sql")),
        free: statement(include_str!("sql/mysql-free.sql")),
    });
    Ok(Box::new(Floor { connections, statements }))
}

#[async_trait]
impl Contender for Floor {
    async fn task(&self, name: &str) -> Result<Box<dyn Task>> {
        let (connection, statements) = (self.connections.next().ok_or("no connection")?, Arc::clone(&self.statements));
        let mut floored = Floored { connection, statements, name: name.as_bytes().to_vec(), id: [0; 16] };
        if !floored.attempt().await? {
            // A name that is new has no row yet.
            let insert = floored.bind(&self.statements.insert);
            insert.execute(&mut *floored.connection.lock().await).await?;
        }
        floored.release().await?;
        Ok(Box::new(floored))
    }
}

impl Floored {
    fn bind(&self, statement: &Statement) -> Query<'static, MySql, MySqlArguments> {
        let ttl = i64::try_from(TTL.as_micros()).unwrap_or(i64::MAX);
        let mut query = sqlx::query(AssertSqlSafe(Arc::clone(&statement.sql)));
        for number in &statement.order {
            query = match number {
                1 => query.bind(self.name.clone()),
                2 => query.bind(self.id.to_vec()),
                3 => query.bind(1_i64),
                4 => query.bind(ttl),
                5 => query.bind("bench:1"),
                6 => query.bind(None::<&str>),
                _ => query.bind(0_i64),
            };
        }
        query
    }
}

#[async_trait]
impl Task for Floored {
    async fn acquire(&mut self) -> Result<()> {
        if self.attempt().await? { Ok(()) } else { Err("it is held".into()) }
    }

    async fn attempt(&mut self) -> Result<bool> {
        self.id = id().to_be_bytes();
        let statements = Arc::clone(&self.statements);
        Ok(self.bind(&statements.acquire).execute(&mut *self.connection.lock().await).await?.last_insert_id() > 0)
    }

    async fn release(&mut self) -> Result<()> {
        let statements = Arc::clone(&self.statements);
        let freed = self.bind(&statements.free).execute(&mut *self.connection.lock().await).await?.rows_affected();
        if freed == 1 { Ok(()) } else { Err("it was not held".into()) }
    }
}
