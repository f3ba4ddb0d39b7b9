//! A Redis Cluster of three masters with a replica each.

use crate::process::{Failure, Server};
use crate::redis::{self, Redis};
use crate::{Certificates, Network, free_port};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

const SLOTS: usize = 16_384;
const MASTERS: usize = 3;
const SETTINGS: [&str; 8] =
    ["--cluster-enabled", "yes", "--repl-diskless-sync-delay", "0", "--save", "", "--appendonly", "no"];

/// Six nodes; a fail-over takes about 2 s.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<Redis>,
    /// The ports by which they know each other: those for TLS, where there are such.
    ports: Vec<u16>,
}

impl RedisCluster {
    /// Starts six nodes, joins them, and waits until all see a whole Cluster. A
    /// master that is silent for a second is replaced.
    ///
    /// # Errors
    /// If one does not come up, or they do not agree within 30 s.
    pub fn start() -> Result<Self, Failure> {
        Self::start_with(Duration::from_secs(1))
    }

    /// As [`start`](Self::start), where a master may be silent for `patience`.
    ///
    /// # Errors
    /// If one does not come up, or they do not agree within 30 s.
    pub fn start_with(patience: Duration) -> Result<Self, Failure> {
        Self::start_by(patience, None)
    }

    /// Six nodes by TLS, among each other too; the plain ports stay for the tests' own questions.
    ///
    /// # Errors
    /// If one does not come up, or they do not agree within 30 s.
    pub fn start_tls(files: &Certificates) -> Result<Self, Failure> {
        Self::start_by(Duration::from_secs(1), Some(files))
    }

    fn start_by(patience: Duration, files: Option<&Certificates>) -> Result<Self, Failure> {
        let patience = patience.as_millis().to_string();
        let (mut nodes, mut ports) = (Vec::new(), Vec::new());
        for _ in 0..MASTERS * 2 {
            let settings = SETTINGS.into_iter().chain(["--cluster-node-timeout", &patience]).map(str::to_owned);
            let port = cluster_port();
            let tls = files.map(|files| {
                let more = [("tls-cluster", "yes".to_owned()), ("tls-replication", "yes".to_owned())];
                redis::as_arguments(redis::tls_settings(files, port).into_iter().chain(more).collect())
            });
            let own = if files.is_some() { free_port() } else { port };
            nodes.push(Redis::start_on(own, settings.chain(tls.into_iter().flatten()))?);
            ports.push(port);
        }
        let cluster = Self { nodes, ports };
        cluster.join()?;
        Ok(cluster)
    }

    /// A node on each host of a network of six, so that one can be cut off from the others; a
    /// master that is silent for `patience` is replaced.
    ///
    /// # Errors
    /// If one does not come up, or they do not agree within 30 s.
    pub fn start_in(network: &Network, patience: Duration) -> Result<Self, Failure> {
        let patience = patience.as_millis().to_string();
        let (mut nodes, mut ports) = (Vec::new(), Vec::new());
        for (at, host) in network.addresses().into_iter().enumerate() {
            let port = cluster_port();
            let server = Server::new("ip", "iproute2")?.with_arguments(network.inside(at));
            let server = server.with_arguments([redis::program()]);
            let settings = SETTINGS.into_iter().chain(["--cluster-node-timeout", &patience, "--protected-mode", "no"]);
            nodes.push(Redis::start_by(server, (host, port).into(), settings)?);
            ports.push(port);
        }
        let cluster = Self { nodes, ports };
        cluster.join()?;
        Ok(cluster)
    }

    fn join(&self) -> Result<(), Failure> {
        let share = SLOTS.div_ceil(MASTERS);
        for (at, node) in self.nodes.iter().enumerate() {
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(at + 1).to_string()])?;
            if at < MASTERS {
                let slots: Vec<_> = (at * share..SLOTS.min((at + 1) * share)).map(|slot| slot.to_string()).collect();
                let words: Vec<_> =
                    ["CLUSTER", "ADDSLOTS"].into_iter().chain(slots.iter().map(String::as_str)).collect();
                node.command(&words)?;
            }
            if let Some((first, port)) = self.nodes.first().zip(self.ports.first()) {
                let host = first.address().ip().to_string();
                node.command(&["CLUSTER", "MEET", &host, &port.to_string()])?;
            }
        }
        self.wait_until(|node| Ok(node.command(&["CLUSTER", "NODES"])?.matches(" connected").count() == MASTERS * 2))?;
        for (master, replica) in self.nodes.iter().zip(self.nodes.iter().skip(MASTERS)) {
            let id = master.command(&["CLUSTER", "MYID"])?;
            let id = id.lines().nth(1).unwrap_or_default().to_owned();
            replica.command(&["CLUSTER", "REPLICATE", &id])?;
        }
        self.wait_until(|node| {
            let info = node.command(&["CLUSTER", "INFO"])?;
            let replication = node.command(&["INFO", "replication"])?;
            let linked = replication.contains("role:master") || replication.contains("master_link_status:up");
            Ok(info.contains("cluster_state:ok") && linked)
        })?;
        // A master tells of its replica only once the gossip has come round.
        self.wait_until(|node| Ok(node.command(&["CLUSTER", "NODES"])?.matches("slave ").count() == MASTERS))
    }

    fn wait_until(&self, done: impl Fn(&Redis) -> Result<bool, Failure>) -> Result<(), Failure> {
        let end = Instant::now() + Duration::from_secs(30);
        while !self.nodes.iter().all(|node| done(node).unwrap_or(false)) {
            if Instant::now() > end {
                return Err(Failure::new("the nodes of the Cluster do not agree after 30 s"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Where the nodes listen, masters first.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(Redis::address).collect()
    }

    /// The ports for TLS, where there are such, masters first.
    #[must_use]
    pub fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// The nodes, masters first.
    #[must_use]
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// The nodes, to kill them.
    pub fn nodes_mut(&mut self) -> &mut [Redis] {
        &mut self.nodes
    }

    /// Freezes every node.
    pub fn stop(&self) {
        self.nodes.iter().for_each(|node| node.server().stop());
    }

    /// Lets all go on.
    pub fn cont(&self) {
        self.nodes.iter().for_each(|node| node.server().cont());
    }
}

/// The nodes talk to each other 10,000 ports above.
fn cluster_port() -> u16 {
    for _ in 0..1_000 {
        let port = free_port();
        if port < 22_000 && TcpListener::bind((Ipv4Addr::LOCALHOST, port + 10_000)).is_ok() {
            return port;
        }
    }
    0
}
