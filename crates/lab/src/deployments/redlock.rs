//! Redlock: five independent nodes, durable, or on clocks that can be set.

use super::about_its_ttl;
use super::ways::Ways;
use crate::experiment::{Asked, Deployment, Experiment, fenced, paused};
use crate::fault::Fault;
use crate::worker::Work;
use fencelock::EngineUrl;
use fencelock::redlock::{RedlockConfig, RedlockOperator};
use fencelock_lab::{Clock, Failure, Redis, RedisNodes};
use fencelock_testkit::history::Property;
use std::time::Duration;

/// Beyond the ttl, so that nothing is left of locks that are not renewed.
const BEYOND: Duration = Duration::from_millis(6_500);
const TTL: Duration = Duration::from_secs(6);

struct Nodes {
    nodes: RedisNodes,
    ways: Ways,
    /// How many nodes' clocks are set together, and how fast.
    clocks: usize,
    speed: u32,
    next: usize,
    hurt: Option<usize>,
}

impl Nodes {
    fn begin(nodes: RedisNodes) -> Result<Box<dyn Deployment>, Failure> {
        Self::begin_with(nodes, 0, 1)
    }

    fn begin_with(nodes: RedisNodes, clocks: usize, speed: u32) -> Result<Box<dyn Deployment>, Failure> {
        let set = Self { nodes, ways: Ways::default(), clocks, speed, next: 0, hurt: None };
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

    fn node(&mut self, at: usize) -> Result<&mut Redis, Failure> {
        let count = self.nodes.nodes().len();
        self.nodes.nodes_mut().get_mut(at % count).ok_or_else(|| Failure::new("no such node"))
    }

    /// Whoever holds now holds on three nodes alone, of which one is replaced: it has the
    /// counters of another, as if they had been given to it at once, and no locks.
    /// The holder hears of nothing meanwhile, and has until its deadline, as whoever is cut off.
    fn replace_at_once(&mut self, holder: u32) -> Result<(), Failure> {
        let first = self.turn();
        for away in [first, first + 1] {
            self.node(away)?.server_mut().kill();
        }
        std::thread::sleep(BEYOND);
        for back in [first, first + 1] {
            self.node(back)?.restart()?;
        }
        // Everybody finds them again.
        std::thread::sleep(Duration::from_millis(1_500));
        self.ways.hurt(Fault::HolderCut, holder);
        let count = self.nodes.nodes().len();
        let (replaced, other) = ((first + 2) % count, (first + 3) % count);
        let nodes = self.nodes.nodes_mut();
        let [replaced, other] = nodes.get_disjoint_mut([replaced, other]).map_err(|e| Failure::new(e.to_string()))?;
        replaced.restart_as_copy_of(other)?;
        let locks = "for _, key in ipairs(redis.call('KEYS', '*:lock:*')) do redis.call('DEL', key) end";
        // It is some work among so many counters.
        let mut told = replaced.command(&["EVAL", locks, "0"]);
        for _ in 0..5 {
            told = told.or_else(|_| replaced.command(&["EVAL", locks, "0"]));
        }
        told.map(|_| ())
    }

    fn set_clocks(&self, set: impl Fn(&Clock) -> Result<(), Failure>) -> Result<(), Failure> {
        (0..self.clocks).try_for_each(|at| set(self.nodes.clock(at)?))
    }
}

fn told(e: fencelock::Error) -> Failure {
    Failure::new(e.to_string())
}

impl Deployment for Nodes {
    fn url(&mut self, worker: u32) -> Result<String, Failure> {
        let nodes: Vec<_> = self.nodes.nodes().iter().map(Redis::address).collect();
        Ok(format!("redlock://{}", self.ways.all_to(nodes, worker)?))
    }

    fn hurt(&mut self, fault: Fault, worker: u32) -> Result<(), Failure> {
        match fault {
            Fault::ServersStopped => self.nodes.nodes().iter().for_each(|node| node.server().stop()),
            Fault::ServerRestarted => {
                let at = self.turn();
                self.node(at)?.server_mut().kill();
            }
            Fault::ServerWiped => {
                let at = self.turn();
                self.node(at)?.wipe()?;
            }
            Fault::ReplacedAtOnce => self.replace_at_once(worker)?,
            Fault::ReplacedAfterDelay => {
                let at = self.turn();
                let node = self.node(at)?;
                node.wipe()?;
                let address = node.address().to_string();
                self.operate(async |operator| operator.reseed(&address, Duration::from_secs(5)).await.map(|_| ()))?;
            }
            Fault::ClockForward => self.set_clocks(|clock| clock.step(60))?,
            Fault::ClockBack => self.set_clocks(|clock| clock.step(-60))?,
            Fault::ClockFast => self.set_clocks(|clock| clock.run_at(self.speed))?,
            other if self.ways.hurt(other, worker) => {}
            other => return Err(Failure::new(format!("Redlock does not suffer {other}"))),
        }
        Ok(())
    }

    fn mend(&mut self, fault: Fault, _worker: u32) -> Result<(), Failure> {
        match (fault, self.hurt.take()) {
            (Fault::ServersStopped, _) => self.nodes.nodes().iter().for_each(|node| node.server().cont()),
            (Fault::ServerRestarted, Some(at)) => self.node(at)?.restart()?,
            // Nothing is given to it but its address: it has no counters, and does not vote.
            (Fault::ServerWiped, Some(at)) => {
                let address = self.node(at)?.address().to_string();
                self.operate(async |operator| operator.reseed(&address, Duration::from_secs(5)).await.map(|_| ()))?;
            }
            (Fault::ClockFast, _) => self.set_clocks(|clock| clock.run_at(1))?,
            _ => self.ways.mend(),
        }
        Ok(())
    }
}

fn start_durable() -> Result<Box<dyn Deployment>, Failure> {
    Nodes::begin(RedisNodes::start_durable(5)?)
}

fn clocked(clocks: usize, speed: u32) -> Result<Box<dyn Deployment>, Failure> {
    Nodes::begin_with(RedisNodes::start_durable_with_clocks(5)?, clocks, speed)
}

fn start_two_clocked() -> Result<Box<dyn Deployment>, Failure> {
    clocked(2, 4)
}

fn start_three_clocked() -> Result<Box<dyn Deployment>, Failure> {
    clocked(3, 2)
}

fn start_three_fast() -> Result<Box<dyn Deployment>, Failure> {
    clocked(3, 4)
}

pub(super) fn experiments() -> Vec<Experiment> {
    let durable = |fault| Experiment::new("redlock", "five nodes, AOF always", fault, start_durable).holds(fenced());
    let at_clocks = |fault, start| {
        let experiment = Experiment::new("redlock", "five nodes, clocks that are set", fault, start);
        experiment.with_work(Work::beset(200, 600)).with_rounds(4, 2)
    };
    // Two majorities may have no node in common but one whose clock is wrong.
    let minority = |fault| at_clocks(fault, start_two_clocked).called("of two nodes");
    let majority = |fault| at_clocks(fault, start_three_clocked).called("of three nodes");
    let (twice, second) = ([Asked::Of(Property::E1)], Duration::from_secs(1));
    let replaced = Experiment::new("redlock", "five nodes, AOF always", Fault::ReplacedAtOnce, start_durable);
    let replaced = replaced
        .with_ttl(TTL)
        .with_work(Work::beset(20_000, 26_000))
        .with_workers(6)
        .with_rounds(4, 1)
        .with_times(TTL, TTL);
    vec![
        durable(Fault::HolderKilled),
        paused(durable(Fault::HolderStoppedLong)).quick(),
        durable(Fault::HolderStoppedShort),
        about_its_ttl(durable(Fault::HolderStoppedLong)),
        durable(Fault::HolderCut),
        durable(Fault::RepliesDropped),
        durable(Fault::RequestsDelayed),
        durable(Fault::VotesSplit)
            .with_work(Work { long: 0, ..Work::default() })
            .with_times(second * 4, second)
            .with_rounds(3, 2),
        durable(Fault::ServersStopped),
        durable(Fault::ServerRestarted).with_times(Duration::from_secs(2), Duration::from_secs(2)).quick(),
        durable(Fault::ServerWiped).with_times(Duration::from_secs(2), Duration::from_secs(2)).with_rounds(3, 2),
        durable(Fault::ReplacedAfterDelay).with_rounds(3, 2),
        replaced.breaks(twice),
        minority(Fault::ClockForward),
        minority(Fault::ClockBack).holds(fenced()),
        minority(Fault::ClockFast)
            .called("of two nodes, four times as fast")
            // The more contend, the more hold by a bare majority: then it grants twice, which is not for certain.
            .with_workers(8)
            .with_rounds(6, 2),
        majority(Fault::ClockForward).breaks(twice).quick(),
        majority(Fault::ClockBack).holds(fenced()),
        // Renewed after a third of the ttl, it is in time, unless a renewal is late.
        majority(Fault::ClockFast).called("of three nodes, twice as fast"),
        at_clocks(Fault::ClockFast, start_three_fast).called("of three nodes, four times as fast").breaks(twice),
    ]
}
