//! Opening a connection: finding the master, authentication, and what must be so before any lock is asked for.

use crate::config::{Address, Deployment, RedisConfig};
use crate::failure::{Failure, Next};
use crate::keys::{Keys, LAYOUT};
use fencelock_core::{ErrorKind, Secret};
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, IntoConnectionInfo as _, ProtocolVersion, PushInfo,
    RedisConnectionInfo, Value,
};
use std::fmt;
use std::sync::Arc;
use tokio::time::timeout;

/// Requests waiting to be written before more of them wait in their callers.
const BUFFER: usize = 1_024;

/// How a link gets its connection.
#[derive(Clone)]
pub(crate) struct Opener {
    config: Arc<RedisConfig>,
    /// The server; whoever the Sentinels call master, without one.
    address: Option<Address>,
}

impl Opener {
    pub(crate) fn to(config: &Arc<RedisConfig>, address: Address) -> Self {
        Self { config: Arc::clone(config), address: Some(address) }
    }

    pub(crate) fn to_master(config: &Arc<RedisConfig>) -> Self {
        let address = match &config.deployment {
            Deployment::Standalone(address) => Some(address.clone()),
            Deployment::Sentinel { .. } | Deployment::Cluster(_) => None,
        };
        Self { config: Arc::clone(config), address }
    }

    /// A connection to a master with our layout, opened within the connect time-out.
    pub(crate) async fn open(
        &self,
        pushed: impl Fn(PushInfo) -> Result<(), ()> + Send + Sync + 'static,
    ) -> Result<MultiplexedConnection, Failure> {
        let limit = self.config.connect_timeout;
        let opened = timeout(limit, async {
            let address = match &self.address {
                Some(address) => address.clone(),
                None => self.ask_sentinels().await?,
            };
            let mut connection = self.connect(&address, Some(pushed)).await?;
            if !self.config.as_it_is {
                self.check(&mut connection).await?;
            }
            Ok(connection)
        });
        match opened.await {
            Ok(opened) => opened,
            Err(_) => Err(Failure::not_reached(format_args!("no connection in {limit:?}"))),
        }
    }

    /// One answer of this server, be it master or replica, on a connection for this alone.
    pub(crate) async fn ask(&self, command: &Cmd) -> Result<Value, Failure> {
        let limit = self.config.connect_timeout;
        let asked = timeout(limit, async {
            let Some(address) = &self.address else { return Err(Failure::not_reached("no address")) };
            let mut connection = self.connect(address, None::<fn(PushInfo) -> Result<(), ()>>).await?;
            command.query_async(&mut connection).await.map_err(Failure::of)
        });
        asked.await.unwrap_or_else(|_| Err(Failure::not_reached(format_args!("no answer in {limit:?}"))))
    }

    async fn connect(
        &self,
        (host, port): &Address,
        pushed: Option<impl Fn(PushInfo) -> Result<(), ()> + Send + Sync + 'static>,
    ) -> Result<MultiplexedConnection, Failure> {
        let config = &self.config;
        let (user, password) = (config.user.as_ref(), config.password.as_ref());
        let mut settings = settings(user, password).set_db(i64::from(config.database));
        let mut options = options();
        if let Some(pushed) = pushed {
            settings = settings.set_protocol(ProtocolVersion::RESP3);
            options = options.set_push_sender(pushed);
        }
        self.dial(host, *port, settings, &options).await
    }

    async fn dial(
        &self,
        host: &str,
        port: u16,
        settings: RedisConnectionInfo,
        options: &AsyncConnectionConfig,
    ) -> Result<MultiplexedConnection, Failure> {
        let host = host.to_owned();
        let address = match &self.config.tls {
            None => ConnectionAddr::Tcp(host, port),
            Some(_) => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
        };
        let info = address.into_connection_info().map_err(Failure::of)?;
        // Off by default there, which costs 40 ms a request wherever acknowledgements are delayed.
        let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true)).set_redis_settings(settings);
        #[cfg(feature = "tls")]
        let client = match self.config.tls.clone() {
            None => Client::open(info).map_err(Failure::of),
            Some(tls) => {
                // Files are read, the system's certificates among them, and each time anew: they are renewed.
                let made = tokio::task::spawn_blocking(move || crate::tls::client(info, &tls)).await;
                made.unwrap_or_else(|_| Err(Failure::not_reached("the reading of certificates was given up")))
            }
        };
        #[cfg(not(feature = "tls"))]
        let client = Client::open(info).map_err(Failure::of);
        client?.get_multiplexed_async_connection_with_config(options).await.map_err(Failure::of)
    }

    /// The first Sentinel's answer whose master says that it is one.
    async fn ask_sentinels(&self) -> Result<Address, Failure> {
        let Deployment::Sentinel { sentinels, master } = &self.config.deployment else {
            return Err(Failure::not_reached("no address"));
        };
        let mut last = None;
        for sentinel in sentinels {
            // One that hangs must leave time for the others.
            let limit = self.config.connect_timeout / u32::try_from(sentinels.len() + 1).unwrap_or(u32::MAX);
            let answer = timeout(limit, self.ask_sentinel(sentinel, master)).await;
            match answer.unwrap_or_else(|_| Err(Failure::not_reached("a Sentinel did not answer"))) {
                Ok(address) => return Ok(address),
                Err(failure) => last = Some(failure),
            }
        }
        Err(last.unwrap_or_else(|| Failure::not_reached("no Sentinel is named")))
    }

    async fn ask_sentinel(&self, (host, port): &Address, master: &str) -> Result<Address, Failure> {
        let config = &self.config;
        let settings = settings(config.sentinel_user.as_ref(), config.sentinel_password.as_ref());
        let mut sentinel = self.dial(host, *port, settings, &options()).await?;
        let mut command = redis::cmd("SENTINEL");
        command.arg("GET-MASTER-ADDR-BY-NAME").arg(master);
        let address: Option<(String, u16)> = command.query_async(&mut sentinel).await.map_err(Failure::of)?;
        let Some(address) = address else {
            return Err(Failure::not_reached(format_args!("the Sentinels know no master called `{master}`")));
        };
        let mut data = self.connect(&address, None::<fn(PushInfo) -> Result<(), ()>>).await?;
        is_master(&redis::cmd("ROLE").query_async(&mut data).await.map_err(Failure::of)?)?;
        Ok(address)
    }

    /// A replica takes no locks, and another layout would lock beside ours.
    async fn check(&self, connection: &mut MultiplexedConnection) -> Result<(), Failure> {
        let layout = Keys::new(self.config.prefix.as_str(), false).layout();
        let mut asked = redis::pipe();
        asked.ignore_errors();
        asked.cmd("ROLE").cmd("SETNX").arg(&layout).arg(LAYOUT).cmd("GET").arg(&layout);
        let answers: Vec<Value> = asked.query_async(connection).await.map_err(Failure::of)?;
        let mut answers = answers.into_iter().map(Value::extract_error);
        let (role, written, found) = (answers.next(), answers.next(), answers.next());
        // Where the role may not be seen, a replica still refuses every write.
        if let Some(Ok(role)) = role {
            is_master(&role)?;
        }
        let failure = match (written, found) {
            (_, Some(Ok(Value::BulkString(version)))) if version == LAYOUT.as_bytes() => return Ok(()),
            (_, Some(Ok(Value::BulkString(version)))) => {
                let version = String::from_utf8_lossy(&version).into_owned();
                let message = format!(
                    "the keys under `{}` have layout {version}, this program writes layout {LAYOUT}: the two would share no locks; \
                     use one version, or another `prefix`",
                    self.config.prefix
                );
                return Err(Failure::new(ErrorKind::Refused, message));
            }
            // Where nobody can write it down, nobody is kept apart: as when memory or disk is full.
            (_, Some(Err(e))) | (Some(Err(e)), _) => Failure::of(e),
            _ => Failure::odd_answer(),
        };
        match (&failure.next, &self.config.deployment) {
            // Another node of the Cluster has it, and is asked too.
            (Next::Moved(..) | Next::Ask(_), Deployment::Cluster(_)) => Ok(()),
            (Next::Moved(..) | Next::Ask(_), _) => Err(Failure::in_a_cluster()),
            _ => Err(failure),
        }
    }
}

fn is_master(role: &Value) -> Result<(), Failure> {
    let first = match role {
        Value::Array(parts) => parts.first(),
        _ => None,
    };
    match first {
        Some(Value::BulkString(role)) if role == b"master" => Ok(()),
        Some(Value::BulkString(role)) if role == b"sentinel" => {
            let message =
                "the server is a Sentinel: write `redis+sentinel://`, and the master's name after the Sentinels";
            Err(Failure::new(ErrorKind::InvalidConfig, message))
        }
        _ => Err(Failure::of_answer("READONLY", "")),
    }
}

fn settings(user: Option<&String>, password: Option<&Secret>) -> RedisConnectionInfo {
    let mut settings = RedisConnectionInfo::default();
    if let Some(user) = user {
        settings = settings.set_username(user);
    }
    if let Some(password) = password {
        settings = settings.set_password(password.reveal());
    }
    settings
}

/// Without the library's own time-outs: ours are around every call.
fn options() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(BUFFER)
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            Some((host, port)) => write!(f, "{host}:{port}"),
            None => f.write_str("master"),
        }
    }
}
