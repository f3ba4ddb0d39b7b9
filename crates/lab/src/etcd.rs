//! etcd: one member or several, on the loopback interface or on hosts of their own.

use crate::process::{Failure, Server};
use crate::{Network, free_port};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The members of one etcd cluster (`etcd` on the PATH, or `FENCELOCK_ETCD`).
///
/// They do not wait for the disk: what is tested is a member that dies, not a machine.
#[derive(Debug)]
pub struct Etcd {
    members: Vec<Member>,
    tls: bool,
}

#[derive(Debug)]
struct Member {
    server: Server,
    client: SocketAddr,
    metrics: SocketAddr,
}

/// Where a member's files are and what it is told beyond the usual.
#[derive(Clone, Debug, Default)]
pub struct EtcdSettings {
    arguments: Vec<String>,
    certificates: Option<[PathBuf; 3]>,
}

impl EtcdSettings {
    /// More arguments for every member.
    #[must_use]
    pub fn with_arguments<S: Into<String>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Clients connect by TLS: the server's certificate and key, and the authority that clients must be signed by.
    #[must_use]
    pub fn with_tls(mut self, certificate: &Path, key: &Path, client_authority: &Path) -> Self {
        self.certificates = Some([certificate.into(), key.into(), client_authority.into()]);
        self
    }

    fn scheme(&self) -> &'static str {
        if self.certificates.is_some() { "https" } else { "http" }
    }
}

impl Etcd {
    /// One member. The shortest ttl that it grants is 1 s.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn start() -> Result<Self, Failure> {
        Self::start_with(&EtcdSettings::default())
    }

    /// One member with settings of its own.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn start_with(settings: &EtcdSettings) -> Result<Self, Failure> {
        Self::start_on(&[Ipv4Addr::LOCALHOST], None, settings, (10, 100))
    }

    /// Several members. The shortest ttl that they grant is 1 s.
    ///
    /// # Errors
    /// If one of them does not come up.
    pub fn start_members(count: usize) -> Result<Self, Failure> {
        Self::start_members_with(count, &EtcdSettings::default())
    }

    /// Several members with settings of their own.
    ///
    /// # Errors
    /// If one of them does not come up.
    pub fn start_members_with(count: usize, settings: &EtcdSettings) -> Result<Self, Failure> {
        Self::start_on(&vec![Ipv4Addr::LOCALHOST; count], None, settings, (50, 500))
    }

    /// A member on each host of a network, so that one can be cut off from the others.
    ///
    /// # Errors
    /// If one of them does not come up.
    pub fn start_in(network: &Network) -> Result<Self, Failure> {
        Self::start_on(&network.addresses(), Some(network), &EtcdSettings::default(), (50, 500))
    }

    fn start_on(
        hosts: &[Ipv4Addr],
        network: Option<&Network>,
        settings: &EtcdSettings,
        (heartbeat, election): (u32, u32),
    ) -> Result<Self, Failure> {
        let places: Vec<_> = hosts.iter().map(Place::on).collect();
        let peers: Vec<_> =
            places.iter().enumerate().map(|(at, place)| format!("m{at}=http://{}", place.peer)).collect();
        let cluster = peers.join(",");
        let mut members = Vec::new();
        for (at, place) in places.into_iter().enumerate() {
            let own = std::env::var("FENCELOCK_ETCD").unwrap_or_else(|_| "etcd".to_owned());
            let server = match network {
                Some(network) => {
                    Server::new("ip", "iproute2")?.with_arguments(network.inside(at)).with_arguments([own])
                }
                None => Server::new(own, "etcd-server")?,
            };
            let server = place
                .arguments(server, at, settings)
                .with_arguments(["--initial-cluster", &cluster, "--initial-cluster-state", "new"])
                .with_arguments(["--heartbeat-interval", &heartbeat.to_string()])
                .with_arguments(["--election-timeout", &election.to_string()])
                .with_arguments(["--log-level", "warn", "--logger", "zap", "--unsafe-no-fsync"])
                .with_arguments(settings.arguments.clone());
            members.push(Member { server, client: place.client, metrics: place.metrics });
        }
        let mut etcd = Self { members, tls: settings.certificates.is_some() };
        // None is ready before a majority runs.
        for member in &mut etcd.members {
            member.server.start(|| true)?;
        }
        for at in 0..etcd.members.len() {
            etcd.until_ready(at)?;
        }
        Ok(etcd)
    }

    fn until_ready(&mut self, at: usize) -> Result<(), Failure> {
        let end = Instant::now() + Duration::from_secs(30);
        let member = self.member(at)?;
        while !get(member.metrics, "/health").is_ok_and(|health| health.contains("true")) {
            if Instant::now() > end {
                return Err(Failure::new(format!("etcd is not ready after 30 s: {}", member.server.log_tail())));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn member(&self, at: usize) -> Result<&Member, Failure> {
        self.members.get(at).ok_or_else(|| Failure::new(format!("there is no member {at}")))
    }

    fn member_mut(&mut self, at: usize) -> Result<&mut Member, Failure> {
        self.members.get_mut(at).ok_or_else(|| Failure::new(format!("there is no member {at}")))
    }

    /// How many members there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.members.len()
    }

    /// Where clients connect, a member each.
    #[must_use]
    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(|member| member.client.to_string()).collect()
    }

    /// Where the clients of one member connect.
    ///
    /// # Errors
    /// If there is no such member.
    pub fn endpoint(&self, at: usize) -> Result<SocketAddr, Failure> {
        Ok(self.member(at)?.client)
    }

    /// Freezes every member (SIGSTOP), and returns when each of their threads stands still.
    pub fn freeze(&self) {
        for member in &self.members {
            member.server.stop();
        }
        let end = Instant::now() + Duration::from_secs(5);
        while self.members.iter().any(|member| member.server.id().is_some_and(runs)) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Lets every member go on (SIGCONT).
    pub fn thaw(&self) {
        for member in &self.members {
            member.server.cont();
        }
    }

    /// One member's process.
    ///
    /// # Errors
    /// If there is no such member.
    pub fn server(&self, at: usize) -> Result<&Server, Failure> {
        Ok(&self.member(at)?.server)
    }

    /// Kills one member (SIGKILL); its data stays.
    ///
    /// # Errors
    /// If there is no such member.
    pub fn kill(&mut self, at: usize) -> Result<(), Failure> {
        self.member_mut(at)?.server.kill();
        Ok(())
    }

    /// Starts a killed member again and waits until it serves.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn restart(&mut self, at: usize) -> Result<(), Failure> {
        self.member_mut(at)?.server.start(|| true)?;
        self.until_ready(at)
    }

    /// Kills a member and starts it again with more arguments, the last of a kind counting, from now on. It has a
    /// leader then; whether it serves is for the arguments to say.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn restart_with<S: Into<String>>(
        &mut self,
        at: usize,
        arguments: impl IntoIterator<Item = S>,
    ) -> Result<(), Failure> {
        let member = self.member_mut(at)?;
        member.server.kill();
        let server = std::mem::replace(&mut member.server, Server::new("none", "none")?);
        member.server = server.with_arguments(arguments);
        member.server.start(|| true)?;
        let end = Instant::now() + Duration::from_secs(30);
        while !self.metric(at, "etcd_server_has_leader").is_ok_and(|has| has > 0.0) {
            if Instant::now() > end {
                return Err(Failure::new(format!(
                    "etcd has no leader after 30 s: {}",
                    self.member(at)?.server.log_tail()
                )));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Kills the only member and starts it with nothing: another store, which has the same address and the same ids.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn replace(&mut self) -> Result<(), Failure> {
        let member = self.member_mut(0)?;
        member.server.kill();
        std::fs::remove_dir_all(member.server.folder().join("data"))?;
        self.restart(0)
    }

    /// Which member leads, as it says itself; waits for one for 30 s.
    ///
    /// # Errors
    /// If none does.
    pub fn leader(&self) -> Result<usize, Failure> {
        let end = Instant::now() + Duration::from_secs(30);
        while Instant::now() < end {
            let leads = |at: &usize| self.metric(*at, "etcd_server_is_leader").is_ok_and(|leads| leads > 0.0);
            if let Some(leader) = (0..self.members.len()).find(leads) {
                return Ok(leader);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(Failure::new("no member leads"))
    }

    /// Makes a member the leader, and waits until it leads.
    ///
    /// # Errors
    /// If it does not lead within 30 s.
    pub fn move_leader(&self, at: usize) -> Result<(), Failure> {
        let end = Instant::now() + Duration::from_secs(30);
        while self.leader()? != at {
            if Instant::now() > end {
                return Err(Failure::new(format!("member {at} does not lead after 30 s")));
            }
            let members = self.ctl(["member", "list"])?;
            let name = format!("m{at}");
            let of = |line: &str| line.split(", ").nth(2) == Some(&name);
            let id = members.lines().find(|line| of(line)).and_then(|line| line.split(',').next());
            let id = id.ok_or_else(|| Failure::new(format!("no member is called {name}")))?;
            // Another may have been elected meanwhile.
            let _ = self.ctl(["move-leader", id]);
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// One of a member's metrics: `name`, or `name{label="value"`; the sum over all labels that are not given.
    ///
    /// # Errors
    /// If it does not answer or has none of that name.
    pub fn metric(&self, at: usize, name: &str) -> Result<f64, Failure> {
        let text = get(self.member(at)?.metrics, "/metrics")?;
        let (plain, label) = name.split_once('{').unwrap_or((name, ""));
        let named = |line: &&str| line.split([' ', '{']).next() == Some(plain) && line.contains(label);
        let values = text.lines().filter(named);
        let values: Vec<f64> = values.filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect();
        if values.is_empty() {
            return Err(Failure::new(format!("there is no metric {name}")));
        }
        Ok(values.iter().sum())
    }

    /// Runs `etcdctl` against all members and returns what it prints.
    ///
    /// # Errors
    /// What it says instead.
    pub fn ctl<S: AsRef<std::ffi::OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Result<String, Failure> {
        let scheme = if self.tls { "https://" } else { "" };
        let endpoints: Vec<_> = self.endpoints().iter().map(|endpoint| format!("{scheme}{endpoint}")).collect();
        let output = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &endpoints.join(","), "--command-timeout", "10s"])
            .args(arguments)
            .output()
            .map_err(|e| Failure::new(format!("etcdctl (Debian package etcd-client): {e}")))?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            Err(Failure::new(format!("etcdctl: {}", String::from_utf8_lossy(&output.stderr))))
        }
    }
}

/// Whether any thread of the process has not stopped yet: the signal is only delivered in time.
fn runs(id: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{id}/task")) else { return false };
    threads.flatten().any(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The state follows the name, which is in parentheses.
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['T', 't', 'Z']))
    })
}

/// Where one member listens.
struct Place {
    client: SocketAddr,
    peer: SocketAddr,
    metrics: SocketAddr,
}

impl Place {
    fn on(host: &Ipv4Addr) -> Self {
        let address = || SocketAddr::new(IpAddr::V4(*host), free_port());
        Self { client: address(), peer: address(), metrics: address() }
    }

    fn arguments(&self, server: Server, at: usize, settings: &EtcdSettings) -> Server {
        let folder = server.folder().join("data").display().to_string();
        let client = format!("{}://{}", settings.scheme(), self.client);
        let (peer, metrics) = (format!("http://{}", self.peer), format!("http://{}", self.metrics));
        let server = server
            .with_arguments(["--name", &format!("m{at}"), "--data-dir", &folder])
            .with_arguments(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .with_arguments(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .with_arguments(["--listen-metrics-urls", &metrics]);
        match &settings.certificates {
            Some([certificate, key, authority]) => server
                .with_arguments(["--cert-file", &certificate.display().to_string()])
                .with_arguments(["--key-file", &key.display().to_string()])
                .with_arguments(["--trusted-ca-file", &authority.display().to_string(), "--client-cert-auth"]),
            None => server,
        }
    }
}

/// The body of a plain HTTP answer.
fn get(address: SocketAddr, path: &str) -> Result<String, Failure> {
    let limit = Duration::from_secs(2);
    let mut stream = TcpStream::connect_timeout(&address, limit)?;
    stream.set_read_timeout(Some(limit))?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    Ok(answer.split_once("\r\n\r\n").map_or_else(String::new, |(_, body)| body.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_member_freezes_dies_and_comes_back() {
        let mut etcd = Etcd::start().unwrap();
        etcd.ctl(["put", "a", "1"]).unwrap();
        etcd.freeze();
        assert!(get(etcd.members[0].metrics, "/health").is_err());
        etcd.thaw();
        etcd.kill(0).unwrap();
        etcd.restart(0).unwrap();
        assert_eq!(etcd.ctl(["get", "a", "--print-value-only"]).unwrap(), "1\n", "it keeps what it acknowledged");
    }

    #[test]
    fn three_members_find_another_leader() {
        let mut etcd = Etcd::start_members(3).unwrap();
        let first = etcd.leader().unwrap();
        etcd.kill(first).unwrap();
        assert_ne!(etcd.leader().unwrap(), first);
        etcd.restart(first).unwrap();
    }

    #[test]
    fn a_host_is_cut_off_and_healed() {
        let network = Network::of(3).unwrap();
        let etcd = Etcd::start_in(&network).unwrap();
        let first = etcd.leader().unwrap();
        network.isolate(first).unwrap();
        let end = Instant::now() + Duration::from_secs(20);
        let others = |etcd: &Etcd| {
            (0..3).any(|at| at != first && etcd.metric(at, "etcd_server_is_leader").is_ok_and(|leads| leads > 0.0))
        };
        while !others(&etcd) {
            assert!(Instant::now() < end, "the majority found no leader");
            std::thread::sleep(Duration::from_millis(20));
        }
        network.heal(first).unwrap();
        // The one that comes back may disturb the leader once more, and etcdctl does not try again.
        while etcd.ctl(["put", "a", "1"]).is_err() {
            assert!(Instant::now() < end, "not healed");
        }
    }
}
