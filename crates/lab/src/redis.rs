//! One Redis.

use crate::Certificates;
use crate::free_port;
use crate::process::{Failure, Server};
use crate::template;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// Settings of a server that writes and syncs every command before it answers.
pub(crate) const DURABLE: [&str; 10] = [
    "--save",
    "",
    "--appendonly",
    "yes",
    "--appendfsync",
    "always",
    "--no-appendfsync-on-rewrite",
    "no",
    "--maxmemory-policy",
    "noeviction",
];

/// A Redis server (`redis-server` on the PATH, or `LAB_REDIS_SERVER`).
#[derive(Debug)]
pub struct Redis {
    server: Server,
    address: SocketAddr,
}

impl Redis {
    /// A standalone server without persistence.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn start() -> Result<Self, Failure> {
        Self::start_with(["--save", "", "--appendonly", "no"])
    }

    /// A standalone server that writes and syncs every command before it answers.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn start_durable() -> Result<Self, Failure> {
        Self::start_with(DURABLE)
    }

    /// A server with these settings on top of a free port, its own folder and `DEBUG` allowed.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn start_with<S: Into<String>>(settings: impl IntoIterator<Item = S>) -> Result<Self, Failure> {
        Self::start_on(free_port(), settings)
    }

    pub(crate) fn start_on<S: Into<String>>(port: u16, settings: impl IntoIterator<Item = S>) -> Result<Self, Failure> {
        Self::start_by(Server::new(program(), "redis-server")?, (Ipv4Addr::LOCALHOST, port).into(), settings)
    }

    /// Started by a program that turns into the server.
    pub(crate) fn start_by<S: Into<String>>(
        server: Server,
        address: SocketAddr,
        settings: impl IntoIterator<Item = S>,
    ) -> Result<Self, Failure> {
        let folder = server.folder().display().to_string();
        let (host, port) = (address.ip().to_string(), address.port().to_string());
        let server = server
            .with_arguments(["--port", &port, "--bind", &host, "--dir", &folder])
            .with_arguments(["--daemonize", "no", "--enable-debug-command", "yes"])
            .with_arguments(settings);
        let mut redis = Self { server, address };
        redis.restart()?;
        Ok(redis)
    }

    /// Starts it again after [`Server::kill`], on the same port and folder.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn restart(&mut self) -> Result<(), Failure> {
        let address = self.address;
        self.server.start(|| command(address, &["PING"]).is_ok_and(|answer| answer.starts_with("+PONG")))
    }

    /// As [`restart`](Self::restart), and waits only until it listens: it may still be loading its data.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn restart_early(&mut self) -> Result<(), Failure> {
        let address = self.address;
        self.server.start(|| command(address, &["PING"]).is_ok_and(|answer| !answer.is_empty()))
    }

    /// Kills it and starts it again with nothing of what it knew.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn wipe(&mut self) -> Result<(), Failure> {
        self.server.kill();
        self.forget();
        self.restart()
    }

    fn forget(&self) {
        let _ = std::fs::remove_dir_all(self.server.folder().join("appendonlydir"));
        let _ = std::fs::remove_file(self.server.folder().join("dump.rdb"));
    }

    /// Kills it and starts it again with what `other` has on disk, which writes every command there.
    ///
    /// # Errors
    /// If that cannot be copied, or it does not come up.
    pub fn restart_as_copy_of(&mut self, other: &Self) -> Result<(), Failure> {
        self.server.kill();
        self.forget();
        let from = other.server.folder().join("appendonlydir");
        template::run(std::process::Command::new("cp").arg("-a").arg(from).arg(self.server.folder()))?;
        self.restart()
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

    /// Sends one command on a connection of its own and returns the raw answer (of one read).
    ///
    /// # Errors
    /// If no answer came within 2 s.
    pub fn command(&self, words: &[&str]) -> Result<String, Failure> {
        command(self.address, words)
    }
}

/// Settings for TLS on `port` beside the plain port, with the certificate of `files`; nobody needs to show one.
pub(crate) fn tls_settings(files: &Certificates, port: u16) -> Vec<(&'static str, String)> {
    let path = |file: &str| files.path(file).display().to_string();
    vec![
        ("tls-port", port.to_string()),
        ("tls-cert-file", path("server.crt")),
        ("tls-key-file", path("server.key")),
        ("tls-ca-cert-file", path("ca.pem")),
        ("tls-auth-clients", "no".to_owned()),
    ]
}

pub(crate) fn as_arguments(settings: Vec<(&'static str, String)>) -> impl Iterator<Item = String> {
    settings.into_iter().flat_map(|(key, value)| [format!("--{key}"), value])
}

pub(crate) fn program() -> String {
    std::env::var("LAB_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned())
}

pub(crate) fn command(address: SocketAddr, words: &[&str]) -> Result<String, Failure> {
    let limit = Duration::from_secs(2);
    let mut stream = TcpStream::connect_timeout(&address, limit)?;
    stream.set_read_timeout(Some(limit))?;
    let mut request = format!("*{}\r\n", words.len());
    for word in words {
        request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    stream.write_all(request.as_bytes())?;
    let mut answer = vec![0; 64 * 1024];
    let read = stream.read(&mut answer)?;
    if read == 0 {
        return Err(Failure::new("the connection was closed"));
    }
    answer.truncate(read);
    String::from_utf8(answer).map_err(|_| Failure::new("an answer that is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mood, Proxy};

    #[test]
    fn it_starts_freezes_dies_and_comes_back() {
        let mut redis = Redis::start().unwrap();
        assert_eq!(redis.command(&["SET", "a", "1"]).unwrap(), "+OK\r\n");
        redis.server().stop();
        assert!(redis.command(&["GET", "a"]).is_err());
        redis.server().cont();
        assert_eq!(redis.command(&["GET", "a"]).unwrap(), "$1\r\n1\r\n");
        redis.server_mut().kill();
        assert!(redis.command(&["GET", "a"]).is_err());
        redis.restart().unwrap();
        assert_eq!(redis.command(&["GET", "a"]).unwrap(), "$-1\r\n", "it keeps nothing");
    }

    #[test]
    fn the_proxy_drops_what_it_is_told_to() {
        let redis = Redis::start().unwrap();
        let proxy = Proxy::before(redis.address()).unwrap();
        let through = |words: &[&str]| command((Ipv4Addr::LOCALHOST, proxy.port()).into(), words);
        assert_eq!(through(&["SET", "a", "1"]).unwrap(), "+OK\r\n");
        proxy.set(Mood::DropReplies);
        assert!(through(&["SET", "a", "2"]).is_err());
        assert_eq!(redis.command(&["GET", "a"]).unwrap(), "$1\r\n2\r\n", "it arrived all the same");
        proxy.set(Mood::DropRequests);
        assert!(through(&["SET", "a", "3"]).is_err());
        proxy.set(Mood::Refuse);
        assert!(through(&["PING"]).is_err());
        proxy.set(Mood::Honest);
        assert_eq!(through(&["GET", "a"]).unwrap(), "$1\r\n2\r\n");
    }
}
