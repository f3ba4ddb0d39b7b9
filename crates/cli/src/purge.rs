//! `fencelock purge`: drops the rows of locks in a SQL table that nobody has held for long.

use crate::args::Options;
use crate::connect;
use crate::exit::{self, Failure, Outcome};
use crate::output::answer;
use clap::Args;
use fencelock::sql::SqlLock;
use fencelock::{DistributedLock, Registry, Target};
use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

#[derive(Args, Debug)]
pub(crate) struct Purge {
    /// For how long nobody must have held a lock, for its row to go; a minute at least.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, default_value = "30days")]
    idle: Duration,
}

/// The engine that was connected, seen on its way to the client.
type Seen = Arc<OnceLock<Arc<SqlLock>>>;

pub(crate) async fn purge(options: &Options, args: &Purge) -> Outcome {
    let seen = Seen::default();
    let registry = registry(&seen);
    let client = connect::builder(options)?.registry(registry).connect().await?;
    let Some(engine) = seen.get() else {
        let message = format!("{} keeps no rows: only locks in a SQL table are purged", client.guarantees().engine());
        return Err(Failure::new(exit::USAGE, message));
    };
    let dropped = engine.purge(args.idle).await?;
    answer(&format!("{dropped} rows dropped\n"))?;
    Ok(exit::OK)
}

fn registry(seen: &Seen) -> Registry {
    let mut registry = Registry::builtin();
    #[cfg(feature = "sqlite")]
    {
        use fencelock::sql::sqlite::SqliteConfig;
        let connect = |target: Target| async move {
            SqlLock::sqlite(SqliteConfig::from_url(&target.url)?.with_attested(target.attest)).await
        };
        registry = seeing(registry, seen, "sqlite", connect);
    }
    #[cfg(feature = "postgres")]
    for scheme in ["postgres", "postgresql"] {
        use fencelock::sql::postgres::PostgresConfig;
        let connect = |target: Target| async move {
            SqlLock::postgres(PostgresConfig::from_url(&target.url)?.with_attested(target.attest)).await
        };
        registry = seeing(registry, seen, scheme, connect);
    }
    #[cfg(feature = "mysql")]
    for scheme in ["mysql", "mariadb"] {
        use fencelock::sql::mysql::MySqlConfig;
        let connect = |target: Target| async move {
            SqlLock::mysql(MySqlConfig::from_url(&target.url)?.with_attested(target.attest)).await
        };
        registry = seeing(registry, seen, scheme, connect);
    }
    registry
}

fn seeing<F: Future<Output = fencelock::Result<Arc<SqlLock>>> + Send + 'static>(
    registry: Registry,
    seen: &Seen,
    scheme: &'static str,
    connect: impl Fn(Target) -> F + Send + Sync + 'static,
) -> Registry {
    let seen = Arc::clone(seen);
    registry.with(scheme, move |target| {
        let (seen, connecting) = (Arc::clone(&seen), connect(target));
        async move {
            let engine = connecting.await?;
            let _ = seen.set(Arc::clone(&engine));
            Ok(engine as Arc<dyn DistributedLock>)
        }
    })
}
