//! The gate before data in a SQLite file.

use super::failure::Failure;
use super::schema::FENCES;
use fencelock_core::{Admission, Error, ErrorKind, FencingToken, Gate, LockName, Result, Stale};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};
use sqlx::{ConnectOptions as _, Connection as _, Row as _, Sqlite, SqliteConnection, Transaction};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(5);

/// Checks tokens in the transaction that reads and writes the data.
///
/// [`enter`](Gate::enter) raises the resource's largest token in the caller's
/// own transaction, and so takes the write lock of the file, which SQLite gives
/// to one at a time. From there to the commit nobody else can enter or write, so
/// what is read is current and what is written is covered. Enter first, then read.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("data.db");
/// use fencelock_core::{Admission, FencingToken};
/// use fencelock_sql::sqlite::SqliteGate;
///
/// let gate = SqliteGate::open(&path).await?;
/// # let token = FencingToken::new(7);
/// match gate.transaction("orders/1001", token).await? {
///     Admission::Admitted(mut pass) => {
///         sqlx::query("CREATE TABLE IF NOT EXISTS paid (id INTEGER)").execute(&mut *pass).await?;
///         sqlx::query("INSERT INTO paid VALUES (1001)").execute(&mut *pass).await?;
///         pass.commit().await?;
///     }
///     Admission::Stale(stale) => println!("{stale}"),
/// }
/// # Ok(())
/// # }
/// ```
///
/// A savepoint that is rolled back takes the entering back with it: enter in the
/// transaction itself, not in a savepoint of it.
///
/// The table is `fencelock_fences`, and lies in the file of the data.
pub struct SqliteGate {
    own: Option<SqlitePool>,
}

impl SqliteGate {
    /// The gate of the file at `path`, with a connection of its own for
    /// [`transaction`](Self::transaction). File and table are made if there are none.
    ///
    /// # Errors
    /// `InvalidConfig` if there is another table of that name, `Unavailable`
    /// outside a tokio runtime; otherwise what SQLite failed with.
    ///
    /// # Cancel safety
    /// Dropping the future may leave file and table created.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self> {
        fencelock_core::check_runtime()?;
        let path = std::path::absolute(path.as_ref())
            .map_err(|e| Error::new(ErrorKind::InvalidConfig, "the path cannot be made absolute").with_source(e))?;
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .busy_timeout(LIMIT)
            .disable_statement_logging();
        // SQLite has one writer at a time, so more would only wait for each other.
        let pool = SqlitePoolOptions::new()
            .max_connections(1)
            .acquire_timeout(LIMIT)
            .idle_timeout(None)
            .max_lifetime(None)
            .connect_lazy_with(options);
        let mut connection = pool.acquire().await.map_err(failed)?;
        Self::create(&mut connection).await?;
        drop(connection);
        Ok(Self { own: Some(pool) })
    }

    /// The gate of the file that `connection` has open, for transactions of the
    /// caller's own. The table is made if there is none.
    ///
    /// # Errors
    /// `InvalidConfig` if there is another table of that name; otherwise what SQLite failed with.
    ///
    /// # Cancel safety
    /// Dropping the future may leave the table created.
    pub async fn create(connection: &mut SqliteConnection) -> Result<Self> {
        FENCES.ensure(connection).await.map_err(|shape| Failure::from(shape).error.with_operation("connect"))?;
        Ok(Self { own: None })
    }

    /// Begins a transaction that has entered `resource` with `token`.
    ///
    /// One at a time a gate: a second one waits for the first, 5 s at most.
    ///
    /// # Errors
    /// `InvalidName` if the resource's name breaks the rules of lock names,
    /// `Unsupported` if the gate was not made by [`open`](Self::open),
    /// `Unavailable` if another writer holds the file.
    ///
    /// # Cancel safety
    /// Dropping the future rolls back.
    pub async fn transaction(&self, resource: &str, token: FencingToken) -> Result<Admission<SqliteTransaction>> {
        let Some(own) = &self.own else {
            let message = "this gate has no connection of its own: make it with `SqliteGate::open`";
            return Err(Error::new(ErrorKind::Unsupported, message).with_engine("sqlite").with_operation("enter"));
        };
        let mut transaction = own.begin_with("BEGIN IMMEDIATE").await.map_err(failed)?;
        Ok(match enter(&mut transaction, resource, token).await? {
            None => Admission::Admitted(SqliteTransaction { transaction }),
            Some(stale) => Admission::Stale(stale),
        })
    }
}

impl Gate for SqliteGate {
    /// A connection in a transaction begun through sqlx: `&mut *transaction`.
    type Scope<'s> = &'s mut SqliteConnection;
    type Pass<'s> = SqlitePass<'s>;

    /// # Errors
    /// `Unsupported` outside a transaction: the check would end before the write that it is for.
    async fn enter<'s>(
        &'s self,
        scope: &'s mut SqliteConnection,
        resource: &'s str,
        token: FencingToken,
    ) -> Result<Admission<SqlitePass<'s>>> {
        if !scope.is_in_transaction() {
            let message = "a gate is entered inside a transaction, begun with sqlx's `begin` or `begin_with`";
            return Err(Error::new(ErrorKind::Unsupported, message).with_engine("sqlite").with_operation("enter"));
        }
        Ok(match enter(scope, resource, token).await? {
            None => Admission::Admitted(SqlitePass { connection: scope }),
            Some(stale) => Admission::Stale(stale),
        })
    }
}

async fn enter(connection: &mut SqliteConnection, resource: &str, token: FencingToken) -> Result<Option<Stale>> {
    let resource = LockName::new(resource)?;
    let resource = resource.as_str().as_bytes();
    let query = sqlx::query(include_str!("sql/enter.sql")).bind(resource).bind(token.as_i64());
    if !query.fetch_all(&mut *connection).await.map_err(failed)?.is_empty() {
        return Ok(None);
    }
    let rows =
        sqlx::query(include_str!("sql/newest.sql")).bind(resource).fetch_all(connection).await.map_err(failed)?;
    let newest: i64 = rows.first().map_or(Ok(0), |row| row.try_get(0)).map_err(failed)?;
    Ok(Some(Stale::new(FencingToken::new(u64::try_from(newest).unwrap_or(0)))))
}

fn failed(cause: sqlx::Error) -> Error {
    Failure::of(cause).error.with_operation("enter")
}

/// The way to the data in the caller's own transaction.
///
/// Commit that transaction to keep what was written. After an error that makes
/// SQLite roll back by itself (a full disk, an I/O error), give it up: what
/// follows would be outside the transaction.
#[derive(Debug)]
pub struct SqlitePass<'s> {
    connection: &'s mut SqliteConnection,
}

impl Deref for SqlitePass<'_> {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        self.connection
    }
}

impl DerefMut for SqlitePass<'_> {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        self.connection
    }
}

/// A transaction that has entered, and the way to the data.
///
/// After an error that makes SQLite roll back by itself (a full disk, an I/O
/// error), give it up: what follows would be outside the transaction.
///
/// # Drop
/// Rolls back, the entering too.
pub struct SqliteTransaction {
    transaction: Transaction<'static, Sqlite>,
}

impl SqliteTransaction {
    /// Keeps what was written.
    ///
    /// # Errors
    /// `Unavailable` if it is not known to be kept; otherwise what SQLite failed with.
    ///
    /// # Cancel safety
    /// Dropping the future may or may not commit.
    pub async fn commit(self) -> Result<()> {
        self.transaction.commit().await.map_err(|e| Failure::of(e).error.with_operation("commit"))
    }
}

impl Deref for SqliteTransaction {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        &self.transaction
    }
}

impl DerefMut for SqliteTransaction {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        &mut self.transaction
    }
}

impl fmt::Debug for SqliteTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteTransaction").finish_non_exhaustive()
    }
}

impl fmt::Debug for SqliteGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteGate").field("own", &self.own.is_some()).finish()
    }
}
