//! Redlock: five independent nodes, durable, or on clocks that can be set.

use crate::experiment::{Asked, Deployment, Experiment, fenced, gated, paused};
use crate::fault::Fault;
use crate::worker::Work;
use fencelock::EngineUrl;
use fencelock::redlock::{RedlockConfig, RedlockOperator};
use fencelock_lab::{Failure, RedisNodes};
use fencelock_testkit::history::Property;
use std::time::Duration;

struct Nodes {
    nodes: RedisNodes,
    offset: i64,
    next: usize,
    hurt: Option<usize>,
}

impl Nodes {
    fn begin(nodes: RedisNodes) -> Result<Box<dyn Deployment>, Failure> {
        let set = Self { nodes, offset: 0, next: 0, hurt: None };
        set.operate(async |operator| operator.init(0).await.map(|_| ()))?;
        Ok(Box::new(set))
    }

    fn operate(&self, verb: impl AsyncFnOnce(RedlockOperator) -> fencelock::Result<()>) -> Result<(), Failure> {
        let url = EngineUrl::parse(&format!("redlock://{}", self.nodes.addresses())).map_err(told)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let operated = async { verb(RedlockConfig::from_url(&url).and_then(RedlockOperator::new)?).await };
        runtime.block_on(operated).map_err(told)
    }

    /// The minority that is hurt next.
    fn turn(&mut self) -> usize {
        self.next = (self.next + 1) % self.nodes.nodes().len();
        self.hurt = Some(self.next);
        self.next
    }

    /// Kills a node, and gives it back without anything that it knew.
    fn wipe(&mut self, at: usize) -> Result<String, Failure> {
        let node = self.nodes.nodes_mut().get_mut(at).ok_or_else(|| Failure::new("no such node"))?;
        node.server_mut().kill();
        let _ = std::fs::remove_dir_all(node.server().folder().join("appendonlydir"));
        node.restart()?;
        Ok(node.address().to_string())
    }
}

fn told(e: fencelock::Error) -> Failure {
    Failure::new(e.to_string())
}

impl Deployment for Nodes {
    fn url(&mut self, _worker: u32) -> Result<String, Failure> {
        Ok(format!("redlock://{}", self.nodes.addresses()))
    }

    fn hurt(&mut self, fault: Fault, _worker: u32) -> Result<(), Failure> {
        match fault {
            Fault::ServersStopped => self.nodes.nodes().iter().for_each(|node| node.server().stop()),
            Fault::ServerRestarted => {
                let at = self.turn();
                if let Some(node) = self.nodes.nodes_mut().get_mut(at) {
                    node.server_mut().kill();
                }
            }
            Fault::ReplacedAfterDelay => {
                let at = self.turn();
                let address = self.wipe(at)?;
                self.operate(async |operator| operator.reseed(&address, Duration::from_secs(5)).await.map(|_| ()))?;
            }
            Fault::ClockForward => {
                self.offset += 60;
                (0..3).try_for_each(|at| self.nodes.jump(at, self.offset))?;
            }
            other => return Err(Failure::new(format!("Redlock does not suffer {other}"))),
        }
        Ok(())
    }

    fn mend(&mut self, fault: Fault, _worker: u32) -> Result<(), Failure> {
        match (fault, self.hurt.take()) {
            (Fault::ServersStopped, _) => self.nodes.nodes().iter().for_each(|node| node.server().cont()),
            (Fault::ServerRestarted, Some(at)) => {
                if let Some(node) = self.nodes.nodes_mut().get_mut(at) {
                    node.restart()?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn start_durable() -> Result<Box<dyn Deployment>, Failure> {
    Nodes::begin(RedisNodes::start_durable(5)?)
}

fn start_clocked() -> Result<Box<dyn Deployment>, Failure> {
    Nodes::begin(RedisNodes::start_with_clocks(5)?)
}

pub(super) fn experiments() -> Vec<Experiment> {
    let durable = |fault| Experiment::new("redlock", "five nodes, AOF always", fault, start_durable).holds(fenced());
    let clocked = |fault| Experiment::new("redlock", "five nodes, clocks that are set", fault, start_clocked);
    vec![
        durable(Fault::HolderKilled),
        paused(durable(Fault::HolderStoppedLong)).quick(),
        durable(Fault::ServersStopped),
        durable(Fault::ServerRestarted).quick(),
        durable(Fault::ReplacedAfterDelay).with_rounds(3, 2),
        clocked(Fault::ClockForward)
            .with_work(Work::beset(200, 600))
            .holds(gated())
            .breaks([Asked::Of(Property::E1)])
            .with_rounds(4, 2)
            .quick(),
    ]
}
