//! The engines of this workspace: their schemes, the feature each needs, and how each is made.

use crate::registry::{Connecting, Target};
use fencelock_core::memory::MemoryLock;
use fencelock_core::{DistributedLock, Error, ErrorKind, Result};
use std::future::ready;
use std::sync::Arc;

type Connect = fn(Target) -> Connecting;

/// One engine. Several schemes may lead to it; without its feature it is known but not there.
struct Known {
    schemes: &'static [&'static str],
    feature: &'static str,
    connect: Option<Connect>,
}

const KNOWN: [Known; 8] = [
    Known { schemes: &["memory"], feature: "", connect: Some(|target| Box::pin(ready(memory(target)))) },
    Known { schemes: &["etcd"], feature: "etcd", connect: ETCD },
    Known { schemes: &["mysql", "mariadb"], feature: "mysql", connect: MYSQL },
    Known { schemes: &["postgres", "postgresql"], feature: "postgres", connect: POSTGRES },
    Known { schemes: &["sqlite"], feature: "sqlite", connect: SQLITE },
    Known { schemes: &["redis", "rediss", "redis+sentinel", "redis+cluster"], feature: "redis", connect: REDIS },
    Known { schemes: &["redlock"], feature: "redlock", connect: REDLOCK },
    Known { schemes: &["zookeeper", "zk"], feature: "zookeeper", connect: ZOOKEEPER },
];

/// The name of the engine's table in a configuration file, and in its variables.
pub(crate) fn table_of(scheme: &str) -> &str {
    let known = KNOWN.iter().find(|known| known.schemes.contains(&scheme));
    known.map(|known| known.feature).filter(|feature| !feature.is_empty()).unwrap_or(scheme)
}

/// The schemes that lead somewhere, each with how.
pub(crate) fn compiled_in() -> impl Iterator<Item = (&'static str, Connect)> {
    KNOWN
        .iter()
        .filter_map(|known| Some((known, known.connect?)))
        .flat_map(|(known, connect)| known.schemes.iter().map(move |scheme| (*scheme, connect)))
}

/// The schemes whose cargo feature is not enabled, each with that feature.
pub(crate) fn left_out() -> impl Iterator<Item = (&'static str, &'static str)> {
    KNOWN
        .iter()
        .filter(|known| known.connect.is_none())
        .flat_map(|known| known.schemes.iter().map(|scheme| (*scheme, known.feature)))
}

fn memory(target: Target) -> Result<Arc<dyn DistributedLock>> {
    let url = target.url;
    if !url.path.is_empty() || !url.hosts.is_empty() || url.user.is_some() || url.password.is_some() {
        let message = "`memory:` stands alone: each connect is a server of its own, which has no name to share";
        return Err(Error::new(ErrorKind::InvalidConfig, message));
    }
    url.settings.finish()?;
    Ok(Arc::new(MemoryLock::new()))
}

#[cfg(feature = "etcd")]
const ETCD: Option<Connect> = Some(|target| Box::pin(etcd(target)));
#[cfg(not(feature = "etcd"))]
const ETCD: Option<Connect> = None;

#[cfg(feature = "etcd")]
async fn etcd(target: Target) -> Result<Arc<dyn DistributedLock>> {
    use fencelock_etcd::{EtcdConfig, EtcdLock};
    let config = EtcdConfig::from_url(&target.url)?.with_attested(target.attest);
    Ok(EtcdLock::connect(config).await?)
}

#[cfg(feature = "mysql")]
const MYSQL: Option<Connect> = Some(|target| Box::pin(mysql(target)));
#[cfg(not(feature = "mysql"))]
const MYSQL: Option<Connect> = None;

#[cfg(feature = "mysql")]
async fn mysql(target: Target) -> Result<Arc<dyn DistributedLock>> {
    use fencelock_sql::{SqlLock, mysql::MySqlConfig};
    let config = MySqlConfig::from_url(&target.url)?.with_attested(target.attest);
    Ok(SqlLock::mysql(config).await?)
}

#[cfg(feature = "postgres")]
const POSTGRES: Option<Connect> = Some(|target| Box::pin(postgres(target)));
#[cfg(not(feature = "postgres"))]
const POSTGRES: Option<Connect> = None;

#[cfg(feature = "postgres")]
async fn postgres(target: Target) -> Result<Arc<dyn DistributedLock>> {
    use fencelock_sql::{SqlLock, postgres::PostgresConfig};
    let config = PostgresConfig::from_url(&target.url)?.with_attested(target.attest);
    Ok(SqlLock::postgres(config).await?)
}

#[cfg(feature = "sqlite")]
const SQLITE: Option<Connect> = Some(|target| Box::pin(sqlite(target)));
#[cfg(not(feature = "sqlite"))]
const SQLITE: Option<Connect> = None;

#[cfg(feature = "sqlite")]
async fn sqlite(target: Target) -> Result<Arc<dyn DistributedLock>> {
    use fencelock_sql::{SqlLock, sqlite::SqliteConfig};
    let config = SqliteConfig::from_url(&target.url)?.with_attested(target.attest);
    Ok(SqlLock::sqlite(config).await?)
}

#[cfg(feature = "redis")]
const REDIS: Option<Connect> = Some(|target| Box::pin(redis(target)));
#[cfg(not(feature = "redis"))]
const REDIS: Option<Connect> = None;

#[cfg(feature = "redis")]
async fn redis(target: Target) -> Result<Arc<dyn DistributedLock>> {
    use fencelock_redis::{RedisConfig, RedisLock};
    let config = RedisConfig::from_url(&target.url)?.with_attested(target.attest);
    Ok(RedisLock::connect(config).await?)
}

#[cfg(feature = "redlock")]
const REDLOCK: Option<Connect> = Some(|target| Box::pin(redlock(target)));
#[cfg(not(feature = "redlock"))]
const REDLOCK: Option<Connect> = None;

#[cfg(feature = "redlock")]
async fn redlock(target: Target) -> Result<Arc<dyn DistributedLock>> {
    use fencelock_redlock::{RedlockConfig, RedlockLock};
    let config = RedlockConfig::from_url(&target.url)?.with_attested(target.attest);
    Ok(RedlockLock::connect(config).await?)
}

#[cfg(feature = "zookeeper")]
const ZOOKEEPER: Option<Connect> = Some(|target| Box::pin(zookeeper(target)));
#[cfg(not(feature = "zookeeper"))]
const ZOOKEEPER: Option<Connect> = None;

#[cfg(feature = "zookeeper")]
async fn zookeeper(target: Target) -> Result<Arc<dyn DistributedLock>> {
    use fencelock_zookeeper::{ZooKeeperConfig, ZooKeeperLock};
    let config = ZooKeeperConfig::from_url(&target.url)?.with_attested(target.attest);
    Ok(ZooKeeperLock::connect(config).await?)
}
