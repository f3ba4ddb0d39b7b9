//! Hosts of their own on this machine: network namespaces on a bridge, which can be cut off.

use crate::process::Failure;
use std::fmt;
use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};

/// The beginning of every name that is made here; the process id follows.
const PREFIX: &str = "flab";

/// How many this process has made, so that no two that live share a name.
static MADE: AtomicU8 = AtomicU8::new(0);

/// Several hosts (network namespaces) that reach each other and this machine
/// over a bridge. Needs root and `ip` (Debian package `iproute2`).
///
/// # Drop
/// Removes the namespaces and the bridge; end the processes in them before.
/// What a killed process left is removed when the next network is made.
pub struct Network {
    mark: String,
    subnet: [u8; 3],
    count: u8,
}

fn ip(arguments: &[&str]) -> Result<String, Failure> {
    let output = Command::new("ip")
        .args(arguments)
        .output()
        .map_err(|e| Failure::new(format!("ip (Debian package iproute2): {e}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Failure::new(format!("ip {}: {}", arguments.join(" "), said.trim())))
}

impl Network {
    /// A network of `count` hosts, 99 at most.
    ///
    /// # Errors
    /// If this process is not root, or the kernel has no namespaces or bridges.
    pub fn of(count: u8) -> Result<Self, Failure> {
        remove_orphans();
        // Interface names have at most 15 bytes.
        let number = MADE.fetch_add(1, Ordering::Relaxed) % 26;
        let mark = format!("{PREFIX}{}{}", std::process::id(), (b'a' + number) as char);
        let subnet = [10, fastrand::u8(100..250), fastrand::u8(1..250)];
        let network = Self { mark, subnet, count: count.min(99) };
        let bridge = network.bridge();
        ip(&["link", "add", &bridge, "type", "bridge"])?;
        ip(&["link", "set", &bridge, "up"])?;
        ip(&["addr", "add", &format!("{}/24", network.address(253)), "dev", &bridge])?;
        for at in 0..network.count {
            network.add_host(at, &bridge)?;
        }
        Ok(network)
    }

    fn add_host(&self, at: u8, bridge: &str) -> Result<(), Failure> {
        let (host, link) = (self.host(at), self.link(at));
        ip(&["netns", "add", &host])?;
        ip(&["link", "add", &link, "type", "veth", "peer", "name", "eth0", "netns", &host])?;
        ip(&["link", "set", &link, "master", bridge, "up"])?;
        ip(&["-n", &host, "addr", "add", &format!("{}/24", self.address(at)), "dev", "eth0"])?;
        ip(&["-n", &host, "link", "set", "eth0", "up"])?;
        ip(&["-n", &host, "link", "set", "lo", "up"])?;
        Ok(())
    }

    fn bridge(&self) -> String {
        format!("{}b", self.mark)
    }

    fn host(&self, at: u8) -> String {
        format!("{}h{at}", self.mark)
    }

    fn link(&self, at: u8) -> String {
        format!("{}v{at}", self.mark)
    }

    fn address(&self, at: u8) -> Ipv4Addr {
        let [a, b, c] = self.subnet;
        Ipv4Addr::new(a, b, c, at.saturating_add(1))
    }

    /// The hosts' addresses, reachable from this machine too.
    #[must_use]
    pub fn addresses(&self) -> Vec<Ipv4Addr> {
        (0..self.count).map(|at| self.address(at)).collect()
    }

    /// The arguments of `ip` before a program that is to run on a host.
    pub(crate) fn inside(&self, at: usize) -> [String; 3] {
        let host = self.host(u8::try_from(at).unwrap_or(u8::MAX));
        ["netns".to_owned(), "exec".to_owned(), host]
    }

    /// Cuts a host off from everybody.
    ///
    /// # Errors
    /// If there is no such host.
    pub fn isolate(&self, at: usize) -> Result<(), Failure> {
        self.set(at, "down")
    }

    /// Ends what [`isolate`](Self::isolate) began.
    ///
    /// # Errors
    /// If there is no such host.
    pub fn heal(&self, at: usize) -> Result<(), Failure> {
        self.set(at, "up")
    }

    /// Lets nothing pass between two hosts, while both reach all others.
    ///
    /// # Errors
    /// If there is no such host.
    pub fn separate(&self, one: usize, other: usize) -> Result<(), Failure> {
        self.route("add", one, other)?;
        self.route("add", other, one)
    }

    /// Ends what [`separate`](Self::separate) began.
    ///
    /// # Errors
    /// If there is no such host, or they were not separated.
    pub fn reunite(&self, one: usize, other: usize) -> Result<(), Failure> {
        self.route("del", one, other)?;
        self.route("del", other, one)
    }

    /// Adds or removes a route on host `at` that drops whatever is sent to `other`.
    fn route(&self, verb: &str, at: usize, other: usize) -> Result<(), Failure> {
        let number = |at: usize| u8::try_from(at).unwrap_or(u8::MAX);
        let (host, address) = (self.host(number(at)), self.address(number(other)).to_string());
        ip(&["-n", &host, "route", verb, "blackhole", &address]).map(|_| ())
    }

    fn set(&self, at: usize, state: &str) -> Result<(), Failure> {
        let link = self.link(u8::try_from(at).unwrap_or(u8::MAX));
        ip(&["link", "set", &link, state]).map(|_| ())
    }
}

/// Removes what processes that are gone have left.
fn remove_orphans() {
    let gone = |name: &str| {
        let id = name.strip_prefix(PREFIX)?;
        let id: String = id.chars().take_while(char::is_ascii_digit).collect();
        let path = format!("/proc/{id}");
        (!id.is_empty() && !std::path::Path::new(&path).exists()).then(|| name.to_owned())
    };
    let hosts = ip(&["netns", "list"]).unwrap_or_default();
    for host in hosts.lines().filter_map(|line| gone(line.split(' ').next()?)) {
        let _ = ip(&["netns", "del", &host]);
    }
    let bridges = ip(&["-o", "link", "show", "type", "bridge"]).unwrap_or_default();
    for bridge in bridges.lines().filter_map(|line| gone(line.split(": ").nth(1)?)) {
        let _ = ip(&["link", "del", &bridge]);
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for at in 0..self.count {
            let _ = ip(&["netns", "del", &self.host(at)]);
        }
        let _ = ip(&["link", "del", &self.bridge()]);
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").field("mark", &self.mark).field("addresses", &self.addresses()).finish()
    }
}
