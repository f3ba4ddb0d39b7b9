//! Independent Redis servers, for Redlock.

use crate::free_port;
use crate::process::{Failure, Server};
use crate::redis::{Redis, program};
use std::path::PathBuf;

const VOLATILE: [&str; 4] = ["--save", "", "--appendonly", "no"];
const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";
/// Its own allocator reads the clock while it starts, and hangs; the C library's does not.
const LIBC: &str = "/lib/x86_64-linux-gnu/libc.so.6";

/// Servers that know nothing of each other.
#[derive(Debug)]
pub struct RedisNodes {
    nodes: Vec<Redis>,
    clocks: Vec<PathBuf>,
}

impl RedisNodes {
    /// `count` servers without persistence.
    ///
    /// # Errors
    /// If one does not come up.
    pub fn start(count: usize) -> Result<Self, Failure> {
        let nodes = (0..count).map(|_| Redis::start()).collect::<Result<_, _>>()?;
        Ok(Self { nodes, clocks: Vec::new() })
    }

    /// `count` servers that write and sync every command before they answer.
    ///
    /// # Errors
    /// If one does not come up.
    pub fn start_durable(count: usize) -> Result<Self, Failure> {
        let nodes = (0..count).map(|_| Redis::start_durable()).collect::<Result<_, _>>()?;
        Ok(Self { nodes, clocks: Vec::new() })
    }

    /// `count` servers without persistence, whose wall clocks can be [jumped](Self::jump) by libfaketime.
    ///
    /// # Errors
    /// If one does not come up.
    pub fn start_with_clocks(count: usize) -> Result<Self, Failure> {
        if !std::path::Path::new(FAKETIME).exists() {
            return Err(Failure::new(format!("{FAKETIME} (Debian package libfaketime) is missing")));
        }
        let (mut nodes, mut clocks) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let server = Server::new("env", "libfaketime")?;
            let clock = server.folder().join("clock");
            std::fs::write(&clock, "+0\n")?;
            let server = server
                .with_arguments([format!("LD_PRELOAD={FAKETIME} {LIBC}")])
                .with_arguments([format!("FAKETIME_TIMESTAMP_FILE={}", clock.display())])
                .with_arguments(["FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1"])
                .with_arguments([program()]);
            nodes.push(Redis::start_by(server, free_port(), VOLATILE)?);
            clocks.push(clock);
        }
        Ok(Self { nodes, clocks })
    }

    /// Moves a node's wall clock to `seconds` from the true time.
    ///
    /// # Errors
    /// If the nodes were not started with clocks, or it has none at this place.
    pub fn jump(&self, at: usize, seconds: i64) -> Result<(), Failure> {
        self.set_clock(at, &format!("{seconds:+}"))
    }

    /// Sets a node's clock by libfaketime's own words, such as `+0 x2` for double speed.
    ///
    /// # Errors
    /// If its clock cannot be set.
    pub fn set_clock(&self, at: usize, words: &str) -> Result<(), Failure> {
        let clock = self.clocks.get(at).ok_or_else(|| Failure::new("this node's clock cannot be set"))?;
        Ok(std::fs::write(clock, format!("{words}\n"))?)
    }

    /// All nodes.
    #[must_use]
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// All nodes, to kill them.
    pub fn nodes_mut(&mut self) -> &mut [Redis] {
        &mut self.nodes
    }

    /// `host:port` of all, separated by commas, as in a URL.
    #[must_use]
    pub fn addresses(&self) -> String {
        self.nodes.iter().map(|node| node.address().to_string()).collect::<Vec<_>>().join(",")
    }
}
