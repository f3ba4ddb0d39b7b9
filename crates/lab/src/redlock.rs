//! Independent Redis servers, for Redlock.

use crate::faketime::Clock;
use crate::free_port;
use crate::process::{Failure, Server};
use crate::redis::{DURABLE, Redis, program};
use std::net::Ipv4Addr;

const VOLATILE: [&str; 4] = ["--save", "", "--appendonly", "no"];

/// Servers that know nothing of each other.
#[derive(Debug)]
pub struct RedisNodes {
    nodes: Vec<Redis>,
    clocks: Vec<Clock>,
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
        Self::start_clocked(count, &VOLATILE)
    }

    /// The same, where every command is written and synced before it is answered.
    ///
    /// # Errors
    /// If one does not come up.
    pub fn start_durable_with_clocks(count: usize) -> Result<Self, Failure> {
        Self::start_clocked(count, &DURABLE)
    }

    fn start_clocked(count: usize, settings: &[&str]) -> Result<Self, Failure> {
        let (mut nodes, mut clocks) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let server = Server::new("env", "libfaketime")?;
            let clock = Clock::in_folder(server.folder())?;
            let server = server.with_arguments(clock.environment()).with_arguments([program()]);
            let address = (Ipv4Addr::LOCALHOST, free_port()).into();
            nodes.push(Redis::start_by(server, address, settings.iter().copied())?);
            clocks.push(clock);
        }
        Ok(Self { nodes, clocks })
    }

    /// Steps a node's wall clock by `seconds`, forward or back.
    ///
    /// # Errors
    /// If the nodes were not started with clocks, or it has none at this place.
    pub fn jump(&self, at: usize, seconds: i32) -> Result<(), Failure> {
        self.clock(at)?.step(seconds)
    }

    /// A node's clock.
    ///
    /// # Errors
    /// If the nodes were not started with clocks, or it has none at this place.
    pub fn clock(&self, at: usize) -> Result<&Clock, Failure> {
        self.clocks.get(at).ok_or_else(|| Failure::new("this node's clock cannot be set"))
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
