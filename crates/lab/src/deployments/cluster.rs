//! A Redis Cluster, of which one master can be cut off from all others.

use crate::experiment::{Asked, Deployment, Experiment};
use crate::fault::Fault;
use crate::worker::Work;
use fencelock_lab::{Failure, Network, RedisCluster};
use fencelock_testkit::history::Property;
use std::time::{Duration, Instant};

/// How long a lock is held at the least where a master is cut off.
const LEAST_HELD: Duration = Duration::from_secs(6);

struct Cluster {
    cluster: RedisCluster,
    network: Option<Network>,
    hurt: Option<usize>,
}

impl Cluster {
    /// The master that has the locks' slot.
    fn master(&self) -> Result<usize, Failure> {
        let end = Instant::now() + Duration::from_secs(20);
        let says = |at: usize, words: &[&str], what: &str| {
            let answer = self.cluster.nodes().get(at).map(|node| node.command(words));
            answer.is_some_and(|answer| answer.is_ok_and(|answer| answer.contains(what)))
        };
        while Instant::now() < end {
            let has_locks = |at: &usize| {
                says(*at, &["INFO", "replication"], "role:master") && says(*at, &["KEYS", "*:fence"], ":fence")
            };
            if let Some(master) = (0..self.cluster.nodes().len()).find(has_locks) {
                return Ok(master);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(Failure::new("no master has the locks"))
    }

    fn cut(&self, verb: fn(&Network, usize, usize) -> Result<(), Failure>, master: usize) -> Result<(), Failure> {
        let network = self.network.as_ref().ok_or_else(|| Failure::new("the nodes share a host"))?;
        (0..self.cluster.nodes().len()).filter(|at| *at != master).try_for_each(|at| verb(network, master, at))
    }
}

impl Deployment for Cluster {
    fn url(&mut self, _worker: u32) -> Result<String, Failure> {
        let nodes: Vec<_> = self.cluster.addresses().iter().map(ToString::to_string).collect();
        Ok(format!("redis+cluster://{}", nodes.join(",")))
    }

    fn hurt(&mut self, fault: Fault, _worker: u32) -> Result<(), Failure> {
        match fault {
            Fault::ServersStopped => self.cluster.stop(),
            Fault::LeaderKilled => {
                let master = self.master()?;
                if let Some(node) = self.cluster.nodes_mut().get_mut(master) {
                    node.server_mut().kill();
                }
                self.hurt = Some(master);
            }
            Fault::LeaderStopped => {
                let master = self.master()?;
                self.cluster.nodes().iter().skip(master).take(1).for_each(|node| node.server().stop());
                self.hurt = Some(master);
            }
            // Its clients reach it, and it goes on for as long as it waits for the others.
            Fault::LeaderIsolated => {
                // The holder may have begun just now: what counts is who comes next.
                std::thread::sleep(LEAST_HELD.saturating_sub(Duration::from_secs(1)));
                let master = self.master()?;
                self.cut(Network::separate, master)?;
                self.hurt = Some(master);
            }
            other => return Err(Failure::new(format!("a Cluster does not suffer {other} here"))),
        }
        Ok(())
    }

    fn mend(&mut self, fault: Fault, _worker: u32) -> Result<(), Failure> {
        match (fault, self.hurt.take()) {
            (Fault::ServersStopped, _) => self.cluster.cont(),
            (Fault::LeaderKilled, Some(master)) => {
                if let Some(node) = self.cluster.nodes_mut().get_mut(master) {
                    node.restart()?;
                }
            }
            (Fault::LeaderStopped, Some(master)) => {
                self.cluster.nodes().iter().skip(master).take(1).for_each(|node| node.server().cont());
            }
            (Fault::LeaderIsolated, Some(master)) => self.cut(Network::reunite, master)?,
            _ => {}
        }
        Ok(())
    }
}

fn start() -> Result<Box<dyn Deployment>, Failure> {
    Ok(Box::new(Cluster { cluster: RedisCluster::start()?, network: None, hurt: None }))
}

/// A master is given up after 4 s, and goes on for as long without the others.
fn start_apart() -> Result<Box<dyn Deployment>, Failure> {
    let network = Network::of(6)?;
    let cluster = RedisCluster::start_in(&network, Duration::from_secs(4))?;
    Ok(Box::new(Cluster { cluster, network: Some(network), hurt: None }))
}

pub(super) fn experiments() -> Vec<Experiment> {
    let second = Duration::from_secs(1);
    let of = |fault| Experiment::new("redis", "Cluster", fault, start).with_ttl(second * 2);
    // Whoever is granted the lock while nobody else hears of it holds it when the replica has been elected.
    // By then what the replica knows of the holder before has run out, and is in nobody's way.
    let apart = Experiment::new("redis", "Cluster, six hosts", Fault::LeaderIsolated, start_apart);
    let apart = apart.with_ttl(second * 6).with_served_within(second * 20).with_work(Work::beset(6_000, 9_000));
    let apart = apart.with_workers(8).with_rounds(4, 1);
    vec![
        of(Fault::HolderKilled),
        of(Fault::HolderStoppedLong),
        of(Fault::ServersStopped),
        of(Fault::LeaderKilled).with_times(second * 5, second * 4).with_rounds(3, 2),
        of(Fault::LeaderStopped).with_times(second * 5, second * 4).with_rounds(3, 2),
        apart.with_times(second * 10, second * 6).breaks([Asked::Of(Property::E1)]),
    ]
}
