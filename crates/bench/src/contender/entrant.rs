//! One who takes part in a case, whether in this process or in one of its own.

use super::outside::Outside;
use super::{Contender, Task, connect, peer, run_tasks, tasks};
use crate::engine::Engine;
use crate::failure::Result;
use crate::measure::{Round, cpu};
use crate::server::{Place, Server};
use std::time::{Duration, Instant};

/// How many tasks lock what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) tasks: usize,
    /// All one name, or each its own.
    pub(crate) shared: bool,
}

enum Means {
    /// The client is kept as long as its tasks.
    Inside {
        _contender: Box<dyn Contender>,
        tasks: Vec<Box<dyn Task>>,
    },
    Outside(Box<Outside>),
}

/// Who takes part.
pub(crate) struct Entrant {
    pub(crate) who: String,
    means: Means,
    shape: Shape,
}

impl Entrant {
    /// Connects it, and lets it lock once, so that nothing is done for the first time when it is measured.
    pub(crate) async fn enter(who: &str, place: &Place, shape: Shape, case: &str) -> Result<Self> {
        let means = if let Some(program) = peer::program(who) {
            Means::Outside(Box::new(Outside::start(&program?, &place.addresses.join(",")).await?))
        } else {
            let contender = connect(who, place).await?;
            let prefix = format!("{case}/{who}").replace(' ', "-");
            let mut tasks = tasks(&*contender, &prefix, shape.tasks, shape.shared).await?;
            for task in &mut tasks {
                task.acquire().await?;
                task.release().await?;
            }
            Means::Inside { _contender: contender, tasks }
        };
        let mut entrant = Self { who: who.to_owned(), means, shape };
        entrant.run(Duration::from_millis(20)).await?;
        Ok(entrant)
    }

    async fn run(&mut self, length: Duration) -> Result<Round> {
        let (started, used) = (Instant::now(), cpu::of_this_process());
        match &mut self.means {
            Means::Inside { tasks, .. } => {
                let (latencies, shares) = run_tasks(tasks, length).await?;
                let (elapsed, client) = (started.elapsed(), cpu::of_this_process() - used);
                Ok(Round { elapsed, client, latencies, shares, ..Round::default() })
            }
            Means::Outside(program) => program.round(self.shape, length).await,
        }
    }

    /// One round of about so long.
    pub(crate) async fn round(&mut self, server: &Server, length: Duration, counted: bool) -> Result<Round> {
        let processes = server.processes();
        let plain = !self.who.starts_with("ours") && !self.who.starts_with("floor");
        let commands_before = if counted { server.commands(plain).await? } else { None };
        let server_before = cpu::of(&processes);
        let mut round = self.run(length).await?;
        round.server = cpu::of(&processes).saturating_sub(server_before);
        if counted {
            round.count(commands_before, server, plain).await?;
        }
        Ok(round)
    }
}

/// All who take part for an engine: ours, the floor twice (how much the two differ is the noise), and the peers.
pub(crate) fn entrants(engine: Engine) -> Vec<&'static str> {
    let mut all = vec!["ours", "floor", "floor again"];
    all.extend(peer::peers(engine));
    all
}
