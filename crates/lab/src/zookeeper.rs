//! ZooKeeper servers: one, or several that form an ensemble.

use crate::certificates::Certificates;
use crate::free_port;
use crate::netns::Network;
use crate::process::{Failure, Server};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Where Debian's `libzookeeper-java` puts its classes (or `FENCELOCK_ZOOKEEPER_JAR`).
const JAR: &str = "/usr/share/java/zookeeper.jar";
const SILENT_LOG: &str = "/usr/share/java/slf4j-nop.jar";
/// What the server needs for TLS beyond what its own jar names.
const NETTY: &str = "/usr/share/java/netty-codec.jar:/usr/share/java/netty-resolver.jar:/usr/share/java/netty-transport-native-unix-common.jar";
const PACKAGE: &str = "libzookeeper-java, default-jre-headless";

/// What the servers are configured with. Times are short, so that tests are.
#[derive(Clone, Debug)]
pub struct ZooKeeperSettings {
    tick_ms: u32,
    sync_limit: u32,
    words: &'static str,
    lines: Vec<String>,
    properties: Vec<String>,
}

impl Default for ZooKeeperSettings {
    fn default() -> Self {
        let (lines, properties) = (Vec::new(), Vec::new());
        Self { tick_ms: 100, sync_limit: 4, words: "*", lines, properties }
    }
}

impl ZooKeeperSettings {
    /// The unit of time, in milliseconds; 100 unless set.
    #[must_use]
    pub fn with_tick(mut self, millis: u32) -> Self {
        self.tick_ms = millis;
        self
    }

    fn patience(&self) -> Duration {
        Duration::from_millis(u64::from(self.tick_ms) * u64::from(self.sync_limit))
    }

    /// How many ticks a follower may lag behind its leader; 4 unless set.
    #[must_use]
    pub fn with_sync_limit(mut self, ticks: u32) -> Self {
        self.sync_limit = ticks;
        self
    }

    /// The four-letter words that are answered; all unless set. Real servers answer `srvr` alone.
    #[must_use]
    pub fn with_words(mut self, words: &'static str) -> Self {
        self.words = words;
        self
    }

    /// A line for the configuration file.
    #[must_use]
    pub fn with_line(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }

    /// A Java system property, `name=value`.
    #[must_use]
    pub fn with_property(mut self, property: impl Into<String>) -> Self {
        self.properties.push(property.into());
        self
    }
}

/// One ZooKeeper server.
#[derive(Debug)]
pub struct ZooKeeper {
    server: Server,
    address: SocketAddr,
    secure: Option<SocketAddr>,
}

impl ZooKeeper {
    /// A standalone server.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn start() -> Result<Self, Failure> {
        Self::start_with(&ZooKeeperSettings::default())
    }

    /// A standalone server with these settings.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn start_with(settings: &ZooKeeperSettings) -> Result<Self, Failure> {
        let address = (Ipv4Addr::LOCALHOST, free_port()).into();
        let mut server = Self::new(settings, address, &[], 0, &[])?;
        server.restart()?;
        Ok(server)
    }

    /// A standalone server that takes TLS connections too, from clients that
    /// trust `certificates` and, if `clients_too`, show one by the same authority.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn start_tls(certificates: &Certificates, clients_too: bool) -> Result<Self, Failure> {
        let (plain, secure) = (free_port(), free_port());
        let file = |name: &str| certificates.path(name).display().to_string();
        let settings = ZooKeeperSettings::default()
            .with_line(format!("secureClientPort={secure}"))
            .with_line("serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory")
            .with_line(format!("ssl.keyStore.location={}", file("server.pem")))
            .with_line(format!("ssl.trustStore.location={}", file("ca.pem")))
            .with_line(format!("ssl.clientAuth={}", if clients_too { "need" } else { "none" }));
        // The plain port is for the lab alone, which asks there whether the server is ready.
        let mut server = Self::new(&settings, (Ipv4Addr::LOCALHOST, plain).into(), &[], 0, &[])?;
        server.restart()?;
        server.secure = Some((Ipv4Addr::LOCALHOST, secure).into());
        Ok(server)
    }

    /// Where it takes TLS connections.
    #[must_use]
    pub fn secure_address(&self) -> Option<SocketAddr> {
        self.secure
    }

    fn new(
        settings: &ZooKeeperSettings,
        address: SocketAddr,
        members: &[String],
        id: usize,
        wrapper: &[String],
    ) -> Result<Self, Failure> {
        let jar = std::env::var("FENCELOCK_ZOOKEEPER_JAR").unwrap_or_else(|_| JAR.to_owned());
        for file in [&jar, SILENT_LOG] {
            if !PathBuf::from(file).exists() {
                return Err(Failure::new(format!("{file} is not there (Debian packages {PACKAGE})")));
            }
        }
        let mut words = wrapper.iter().cloned().chain(["java".to_owned()]);
        let program = words.next().unwrap_or_default();
        let server = Server::new(program, PACKAGE)?.with_arguments(words);
        let data = server.folder().join("data");
        std::fs::create_dir_all(&data)?;
        let mut lines = vec![
            format!("tickTime={}", settings.tick_ms),
            format!("dataDir={}", data.display()),
            format!("clientPort={}", address.port()),
            format!("clientPortAddress={}", address.ip()),
            format!("minSessionTimeout={}", settings.tick_ms * 2),
            "maxSessionTimeout=60000".to_owned(),
            "maxClientCnxns=0".to_owned(),
            "admin.enableServer=false".to_owned(),
            format!("4lw.commands.whitelist={}", settings.words),
        ];
        if !members.is_empty() {
            std::fs::write(data.join("myid"), id.to_string())?;
            lines.push("initLimit=50".to_owned());
            lines.push(format!("syncLimit={}", settings.sync_limit));
            lines.extend(members.iter().cloned());
        }
        lines.extend(settings.lines.iter().cloned());
        let file = server.folder().join("zoo.cfg");
        std::fs::write(&file, lines.join("\n"))?;
        let class = if members.is_empty() { "ZooKeeperServerMain" } else { "quorum.QuorumPeerMain" };
        let server = server
            .with_arguments(["-Xms16m", "-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xss256k"])
            // No disk is synced: no test cuts the power.
            .with_arguments(["-Dzookeeper.forceSync=no"])
            .with_arguments(settings.properties.iter().map(|property| format!("-D{property}")))
            .with_arguments(["-cp".to_owned(), format!("{jar}:{SILENT_LOG}:{NETTY}")])
            .with_arguments([format!("org.apache.zookeeper.server.{class}"), file.display().to_string()]);
        Ok(Self { server, address, secure: None })
    }

    /// Starts it after [`Server::kill`], on the same port and folder, and waits until it serves.
    ///
    /// # Errors
    /// If it does not come up; a member of an ensemble does not as long as there is no majority.
    pub fn restart(&mut self) -> Result<(), Failure> {
        let address = self.address;
        self.server.start(|| four_letters(address, "srvr").is_ok_and(|answer| answer.contains("Mode: ")))
    }

    /// Kills it and starts it again with nothing of what it knew.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn wipe(&mut self) -> Result<(), Failure> {
        self.server.kill();
        std::fs::remove_dir_all(self.server.folder().join("data").join("version-2"))?;
        self.restart()
    }

    /// Adds a line to its configuration, for when it starts next; a later line counts over an earlier one.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn configure(&self, line: &str) -> Result<(), Failure> {
        let mut file = std::fs::OpenOptions::new().append(true).open(self.server.folder().join("zoo.cfg"))?;
        file.write_all(format!("\n{line}").as_bytes())?;
        Ok(())
    }

    /// Starts it without waiting until it serves.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn launch(&mut self) -> Result<(), Failure> {
        self.server.start(|| true)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Its process, to kill it.
    pub fn server_mut(&mut self) -> &mut Server {
        &mut self.server
    }

    /// What it answers to one of the four-letter words.
    ///
    /// # Errors
    /// If no answer came within 2 s.
    pub fn ask(&self, word: &str) -> Result<String, Failure> {
        four_letters(self.address, word)
    }

    /// `standalone`, `leader`, `follower` or `observer`; `None` while it does not serve.
    #[must_use]
    pub fn mode(&self) -> Option<String> {
        let answer = self.ask("srvr").ok()?;
        answer.lines().find_map(|line| line.strip_prefix("Mode: ")).map(|mode| mode.trim().to_owned())
    }
}

/// Several ZooKeeper servers that elect a leader.
#[derive(Debug)]
pub struct Ensemble {
    members: Vec<ZooKeeper>,
    /// How long a member may be away before the others count it as gone.
    patience: Duration,
}

impl Ensemble {
    /// `size` members on the loopback interface.
    ///
    /// # Errors
    /// If they do not come up.
    pub fn start(size: usize) -> Result<Self, Failure> {
        Self::start_with(size, &ZooKeeperSettings::default())
    }

    /// `size` members with these settings, on the loopback interface.
    ///
    /// # Errors
    /// If they do not come up.
    pub fn start_with(size: usize, settings: &ZooKeeperSettings) -> Result<Self, Failure> {
        Self::start_at(here(size), std::slice::from_ref(settings))
    }

    /// A member with each of these settings, on the loopback interface.
    ///
    /// # Errors
    /// If they do not come up.
    pub fn start_each(settings: &[ZooKeeperSettings]) -> Result<Self, Failure> {
        Self::start_at(here(settings.len()), settings)
    }

    /// One member on each host of `network`.
    ///
    /// # Errors
    /// If they do not come up.
    pub fn start_in(network: &Network, settings: &ZooKeeperSettings) -> Result<Self, Failure> {
        let place = |(at, host): (usize, Ipv4Addr)| Place {
            host: host.into(),
            wrapper: ["ip".to_owned()].into_iter().chain(network.inside(at)).collect(),
        };
        let places = network.addresses().into_iter().enumerate().map(place).collect();
        Self::start_at(places, std::slice::from_ref(settings))
    }

    /// One member at each place, with its own settings; the last settings count for those that have none.
    ///
    /// # Errors
    /// If they do not come up, or there are no settings.
    pub fn start_at(places: Vec<Place>, settings: &[ZooKeeperSettings]) -> Result<Self, Failure> {
        let mut ports = Vec::new();
        while ports.len() < places.len() * 3 {
            let port = free_port();
            if !ports.contains(&port) {
                ports.push(port);
            }
        }
        let ports: Vec<_> = ports.chunks(3).map(<[u16]>::to_vec).collect();
        let described: Vec<_> = places
            .iter()
            .zip(&ports)
            .enumerate()
            .filter_map(|(at, (place, ports))| {
                let [_, quorum, election] = *ports.as_slice() else { return None };
                Some(format!("server.{}={}:{quorum}:{election}", at + 1, place.host))
            })
            .collect();
        let mut members = Vec::new();
        for (at, (place, ports)) in places.iter().zip(&ports).enumerate() {
            let address = SocketAddr::new(place.host, ports.first().copied().unwrap_or_default());
            let settings = settings.get(at).or(settings.last()).ok_or_else(|| Failure::new("no settings"))?;
            members.push(ZooKeeper::new(settings, address, &described, at + 1, &place.wrapper)?);
        }
        let patience = settings.iter().map(ZooKeeperSettings::patience).max().unwrap_or_default();
        let mut ensemble = Self { members, patience };
        ensemble.launch()?;
        Ok(ensemble)
    }

    /// Starts every member that does not run, and waits until all serve.
    ///
    /// # Errors
    /// If they do not come up.
    pub fn launch(&mut self) -> Result<(), Failure> {
        for member in self.members.iter_mut().filter(|member| member.server.id().is_none()) {
            member.launch()?;
        }
        let end = Instant::now() + Duration::from_secs(60);
        while self.members.iter().any(|member| member.mode().is_none()) {
            if Instant::now() > end {
                let tails: Vec<_> = self.members.iter().map(|member| member.server.log_tail()).collect();
                return Err(Failure::new(format!("no ensemble after 60 s: {}", tails.join("\n--\n"))));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// The members, first to last.
    #[must_use]
    pub fn members(&self) -> &[ZooKeeper] {
        &self.members
    }

    /// The members, to kill or restart one.
    pub fn members_mut(&mut self) -> &mut [ZooKeeper] {
        &mut self.members
    }

    /// `host:port,host:port,…`
    #[must_use]
    pub fn addresses(&self) -> String {
        self.members.iter().map(|member| member.address.to_string()).collect::<Vec<_>>().join(",")
    }

    /// Which member leads now.
    #[must_use]
    pub fn leader(&self) -> Option<usize> {
        self.members.iter().position(|member| member.mode().as_deref() == Some("leader"))
    }

    /// Waits until the members agree, and have for so long that none is still about to find out that it was
    /// away: one leads and the others follow it, without a break, for twice what `syncLimit` allows. At most 90 s,
    /// since now and then an election takes up to a minute by their own backoff.
    ///
    /// # Errors
    /// If they do not agree.
    pub fn settle(&self) -> Result<(), Failure> {
        let end = Instant::now() + Duration::from_secs(90);
        let (mut led, mut since) = (None, Instant::now());
        while Instant::now() < end {
            let modes: Vec<_> = self.members.iter().map(ZooKeeper::mode).collect();
            let leads = modes.iter().position(|mode| mode.as_deref() == Some("leader"));
            let agreed = leads.filter(|_| {
                modes.iter().filter(|mode| mode.as_deref() == Some("follower")).count() + 1 == self.members.len()
            });
            if agreed.is_none() || agreed != led {
                (led, since) = (agreed, Instant::now());
            } else if since.elapsed() > self.patience * 2 {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(Failure::new("the members have not agreed on a leader in 90 s"))
    }

    /// Waits until some member leads, at most 30 s.
    ///
    /// # Errors
    /// If none does.
    pub fn wait_for_leader(&self) -> Result<usize, Failure> {
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(leader) = self.leader() {
                return Ok(leader);
            }
            if Instant::now() > end {
                return Err(Failure::new("no leader after 30 s"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn here(size: usize) -> Vec<Place> {
    (0..size).map(|_| Place { host: Ipv4Addr::LOCALHOST.into(), wrapper: Vec::new() }).collect()
}

/// Where a member runs.
#[derive(Clone, Debug)]
pub struct Place {
    /// Its address.
    pub host: IpAddr,
    /// The command that runs `java` there; empty for here.
    pub wrapper: Vec<String>,
}

/// Asks a server one of its four-letter words, on a connection of its own.
fn four_letters(address: SocketAddr, word: &str) -> Result<String, Failure> {
    let limit = Duration::from_secs(2);
    let mut stream = TcpStream::connect_timeout(&address, limit)?;
    stream.set_read_timeout(Some(limit))?;
    stream.write_all(word.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    String::from_utf8(answer).map_err(|_| Failure::new("an answer that is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_starts_freezes_dies_and_comes_back() {
        let mut server = ZooKeeper::start().unwrap();
        assert_eq!(server.mode().as_deref(), Some("standalone"));
        assert!(server.ask("conf").unwrap().contains("tickTime=100"));
        server.server().stop();
        assert_eq!(server.mode(), None);
        server.server().cont();
        assert!(server.mode().is_some());
        server.server_mut().kill();
        assert_eq!(server.mode(), None);
        server.restart().unwrap();
        assert!(server.mode().is_some());
    }

    #[test]
    fn an_ensemble_elects_another_leader() {
        let mut ensemble = Ensemble::start(3).unwrap();
        let leader = ensemble.wait_for_leader().unwrap();
        ensemble.members_mut()[leader].server_mut().kill();
        let next = ensemble.wait_for_leader().unwrap();
        assert_ne!(leader, next);
        ensemble.launch().unwrap();
        assert_eq!(ensemble.members()[leader].mode().as_deref(), Some("follower"));
    }
}
