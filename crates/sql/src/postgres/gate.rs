//! The gate before data in PostgreSQL.

use super::failure::failure;
use super::schema::{Shape, Table, make};
use super::statement::{Ready, Statement, Value, Way};
use crate::server::{check_table, quoted};
use fencelock_core::{Admission, Error, ErrorKind, FencingToken, Gate, LockName, Result, Stale};
use sqlx::postgres::{PgConnection, PgPool};
use sqlx::{Connection as _, Postgres, Row as _, Transaction};
use std::fmt;
use std::ops::{Deref, DerefMut};

/// Checks tokens in the transaction that reads and writes the data.
///
/// [`enter`](Gate::enter) raises the resource's largest token in the caller's
/// own transaction, and so locks the resource's row until it ends. From there to
/// the commit nobody else can enter, so what is read is current and what is
/// written is covered. Enter first, then read.
///
/// ```no_run
/// # async fn example(pool: sqlx::PgPool, token: fencelock_core::FencingToken) -> Result<(), Box<dyn std::error::Error>> {
/// use fencelock_core::Admission;
/// use fencelock_sql::postgres::PostgresGate;
///
/// let gate = PostgresGate::open(pool).await?;
/// match gate.transaction("orders/1001", token).await? {
///     Admission::Admitted(mut pass) => {
///         sqlx::query("UPDATE orders SET state = 'paid' WHERE id = 1001").execute(&mut *pass).await?;
///         pass.commit().await?;
///     }
///     Admission::Stale(stale) => println!("{stale}"),
/// }
/// # Ok(())
/// # }
/// ```
///
/// The way to the data comes out of the admission alone: who does not look whether
/// the token was stale has nothing to write with, and this does not compile:
///
/// ```compile_fail,E0599
/// # async fn example(gate: fencelock_sql::postgres::PostgresGate, token: fencelock_core::FencingToken) {
/// let unchecked = gate.transaction("orders/1001", token).await.unwrap();
/// unchecked.commit().await.unwrap();
/// # }
/// ```
///
/// Nor does this, since the transaction of one's own is lent to the pass until it is done with:
///
/// ```compile_fail,E0499
/// # use fencelock_core::Gate as _;
/// # async fn example(gate: fencelock_sql::postgres::PostgresGate, pool: sqlx::PgPool, token: fencelock_core::FencingToken) {
/// let mut transaction = pool.begin().await.unwrap();
/// let admission = gate.enter(&mut *transaction, "orders/1001", token).await.unwrap();
/// sqlx::query("UPDATE orders SET state = 'paid'").execute(&mut *transaction).await.unwrap();
/// drop(admission);
/// # }
/// ```
///
/// A savepoint that is rolled back takes the entering back with it: enter in the
/// transaction itself, not in a savepoint of it.
///
/// The table is `fencelock_fences` unless named otherwise, in the database of the data.
pub struct PostgresGate {
    own: Option<PgPool>,
    enter: Statement,
    newest: Statement,
}

impl PostgresGate {
    /// The gate of the database that `pool` connects to, for
    /// [`transaction`](Self::transaction). The table is made if there is none.
    ///
    /// # Errors
    /// `InvalidConfig` if there is another table of that name; `Denied`, with the
    /// statement that makes it, if it may not be made; otherwise what the database failed with.
    ///
    /// # Cancel safety
    /// Dropping the future may leave the table created.
    pub async fn open(pool: PgPool) -> Result<Self> {
        let mut connection = pool.acquire().await.map_err(failed)?;
        let gate = Self::create(&mut connection).await?;
        drop(connection);
        Ok(Self { own: Some(pool), ..gate })
    }

    /// The gate of the database that `connection` leads to, for transactions of
    /// the caller's own. The table is made if there is none.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    ///
    /// # Cancel safety
    /// Dropping the future may leave the table created.
    pub async fn create(connection: &mut PgConnection) -> Result<Self> {
        Self::create_named(connection, "fencelock_fences").await
    }

    /// The same with a table of another name, which may have its schema before it.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    ///
    /// # Cancel safety
    /// Dropping the future may leave the table created.
    pub async fn create_named(connection: &mut PgConnection, table: &str) -> Result<Self> {
        check_table(table)?;
        let fences = Table::fences(table);
        let ensured = async {
            let mut shapes = Shape::of(connection, &[&fences]).await?;
            if !shapes.iter().all(Shape::is_there) {
                make(connection, &fences, true, &format!("{};", fences.ddl())).await?;
                shapes = Shape::of(connection, &[&fences]).await?;
            }
            fences.verify(shapes.first())
        };
        ensured.await.map_err(|failure| failure.at("postgres", "connect").error)?;
        let statement = |sql: &str| Statement::new(sql.replace("{fences}", &quoted(table, '"')));
        let (enter, newest) = (statement(include_str!("sql/enter.sql")), statement(include_str!("sql/newest.sql")));
        Ok(Self { own: None, enter, newest })
    }

    /// Begins a transaction that has entered `resource` with `token`.
    ///
    /// # Errors
    /// `InvalidName` if the resource's name breaks the rules of lock names,
    /// `Unsupported` if the gate was not made by [`open`](Self::open),
    /// otherwise what the database failed with.
    ///
    /// # Cancel safety
    /// Dropping the future rolls back.
    pub async fn transaction(&self, resource: &str, token: FencingToken) -> Result<Admission<PostgresTransaction>> {
        let Some(own) = &self.own else {
            let message = "this gate has no connections of its own: make it with `PostgresGate::open`";
            return Err(Error::new(ErrorKind::Unsupported, message).with_engine("postgres").with_operation("enter"));
        };
        let mut transaction = own.begin().await.map_err(failed)?;
        Ok(match self.pass(&mut transaction, resource, token).await? {
            None => Admission::Admitted(PostgresTransaction { transaction }),
            Some(stale) => Admission::Stale(stale),
        })
    }

    async fn pass(&self, connection: &mut PgConnection, resource: &str, token: FencingToken) -> Result<Option<Stale>> {
        let resource = LockName::new(resource)?;
        let resource = Value::Bytes(resource.as_str().as_bytes());
        let values = vec![resource.clone(), Value::Number(token.as_i64())];
        let enter = Ready { statement: &self.enter, values, way: Way::Plain };
        if !enter.rows(connection).await.map_err(failed)?.is_empty() {
            return Ok(None);
        }
        let newest = Ready { statement: &self.newest, values: vec![resource], way: Way::Plain };
        let rows = newest.rows(connection).await.map_err(failed)?;
        let newest: i64 = rows.first().map_or(Ok(0), |row| row.try_get(0)).map_err(failed)?;
        Ok(Some(Stale::new(FencingToken::new(u64::try_from(newest).unwrap_or(0)))))
    }
}

impl Gate for PostgresGate {
    /// A connection in a transaction begun through sqlx: `&mut *transaction`.
    type Scope<'s> = &'s mut PgConnection;
    type Pass<'s> = PostgresPass<'s>;

    /// # Errors
    /// `Unsupported` outside a transaction: the check would end before the write that it is for.
    async fn enter<'s>(
        &'s self,
        scope: &'s mut PgConnection,
        resource: &'s str,
        token: FencingToken,
    ) -> Result<Admission<PostgresPass<'s>>> {
        if !scope.is_in_transaction() {
            let message = "a gate is entered inside a transaction, begun with sqlx's `begin` or `begin_with`";
            return Err(Error::new(ErrorKind::Unsupported, message).with_engine("postgres").with_operation("enter"));
        }
        Ok(match self.pass(scope, resource, token).await? {
            None => Admission::Admitted(PostgresPass { connection: scope }),
            Some(stale) => Admission::Stale(stale),
        })
    }
}

fn failed(cause: sqlx::Error) -> Error {
    failure(cause).at("postgres", "enter").error
}

/// The way to the data in the caller's own transaction. Commit that transaction to keep what was written.
#[derive(Debug)]
pub struct PostgresPass<'s> {
    connection: &'s mut PgConnection,
}

impl Deref for PostgresPass<'_> {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        self.connection
    }
}

impl DerefMut for PostgresPass<'_> {
    fn deref_mut(&mut self) -> &mut PgConnection {
        self.connection
    }
}

/// A transaction that has entered, and the way to the data.
///
/// # Drop
/// Rolls back, the entering too.
pub struct PostgresTransaction {
    transaction: Transaction<'static, Postgres>,
}

impl PostgresTransaction {
    /// Keeps what was written.
    ///
    /// # Errors
    /// `Unavailable` if it is not known to be kept; otherwise what the database failed with.
    ///
    /// # Cancel safety
    /// Dropping the future may or may not commit.
    pub async fn commit(self) -> Result<()> {
        self.transaction.commit().await.map_err(|e| failure(e).at("postgres", "commit").error)
    }
}

impl Deref for PostgresTransaction {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.transaction
    }
}

impl DerefMut for PostgresTransaction {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.transaction
    }
}

impl fmt::Debug for PostgresTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresTransaction").finish_non_exhaustive()
    }
}

impl fmt::Debug for PostgresGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresGate").field("own", &self.own.is_some()).finish_non_exhaustive()
    }
}
