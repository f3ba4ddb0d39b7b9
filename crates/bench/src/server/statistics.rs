//! How many commands a server was sent, as it counts them itself.

use super::Server;
use crate::failure::Result;
use fencelock_lab::Redis;
use sqlx::{ConnectOptions, Connection as _, Row as _};

/// What scripts issue inside Redis is counted there like what clients send; scripts themselves are these.
const INSIDE: [&str; 22] = [
    "exists",
    "hmget",
    "hget",
    "mget",
    "mset",
    "zadd",
    "zscore",
    "zremrangebyscore",
    "pttl",
    "pexpire",
    "time",
    "get",
    "set",
    "hset",
    "del",
    "publish",
    "info",
    "incr",
    "hdel",
    "hlen",
    "pubsub",
    "pubsub|numsub",
];

impl Server {
    /// The commands that it was sent since it started, but for what this question itself costs, which is the same
    /// each time; of several servers, the mean. `None` where nothing counts them.
    ///
    /// With `plain`, the client locks by plain commands of Redis, of which `SET` alone is not sent by a script.
    pub(crate) async fn commands(&self, plain: bool) -> Result<Option<f64>> {
        Ok(match self {
            Self::Memory | Self::Sqlite(_) => None,
            Self::Redis(server) => Some(redis(server, plain)?),
            Self::Redlock(nodes) => {
                let counts = nodes.nodes().iter().map(|node| redis(node, plain)).collect::<Result<Vec<_>>>()?;
                Some(counts.iter().sum::<f64>() / counts.len() as f64)
            }
            Self::Etcd(server) => Some(server.metric(0, "grpc_server_msg_received_total")?),
            Self::ZooKeeper(server) => {
                let answer = server.ask("srvr")?;
                answer.lines().find_map(|line| line.strip_prefix("Received: ")?.trim().parse().ok())
            }
            Self::Mysql(server) => Some(mysql(&server.url()).await?),
            Self::Postgres(server) => postgres(&server.url()).await.ok(),
        })
    }
}

fn redis(server: &Redis, plain: bool) -> Result<f64> {
    let answer = server.command(&["INFO", "commandstats"])?;
    let calls = answer.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let sent = !INSIDE.contains(&name) || plain && name == "set";
        sent.then(|| rest.split(',').next()?.parse::<f64>().ok())?
    });
    Ok(calls.sum())
}

async fn mysql(url: &str) -> Result<f64> {
    let mut connection = url.parse::<sqlx::mysql::MySqlConnectOptions>()?.disable_statement_logging().connect().await?;
    let row = sqlx::query("SHOW GLOBAL STATUS LIKE 'Questions'").fetch_one(&mut connection).await?;
    let count: String = row.try_get(1)?;
    connection.close().await?;
    // This connection's own are a few, and the same each time.
    Ok(count.parse()?)
}

async fn postgres(url: &str) -> Result<f64> {
    let mut connection = url.parse::<sqlx::postgres::PgConnectOptions>()?.disable_statement_logging().connect().await?;
    sqlx::query("CREATE EXTENSION IF NOT EXISTS pg_stat_statements").execute(&mut connection).await?;
    // Our own questions, and what connections begin with, are left out.
    let sum = "SELECT coalesce(sum(calls), 0)::float8 FROM pg_stat_statements \
               WHERE query !~ 'pg_stat_statements|^SET |pg_catalog'";
    let count = sqlx::query(sum).fetch_one(&mut connection).await?.try_get(0)?;
    connection.close().await?;
    Ok(count)
}
