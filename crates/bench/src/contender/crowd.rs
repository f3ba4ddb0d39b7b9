//! Several processes of one contender, one task each, all on one name.

use super::outside::{Outside, Program};
use super::{Shape, peer};
use crate::failure::Result;
use crate::measure::{Round, cpu};
use crate::server::{Place, Server};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

pub(crate) struct Crowd {
    processes: Vec<Outside>,
    /// Whether what it sends to Redis is plain commands.
    plain: bool,
}

const ALL_ONE_NAME: Shape = Shape { tasks: 1, shared: true };

impl Crowd {
    pub(crate) async fn gather(who: &str, place: &Place, count: usize) -> Result<Self> {
        let (program, servers) = match peer::program(who) {
            Some(program) => (program?, place.addresses.join(",")),
            None => (own(who, place)?, place.url.clone()),
        };
        // Side by side: much of connecting is waiting.
        let mut starting = JoinSet::new();
        for _ in 0..count {
            let (program, servers) = (program.clone(), servers.clone());
            starting.spawn(async move { Outside::start(&program, &servers).await });
        }
        let mut processes = Vec::new();
        while let Some(started) = starting.join_next().await {
            processes.push(started??);
        }
        let mut crowd = Self { processes, plain: who != "ours" };
        // Connections are opened, scripts loaded, queues made.
        crowd.run(Duration::from_millis(20)).await?;
        Ok(crowd)
    }

    async fn run(&mut self, length: Duration) -> Result<Round> {
        let started = Instant::now();
        for process in &mut self.processes {
            process.begin(ALL_ONE_NAME, length).await?;
        }
        let mut all = Round::default();
        for process in &mut self.processes {
            let round = process.ended(length).await?;
            all.latencies.merge(&round.latencies);
            all.shares.push(round.latencies.total());
            all.client += round.client;
        }
        all.elapsed = started.elapsed();
        Ok(all)
    }

    pub(crate) async fn round(&mut self, server: &Server, length: Duration) -> Result<Round> {
        let servers = server.processes();
        let ids: Vec<u32> = self.processes.iter().filter_map(Outside::id).collect();
        let before = server.commands(self.plain).await?;
        let (server_before, clients_before) = (cpu::of(&servers), cpu::of(&ids));
        let mut round = self.run(length).await?;
        round.server = cpu::of(&servers).saturating_sub(server_before);
        if round.client.is_zero() {
            round.client = cpu::of(&ids).saturating_sub(clients_before);
        }
        round.count(before, server, self.plain).await?;
        Ok(round)
    }
}

/// This program as a client of its own.
pub(crate) fn own(who: &str, place: &Place) -> Result<Program> {
    let program = std::env::current_exe()?.display().to_string();
    let words = [program.as_str(), "client", place.engine.name(), who];
    Ok(Program { words: words.iter().map(|word| (*word).to_owned()).collect(), ..Program::default() })
}
