//! Connections that are alike: set up, verified and probed each time.

use super::PostgresConfig;
use super::config::Pooler;
use super::failure::failure;
use super::probe::Probe;
use super::schema::Schema;
use super::statement::{Ready, Statement, Value, Way};
use crate::failure::Failure;
use crate::micros::micros;
use crate::pool::Opens;
use async_trait::async_trait;
use fencelock_core::{ClaimId, Error, ErrorKind, Guarantees, Result};
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, Row as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a statement waits for another transaction to give up a row.
pub(crate) const LOCK_WAIT: Duration = Duration::from_millis(200);

pub(crate) struct Opening {
    pub(crate) config: PostgresConfig,
    pub(crate) schema: Schema,
    /// Whether something hands our sessions round.
    pub(crate) pooled: bool,
    /// The channel on which waiters tell of themselves, where they do.
    pub(crate) secret: Option<String>,
    guarantees: Mutex<Arc<Guarantees>>,
}

impl Opening {
    /// Opens the first two connections: one cannot show whether a pooler is in between.
    pub(crate) async fn first(config: PostgresConfig) -> Result<(Self, PgConnection, PgConnection)> {
        config.server.check_here().map_err(|e| e.with_engine("postgres"))?;
        let schema = Schema::new(&config.server.table);
        // Tables may have to be made, by several clients at once.
        let limit = config.server.request_timeout * 3;
        let opened = tokio::time::timeout(limit, async {
            let began = Instant::now();
            let plain = || async { config.options().connect().await.map_err(failure) };
            let first = async {
                match config.pooler {
                    Pooler::Detect => marked(&config).await,
                    Pooler::None | Pooler::Transaction => Ok((plain().await?, false)),
                }
            };
            let ((mut one, refused), mut other) = tokio::try_join!(first, plain())?;
            let pooled = match config.pooler {
                Pooler::None => false,
                Pooler::Transaction => true,
                Pooler::Detect => refused || is_pooled(&mut one, &mut other, began).await?,
            };
            tokio::try_join!(set_up(&mut one, &config, pooled), set_up(&mut other, &config, pooled))?;
            schema.ensure(&mut one, config.server.create).await?;
            let secret = if pooled { None } else { schema.secret(&mut one).await? };
            let probe = Probe::run(&mut one, pooled).await.map_err(failure)?;
            Ok::<_, Failure>((one, other, (pooled, secret), probe))
        });
        let (one, other, (pooled, secret), probe) = match opened.await {
            Ok(opened) => opened.map_err(told)?,
            Err(_) => return Err(told(Failure::no_answer(limit))),
        };
        let guarantees = Mutex::new(Arc::new(probe.guarantees(&config)?));
        Ok((Self { config, schema, pooled, secret, guarantees }, one, other))
    }

    pub(crate) fn guarantees(&self) -> Arc<Guarantees> {
        Arc::clone(&self.guarantees.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn ready<'s, 'v>(&self, statement: &'s Statement, values: Vec<Value<'v>>) -> Ready<'s, 'v> {
        let limit = self.config.server.request_timeout.as_millis();
        Ready { statement, values, way: if self.pooled { Way::Bounded(limit) } else { Way::Prepared } }
    }
}

#[async_trait]
impl Opens for Opening {
    type Connection = PgConnection;

    async fn open(&self) -> Result<PgConnection> {
        let (connection, probe) = self.connect().await?;
        if probe.is_read_only() {
            let message = "the server takes no writes: it is a standby, or was made read-only";
            return Err(Error::new(ErrorKind::Unavailable, message).with_engine("postgres"));
        }
        Ok(connection)
    }
}

impl Opening {
    /// Connects anew to see what the server is now.
    pub(crate) async fn probe(&self) -> Result<Arc<Guarantees>> {
        let limit = self.config.server.request_timeout;
        let connected = tokio::time::timeout(limit, self.connect()).await;
        let (connection, _) = connected.map_err(|_| told(Failure::no_answer(limit)))??;
        // Nothing is on its way, so it may be closed in good order; how that ends does not matter.
        let _ = tokio::time::timeout(limit, connection.close()).await;
        Ok(self.guarantees())
    }

    /// A connection that is ready, and what was found there, which counts from now on.
    async fn connect(&self) -> Result<(PgConnection, Probe)> {
        let opened = async {
            let mut connection = self.config.options().connect().await.map_err(failure)?;
            set_up(&mut connection, &self.config, self.pooled).await?;
            self.schema.check_layout(&mut connection).await?;
            let probe = Probe::run(&mut connection, self.pooled).await.map_err(failure)?;
            Ok::<_, Failure>((connection, probe))
        };
        let (connection, probe) = opened.await.map_err(|failure| {
            let error = told(failure);
            match error.kind() {
                // It was right once, so it may be again: a database that is being restored, say.
                ErrorKind::InvalidConfig | ErrorKind::Engine => {
                    Error::new(ErrorKind::Unavailable, error.message().to_owned()).with_engine("postgres")
                }
                _ => error,
            }
        })?;
        let found = Arc::new(probe.guarantees_again(&self.config));
        *self.guarantees.lock().unwrap_or_else(PoisonError::into_inner) = found;
        Ok((connection, probe))
    }
}

fn told(failure: Failure) -> Error {
    failure.at("postgres", "connect").error
}

/// Statements of ours are short, at the server too, so that none comes late.
/// In a session that is handed round they would be set for others.
async fn set_up(connection: &mut PgConnection, config: &PostgresConfig, pooled: bool) -> Result<(), Failure> {
    if pooled {
        return Ok(());
    }
    let (limit, wait) = (config.server.request_timeout.as_millis(), LOCK_WAIT.as_millis());
    let sql = format!(
        "SET statement_timeout = {limit}; SET lock_timeout = {wait}; SET default_transaction_isolation = 'read committed'; \
         SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') <> 'remote_apply'; \
         SELECT set_config('idle_session_timeout', '0', false) WHERE current_setting('idle_session_timeout', true) IS NOT NULL"
    );
    connection.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.map(drop).map_err(failure)
}

/// A connection that asks for a mark on its session, and whether it did not get it:
/// a server does as it is asked, and a pooler refuses what it does not know, or lends
/// a session that somebody else began.
async fn marked(config: &PostgresConfig) -> Result<(PgConnection, bool), Failure> {
    let mark = ClaimId::random().map_err(|e| Failure::new(e.kind(), e.message().to_owned()))?.to_string();
    match config.options().options([("fencelock.session", &mark)]).connect().await {
        Ok(mut connection) => {
            let sql = sqlx::raw_sql("SELECT current_setting('fencelock.session', true)");
            let rows: Vec<PgRow> = connection.fetch_all(sql).await.map_err(failure)?;
            let found: Option<String> = rows.first().map_or(Ok(None), |row| row.try_get(0)).map_err(failure)?;
            Ok((connection, found.as_ref() != Some(&mark)))
        }
        // A startup parameter that is not known is a breach of the protocol to a pooler.
        Err(e) if e.as_database_error().is_some_and(|e| e.code().as_deref() == Some("08P01")) => {
            Ok((config.options().connect().await.map_err(failure)?, true))
        }
        Err(e) => Err(failure(e)),
    }
}

/// Two connections of ours that are open at once have two sessions, begun for
/// them and each its own for good, unless something hands sessions round.
async fn is_pooled(one: &mut PgConnection, other: &mut PgConnection, began: Instant) -> Result<bool, Failure> {
    let first = session(one, began).await.map_err(failure)?;
    let second = session(other, began).await.map_err(failure)?;
    if first.is_older || second.is_older {
        return Ok(true);
    }
    for _ in 0..2 {
        let (one, other) = (session(one, began).await.map_err(failure)?, session(other, began).await.map_err(failure)?);
        if one.process != first.process || other.process != second.process || one.process == other.process {
            return Ok(true);
        }
    }
    Ok(false)
}

struct Session {
    process: i32,
    /// It was there before we connected.
    is_older: bool,
}

async fn session(connection: &mut PgConnection, began: Instant) -> sqlx::Result<Session> {
    let rows: Vec<PgRow> = connection.fetch_all(sqlx::raw_sql(include_str!("sql/session.sql"))).await?;
    let Some(row) = rows.first() else { return Err(sqlx::Error::RowNotFound) };
    // Clocks may run a little apart.
    let most = began.elapsed() + Duration::from_millis(100);
    Ok(Session { process: row.try_get(0)?, is_older: micros(row.try_get(1)?) > most })
}
