//! A Redis master with two replicas, and three Sentinels that watch it.

use crate::free_port;
use crate::process::{Failure, Server};
use crate::redis::{Redis, command, program};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

/// What the Sentinels call the master.
const NAME: &str = "mymaster";

/// One master, two replicas, three Sentinels; a fail-over takes about 2 s.
#[derive(Debug)]
pub struct RedisSentinel {
    servers: Vec<Redis>,
    sentinels: Vec<(Server, SocketAddr)>,
}

impl RedisSentinel {
    /// Starts all six and waits until they know each other. A master that is silent for 500 ms is replaced.
    ///
    /// # Errors
    /// If one does not come up, or they do not find each other within 30 s.
    pub fn start() -> Result<Self, Failure> {
        Self::start_with(Duration::from_millis(500))
    }

    /// As [`start`](Self::start), where a master may be silent for `patience`.
    ///
    /// # Errors
    /// If one does not come up, or they do not find each other within 30 s.
    pub fn start_with(patience: Duration) -> Result<Self, Failure> {
        let settings = ["--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0"];
        let master = Redis::start_with(settings)?;
        let port = master.address().port().to_string();
        let mut servers = vec![master];
        for _ in 0..2 {
            let of = ["--replicaof", "127.0.0.1", &port];
            servers.push(Redis::start_with(settings.into_iter().chain(of))?);
        }
        let mut sentinels = Vec::new();
        for _ in 0..3 {
            let (own, server) = (free_port(), Server::new(program(), "redis-server")?);
            let file = server.folder().join("sentinel.conf");
            let text = format!(
                "port {own}\nbind 127.0.0.1\ndir {}\nsentinel monitor {NAME} 127.0.0.1 {port} 2\n\
                 sentinel down-after-milliseconds {NAME} {}\nsentinel failover-timeout {NAME} 2000\n",
                server.folder().display(),
                patience.as_millis()
            );
            std::fs::write(&file, text)?;
            let mut server = server.with_arguments([file.display().to_string(), "--sentinel".to_owned()]);
            let address = (Ipv4Addr::LOCALHOST, own).into();
            server.start(|| command(address, &["PING"]).is_ok_and(|answer| answer.starts_with("+PONG")))?;
            sentinels.push((server, address));
        }
        let set = Self { servers, sentinels };
        set.wait_until_whole()?;
        Ok(set)
    }

    fn wait_until_whole(&self) -> Result<(), Failure> {
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            let whole = self.sentinels.iter().all(|(_, address)| {
                let quorum = command(*address, &["SENTINEL", "CKQUORUM", NAME]);
                let replicas = command(*address, &["SENTINEL", "REPLICAS", NAME]);
                quorum.is_ok_and(|answer| answer.starts_with("+OK 3"))
                    && replicas.is_ok_and(|answer| answer.starts_with("*2"))
            });
            let linked = self.servers.iter().skip(1).all(|replica| {
                replica.command(&["INFO", "replication"]).is_ok_and(|info| info.contains("master_link_status:up"))
            });
            if whole && linked {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(Failure::new("the Sentinels have not found each other within 30 s"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Where the Sentinels listen.
    #[must_use]
    pub fn sentinels(&self) -> Vec<SocketAddr> {
        self.sentinels.iter().map(|(_, address)| *address).collect()
    }

    /// What the Sentinels call the master.
    #[must_use]
    pub fn name(&self) -> &'static str {
        NAME
    }

    /// All three servers, the first master first.
    #[must_use]
    pub fn servers(&self) -> &[Redis] {
        &self.servers
    }

    /// All three servers, to kill them.
    pub fn servers_mut(&mut self) -> &mut [Redis] {
        &mut self.servers
    }

    /// Freezes every server and Sentinel.
    pub fn stop(&self) {
        // The Sentinels first, so that none of them sees a dead master.
        self.sentinels.iter().for_each(|(server, _)| server.stop());
        self.servers.iter().for_each(|redis| redis.server().stop());
    }

    /// Lets all go on.
    pub fn cont(&self) {
        self.servers.iter().for_each(|redis| redis.server().cont());
        self.sentinels.iter().for_each(|(server, _)| server.cont());
    }
}
