//! Many locks of others, put into a server in bulk, as the engines lay them out.

use super::{Place, Server};
use crate::engine::Engine;
use crate::failure::Result;
use etcd_client::{PutOptions, Txn, TxnOp};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _};
use tokio::task::JoinSet;
use zookeeper_client::{Acls, Client, CreateMode};

/// Keys of the shape of held locks, with an hour to go.
const HOLDS: &str = "
for i = ARGV[1], ARGV[2] - 1 do
    local key = 'fencelock:{' .. i % 1024 .. '}:lock:other/' .. i
    local hold = '0123456789abcdef0123456789abcdef 1764460000000000 1764460000000 0 7 other:1'
    redis.call('set', key, hold, 'PX', 3600000)
end";

impl Server {
    /// Puts the locks of others with these numbers into it: held ones where that is another's session,
    /// rows of free ones in SQL.
    pub(crate) async fn fill(&self, from: usize, to: usize) -> Result<()> {
        let place = self.place();
        match place.engine {
            _ if from >= to => Ok(()),
            Engine::Memory => Err("there is no server".into()),
            Engine::Redis | Engine::Redlock => redis(&place, from, to).await,
            Engine::Etcd => etcd(&place, from, to).await,
            Engine::Zookeeper => zookeeper(&place, from, to).await,
            Engine::Sqlite | Engine::Postgres | Engine::Mysql => sql(&place, from, to).await,
        }
    }
}

async fn redis(place: &Place, from: usize, to: usize) -> Result<()> {
    let script = redis::Script::new(HOLDS);
    for address in &place.addresses {
        let client = redis::Client::open(format!("redis://{address}"))?;
        let options = redis::AsyncConnectionConfig::new().set_response_timeout(None);
        let mut connection = client.get_multiplexed_async_connection_with_config(&options).await?;
        for part in (from..to).step_by(10_000) {
            let end = to.min(part + 10_000);
            script.arg(part).arg(end).invoke_async::<()>(&mut connection).await?;
        }
    }
    Ok(())
}

/// The engines' tables are there: a client has connected before.
async fn sql(place: &Place, from: usize, to: usize) -> Result<()> {
    let last = to - 1;
    let columns = "(name, claim_id, token, expires_at, ttl, delay, holder, acquired_at";
    match place.engine {
        Engine::Postgres => {
            let rows = format!(
                "INSERT INTO fencelock_locks {columns}, waited) \
                 SELECT convert_to('other/' || i, 'UTF8'), decode(md5(i::text), 'hex'), 1764460000000000, 0, 30000000, 0, \
                 'other:1', 1764460000000000, false FROM generate_series({from}, {last}) AS i; ANALYZE fencelock_locks"
            );
            let options = place.url.parse::<sqlx::postgres::PgConnectOptions>()?.disable_statement_logging();
            let mut connection = options.connect().await?;
            connection.execute(sqlx::raw_sql(AssertSqlSafe(rows))).await?;
            connection.close().await?;
        }
        Engine::Mysql => {
            let options = place.url.parse::<sqlx::mysql::MySqlConnectOptions>()?.disable_statement_logging();
            let mut connection = options.connect().await?;
            for part in (from..to).step_by(50_000) {
                let end = to.min(part + 50_000) - 1;
                let rows = format!(
                    "INSERT INTO fencelock_locks {columns}) \
                     SELECT CONCAT('other/', seq), UNHEX(MD5(seq)), 1764460000000000, 0, 30000000, 0, 'other:1', \
                     1764460000000000 FROM seq_{part}_to_{end}"
                );
                connection.execute(sqlx::raw_sql(AssertSqlSafe(rows))).await?;
            }
            connection.close().await?;
        }
        _ => {
            for file in [place.file(), place.file().with_file_name("floor.db")] {
                let rows = format!(
                    "WITH RECURSIVE n(i) AS (SELECT {from} UNION ALL SELECT i + 1 FROM n WHERE i < {last}) \
                     INSERT INTO fencelock_locks {columns}, boot_id) \
                     SELECT CAST('other/' || i AS BLOB), CAST(printf('%016d', i) AS BLOB), 1764460000000000, 0, 30000000, 0, \
                     'other:1', 1764460000000000, 'frame' FROM n"
                );
                let options = sqlx::sqlite::SqliteConnectOptions::new().filename(file).disable_statement_logging();
                let mut connection = options.connect().await?;
                connection.execute(sqlx::raw_sql(AssertSqlSafe(rows))).await?;
                connection.close().await?;
            }
        }
    }
    Ok(())
}

async fn etcd(place: &Place, from: usize, to: usize) -> Result<()> {
    let mut client = etcd_client::Client::connect(&place.addresses, None).await?;
    let lease = client.lease_grant(3_600, None).await?.id();
    // A transaction has at most 128 operations.
    for part in (from..to).step_by(100) {
        let puts = (part..to.min(part + 100)).map(|at| {
            let key = format!("fencelock/l/other%2F{at}/{at:032x}");
            TxnOp::put(key, "holder=other%3A1", Some(PutOptions::new().with_lease(lease)))
        });
        client.txn(Txn::new().and_then(puts.collect::<Vec<_>>())).await?;
    }
    Ok(())
}

async fn zookeeper(place: &Place, from: usize, to: usize) -> Result<()> {
    let address = place.addresses.first().ok_or("no address")?;
    // Not its own session's, or they would go with it.
    let client = Client::connector().connect(address).await?;
    let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
    for part in (from..to).step_by(100) {
        let mut creations = JoinSet::new();
        for at in part..to.min(part + 100) {
            let (client, persistent) = (client.clone(), persistent.clone());
            creations.spawn(async move {
                let queue = format!("/fencelock/other%2F{at}");
                client.mkdir(&queue, &persistent).await?;
                client
                    .create(&format!("{queue}/{at:032x}-0000000000"), b"holder=other:1\n", &persistent)
                    .await
                    .map(drop)
            });
        }
        while let Some(created) = creations.join_next().await {
            created??;
        }
    }
    Ok(())
}
