//! ZooKeeper: one server, and three on hosts of their own.

use super::about_its_ttl;
use super::ways::Ways;
use crate::experiment::{Asked, Deployment, Experiment, fenced, gated, paused, paused_write_only};
use crate::fault::Fault;
use crate::worker::Work;
use fencelock_lab::{Ensemble, Failure, Network, ZooKeeper, ZooKeeperSettings};
use fencelock_testkit::history::Property;
use std::collections::HashMap;
use std::time::Duration;

struct One {
    server: ZooKeeper,
    ways: Ways,
}

impl Deployment for One {
    fn url(&mut self, worker: u32) -> Result<String, Failure> {
        Ok(format!("zookeeper://127.0.0.1:{}?session=3s", self.ways.to(self.server.address(), worker)?))
    }

    fn hurt(&mut self, fault: Fault, worker: u32) -> Result<(), Failure> {
        match fault {
            Fault::ServersStopped => self.server.server().stop(),
            Fault::ServerRestarted => {
                self.server.server_mut().kill();
                self.server.restart()?;
            }
            Fault::ServerWiped => self.server.wipe()?,
            other if self.ways.hurt(other, worker) => {}
            other => return Err(Failure::new(format!("one ZooKeeper does not suffer {other}"))),
        }
        Ok(())
    }

    fn mend(&mut self, fault: Fault, _worker: u32) -> Result<(), Failure> {
        match fault {
            Fault::ServersStopped => self.server.server().cont(),
            _ => self.ways.mend(),
        }
        Ok(())
    }
}

/// Three servers; on hosts of their own, with each worker at one of them alone.
struct Three {
    ensemble: Ensemble,
    network: Option<Network>,
    ways: Ways,
    session: &'static str,
    /// No worker is at the leader, so that a follower can be cut off whoever holds.
    spares_leader: bool,
    /// The member that each worker is at.
    at: HashMap<u32, usize>,
    hurt: Option<(usize, usize)>,
}

impl Deployment for Three {
    fn url(&mut self, worker: u32) -> Result<String, Failure> {
        if self.network.is_none() {
            let members: Vec<_> = self.ensemble.members().iter().map(ZooKeeper::address).collect();
            return Ok(format!("zookeeper://{}?session={}", self.ways.all_to(members, worker)?, self.session));
        }
        let mut at = worker as usize % 3;
        if self.spares_leader && at == self.ensemble.wait_for_leader()? {
            at = (at + 1) % 3;
        }
        self.at.insert(worker, at);
        let member = self.ensemble.members().get(at).ok_or_else(|| Failure::new("no such member"))?;
        Ok(format!("zookeeper://{}?session={}&request_timeout=2s", member.address(), self.session))
    }

    fn hurt(&mut self, fault: Fault, worker: u32) -> Result<(), Failure> {
        match fault {
            Fault::ServersStopped => self.ensemble.members().iter().for_each(|member| member.server().stop()),
            Fault::ServerRestarted => {
                if let Some(member) = self.ensemble.members_mut().get_mut(worker as usize % 3) {
                    member.server_mut().kill();
                    member.restart()?;
                }
            }
            Fault::LeaderKilled | Fault::LeaderStopped | Fault::LeaderIsolated | Fault::FollowerCut => {
                let leader = self.ensemble.wait_for_leader()?;
                self.hurt_at(fault, leader, worker)?;
            }
            other if self.ways.hurt(other, worker) => {}
            other => return Err(Failure::new(format!("an ensemble does not suffer {other} here"))),
        }
        Ok(())
    }

    fn mend(&mut self, fault: Fault, _worker: u32) -> Result<(), Failure> {
        match (fault, self.hurt.take()) {
            (Fault::ServersStopped, _) => self.ensemble.members().iter().for_each(|member| member.server().cont()),
            (Fault::LeaderKilled, _) => self.ensemble.launch()?,
            (Fault::LeaderStopped, Some((leader, _))) => {
                self.ensemble.members().iter().skip(leader).take(1).for_each(|member| member.server().cont());
            }
            (Fault::LeaderIsolated, Some((leader, _))) => self.cut(Network::reunite, leader)?,
            (Fault::FollowerCut, Some((follower, leader))) => self.network()?.reunite(follower, leader)?,
            _ => self.ways.mend(),
        }
        Ok(())
    }
}

impl Three {
    fn of(ensemble: Ensemble, network: Option<Network>, session: &'static str) -> Self {
        let (ways, at) = (Ways::default(), HashMap::new());
        Self { ensemble, network, ways, session, spares_leader: false, at, hurt: None }
    }

    fn network(&self) -> Result<&Network, Failure> {
        self.network.as_ref().ok_or_else(|| Failure::new("the members share a host"))
    }

    fn cut(&self, verb: fn(&Network, usize, usize) -> Result<(), Failure>, leader: usize) -> Result<(), Failure> {
        let network = self.network()?;
        (0..3).filter(|at| *at != leader).try_for_each(|at| verb(network, leader, at))
    }

    fn hurt_at(&mut self, fault: Fault, leader: usize, worker: u32) -> Result<(), Failure> {
        self.hurt = Some((leader, leader));
        if fault == Fault::FollowerCut {
            // The one that the holder is at, unless it leads.
            let at = self.at.get(&worker).copied().unwrap_or_default();
            let follower = if at == leader { (leader + 1) % 3 } else { at };
            self.hurt = Some((follower, leader));
            return self.network()?.separate(follower, leader);
        }
        if fault == Fault::LeaderIsolated {
            return self.cut(Network::separate, leader);
        }
        if let Some(member) = self.ensemble.members_mut().get_mut(leader) {
            if fault == Fault::LeaderKilled {
                member.server_mut().kill();
            } else {
                member.server().stop();
            }
        }
        Ok(())
    }
}

fn start_one() -> Result<Box<dyn Deployment>, Failure> {
    Ok(Box::new(One { server: ZooKeeper::start()?, ways: Ways::default() }))
}

fn start_three() -> Result<Box<dyn Deployment>, Failure> {
    Ok(Box::new(Three::of(Ensemble::start(3)?, None, "6s")))
}

/// A follower answers for 5 s without its leader.
fn apart(session: &'static str) -> Result<Three, Failure> {
    let network = Network::of(3)?;
    let settings = ZooKeeperSettings::default().with_tick(500).with_sync_limit(10);
    let ensemble = Ensemble::start_in(&network, &settings)?;
    Ok(Three::of(ensemble, Some(network), session))
}

fn start_long() -> Result<Box<dyn Deployment>, Failure> {
    Ok(Box::new(apart("15s")?))
}

/// As the three on one host, which is where they are one.
fn start_near() -> Result<Box<dyn Deployment>, Failure> {
    let network = Network::of(3)?;
    let ensemble = Ensemble::start_in(&network, &ZooKeeperSettings::default())?;
    Ok(Box::new(Three::of(ensemble, Some(network), "6s")))
}

fn start_short() -> Result<Box<dyn Deployment>, Failure> {
    Ok(Box::new(Three { spares_leader: true, ..apart("4s")? }))
}

pub(super) fn experiments() -> Vec<Experiment> {
    let second = Duration::from_secs(1);
    let one = |fault| Experiment::new("zookeeper", "one server", fault, start_one).with_ttl(second * 2);
    let three = |fault| Experiment::new("zookeeper", "three servers", fault, start_three).with_ttl(second * 3);
    let work = Work { hold: (8_000, 10_000), long: 0, ..Work::default() };
    let apart = |fault, deployment, start, ttl: Duration| {
        let cut = Experiment::new("zookeeper", deployment, fault, start).with_ttl(ttl);
        cut.with_work(work).with_times(second * 16, second * 10).with_served_within(second * 40).with_rounds(3, 2)
    };
    let long = |fault| {
        let experiment = apart(fault, "three hosts, session 15 s", start_long, second * 5);
        experiment.with_work(Work { hold: (18_000, 20_000), ..work }).holds(fenced())
    };
    let near = |fault| {
        let experiment = Experiment::new("zookeeper", "three hosts, session 6 s", fault, start_near);
        let experiment = experiment.with_ttl(second * 3).with_times(second * 12, second * 5).with_rounds(3, 2);
        experiment.with_served_within(second * 20).holds(fenced())
    };
    let short = |fault| {
        let experiment = Experiment::new("zookeeper", "three hosts, session 4 s", fault, start_short);
        experiment.with_ttl(second * 4).with_rounds(3, 2).with_served_within(second * 20)
    };
    let fifo = [Asked::Of(Property::Fifo)];
    let served = second * 20;
    vec![
        one(Fault::HolderKilled).holds(fenced()).holds(fifo).with_rounds(4, 2).with_served_within(second * 12),
        one(Fault::HolderStoppedShort).holds(fenced()).with_rounds(4, 2),
        about_its_ttl(one(Fault::HolderStoppedLong).holds(fenced())).with_rounds(4, 2),
        paused(one(Fault::HolderStoppedLong).holds(fenced())).with_rounds(4, 3).quick(),
        // As long as its session, or nobody is granted the lock before it goes on.
        paused_write_only(one(Fault::HolderStoppedLong).with_ttl(second * 3)),
        one(Fault::HolderCut).holds(fenced()),
        one(Fault::RepliesDropped).holds(fenced()),
        one(Fault::RequestsDelayed).holds(fenced()),
        one(Fault::ServersStopped).holds(fenced()),
        one(Fault::ServerRestarted).holds(fenced()),
        one(Fault::ServerWiped)
            .with_work(Work::beset(1_000, 3_000))
            .with_rounds(4, 2)
            .breaks([Asked::Of(Property::K2)]),
        three(Fault::HolderKilled).holds(fenced()).holds(fifo).with_rounds(4, 2).with_served_within(served),
        paused(three(Fault::HolderStoppedLong).holds(fenced())).with_rounds(4, 3).with_served_within(served),
        three(Fault::HolderCut).holds(fenced()).with_rounds(4, 2).with_served_within(served),
        three(Fault::RepliesDropped).holds(fenced()).with_rounds(4, 2).with_served_within(served),
        three(Fault::RequestsDelayed).holds(fenced()).with_rounds(4, 2).with_served_within(served),
        three(Fault::ServersStopped).holds(fenced()).with_rounds(4, 2).with_served_within(served),
        three(Fault::ServerRestarted).holds(fenced()).with_rounds(4, 2).with_served_within(served),
        three(Fault::LeaderKilled).holds(fenced()).with_rounds(3, 2).with_served_within(served).quick(),
        three(Fault::LeaderStopped).holds(fenced()).with_rounds(3, 2).with_served_within(served),
        long(Fault::FollowerCut),
        // A new leader counts sessions anew: what is held at the old one is free after 15 s.
        long(Fault::LeaderIsolated).with_times(second * 30, second * 10).with_rounds(2, 2),
        long(Fault::LeaderKilled),
        // For longer than the session, so that there is somebody else when it goes on.
        paused(long(Fault::HolderStoppedLong)).with_times(second * 20, second * 5).with_rounds(3, 2),
        near(Fault::LeaderIsolated),
        near(Fault::FollowerCut),
        short(Fault::HolderKilled),
        short(Fault::LeaderKilled),
        // Held long enough for the session to end behind the holder's back, whenever that begins.
        apart(Fault::FollowerCut, "three hosts, session 4 s", start_short, second * 4)
            .with_work(Work { hold: (14_000, 16_000), ..work })
            .holds(gated())
            .breaks([Asked::Of(Property::E1)]),
    ]
}
