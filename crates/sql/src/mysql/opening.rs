//! Connections that are alike: set up, verified and probed each time.

use super::MySqlConfig;
use super::failure::{failure, read_only_server};
use super::probe::Probe;
use super::schema::Schema;
use crate::failure::Failure;
use crate::pool::Opens;
use async_trait::async_trait;
use fencelock_core::{Error, ErrorKind, Guarantees, Result};
use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _};
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) struct Opening {
    pub(crate) config: MySqlConfig,
    pub(crate) schema: Schema,
    pub(crate) mariadb: bool,
    /// Whether a statement may be for many locks.
    pub(crate) many: bool,
    guarantees: Mutex<Arc<Guarantees>>,
}

impl Opening {
    /// Opens the first connection.
    pub(crate) async fn first(config: MySqlConfig) -> Result<(Self, MySqlConnection)> {
        config.server.check_here().map_err(|e| e.with_engine("mysql"))?;
        let schema = Schema::new(&config.server.table);
        // Tables may have to be made, by several clients at once.
        let limit = config.server.request_timeout * 3;
        let opened = tokio::time::timeout(limit, async {
            let mut connection = config.options().connect().await.map_err(failure)?;
            let probe = Probe::run(&mut connection).await.map_err(failure)?;
            set_up(&mut connection, &config, &probe).await?;
            schema.ensure(&mut connection, config.server.create).await?;
            Ok::<_, Failure>((connection, probe))
        });
        let (connection, probe) = match opened.await {
            Ok(opened) => opened.map_err(told)?,
            Err(_) => return Err(told(Failure::no_answer(limit))),
        };
        let guarantees = Mutex::new(Arc::new(probe.guarantees(&config)?));
        let (mariadb, many) = (probe.is_mariadb(), probe.has_statements_for_many());
        Ok((Self { config, schema, mariadb, many, guarantees }, connection))
    }

    pub(crate) fn guarantees(&self) -> Arc<Guarantees> {
        Arc::clone(&self.guarantees.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl Opens for Opening {
    type Connection = MySqlConnection;

    async fn open(&self) -> Result<MySqlConnection> {
        let (connection, probe) = self.connect().await?;
        if probe.is_read_only() {
            return Err(told(read_only_server()));
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
    async fn connect(&self) -> Result<(MySqlConnection, Probe)> {
        let opened = async {
            let mut connection = self.config.options().connect().await.map_err(failure)?;
            let probe = Probe::run(&mut connection).await.map_err(failure)?;
            set_up(&mut connection, &self.config, &probe).await?;
            self.schema.check_layout(&mut connection).await?;
            Ok::<_, Failure>((connection, probe))
        };
        let (connection, probe) = opened.await.map_err(|failure| {
            let error = told(failure);
            match error.kind() {
                // It was right once, so it may be again: a database that is being restored, say.
                ErrorKind::InvalidConfig | ErrorKind::Engine => {
                    Error::new(ErrorKind::Unavailable, error.message().to_owned()).with_engine("mysql")
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
    failure.at("mysql", "connect").error
}

/// What reads void ids has to see the newest, which `InnoDB` does for writes under
/// REPEATABLE READ. Rows of others are waited for as shortly as MySQL can, a
/// second; and where the server can bound a statement, it does.
async fn set_up(connection: &mut MySqlConnection, config: &MySqlConfig, probe: &Probe) -> Result<(), Failure> {
    let mut sql = String::from(
        "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ; SET SESSION autocommit = 1, \
         innodb_lock_wait_timeout = 1, sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,PIPES_AS_CONCAT'",
    );
    if probe.is_mariadb() {
        sql.push_str(&format!(", max_statement_time = {}", config.server.request_timeout.as_secs_f64()));
    }
    connection.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.map(drop).map_err(failure)
}
