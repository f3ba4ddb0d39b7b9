//! A Redis master with two replicas, and three Sentinels that watch it.

use crate::Certificates;
use crate::free_port;
use crate::process::{Failure, Server};
use crate::redis::{self, Redis, command, program};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

/// What the Sentinels call the master.
const NAME: &str = "mymaster";

/// One master, two replicas, three Sentinels; a fail-over takes about 2 s.
#[derive(Debug)]
pub struct RedisSentinel {
    servers: Vec<Redis>,
    sentinels: Vec<(Server, SocketAddr)>,
    tls: Vec<SocketAddr>,
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
        Self::start_by(patience, None)
    }

    /// All six by TLS, among each other too; the plain ports stay for the tests' own questions.
    ///
    /// # Errors
    /// If one does not come up, or they do not find each other within 30 s.
    pub fn start_tls(files: &Certificates) -> Result<Self, Failure> {
        Self::start_by(Duration::from_millis(500), Some(files))
    }

    fn start_by(patience: Duration, files: Option<&Certificates>) -> Result<Self, Failure> {
        let settings = ["--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0"].map(str::to_owned);
        let start = |of: Option<u16>| {
            let (own, tls) = (free_port(), files.map(|files| (files, free_port())));
            let of = of.map(|port| ["--replicaof".to_owned(), "127.0.0.1".to_owned(), port.to_string()]);
            let by_tls = tls.map(|(files, port)| {
                let settings =
                    redis::tls_settings(files, port).into_iter().chain([("tls-replication", "yes".to_owned())]);
                redis::as_arguments(settings.collect())
            });
            let all = settings.iter().cloned().chain(of.into_iter().flatten()).chain(by_tls.into_iter().flatten());
            Redis::start_on(own, all).map(|redis| (redis, tls.map_or(own, |(_, port)| port)))
        };
        let (master, port) = start(None)?;
        let mut servers = vec![master];
        for _ in 0..2 {
            servers.push(start(Some(port))?.0);
        }
        let (mut sentinels, mut tls) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            let (own, server) = (free_port(), Server::new(program(), "redis-server")?);
            let file = server.folder().join("sentinel.conf");
            let mut text = format!(
                "port {own}\nbind 127.0.0.1\ndir {}\nsentinel monitor {NAME} 127.0.0.1 {port} 2\n\
                 sentinel down-after-milliseconds {NAME} {}\nsentinel failover-timeout {NAME} 2000\n",
                server.folder().display(),
                patience.as_millis()
            );
            if let Some(files) = files {
                let port = free_port();
                tls.push((Ipv4Addr::LOCALHOST, port).into());
                let settings =
                    redis::tls_settings(files, port).into_iter().chain([("tls-replication", "yes".to_owned())]);
                settings.for_each(|(key, value)| text.push_str(&format!("{key} {value}\n")));
            }
            std::fs::write(&file, text)?;
            let mut server = server.with_arguments([file.display().to_string(), "--sentinel".to_owned()]);
            let address = (Ipv4Addr::LOCALHOST, own).into();
            server.start(|| command(address, &["PING"]).is_ok_and(|answer| answer.starts_with("+PONG")))?;
            sentinels.push((server, address));
        }
        let set = Self { servers, sentinels, tls };
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

    /// Where the Sentinels listen by TLS.
    #[must_use]
    pub fn tls_sentinels(&self) -> &[SocketAddr] {
        &self.tls
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
