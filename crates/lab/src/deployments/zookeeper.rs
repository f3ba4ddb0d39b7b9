//! ZooKeeper: one server, and three on hosts of their own.

use super::ways::Ways;
use crate::experiment::{Asked, Deployment, Experiment, fenced, gated, paused, paused_write_only};
use crate::fault::Fault;
use crate::worker::Work;
use fencelock_lab::{Ensemble, Failure, Network, ZooKeeper, ZooKeeperSettings};
use fencelock_testkit::history::Property;
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

/// Three servers, with each worker at one of them alone.
struct Three {
    ensemble: Ensemble,
    network: Option<Network>,
    session: &'static str,
    hurt: Option<(usize, usize)>,
}

impl Deployment for Three {
    fn url(&mut self, worker: u32) -> Result<String, Failure> {
        if self.network.is_none() {
            return Ok(format!("zookeeper://{}?session={}", self.ensemble.addresses(), self.session));
        }
        let member = self.ensemble.members().get(worker as usize % 3).ok_or_else(|| Failure::new("no such member"))?;
        Ok(format!("zookeeper://{}?session={}&request_timeout=2s", member.address(), self.session))
    }

    fn hurt(&mut self, fault: Fault, worker: u32) -> Result<(), Failure> {
        let leader = self.ensemble.wait_for_leader()?;
        match fault {
            Fault::LeaderKilled => {
                if let Some(member) = self.ensemble.members_mut().get_mut(leader) {
                    member.server_mut().kill();
                }
                self.hurt = Some((leader, leader));
            }
            Fault::FollowerCut => {
                // The one that the holder is at, unless it leads.
                let at = worker as usize % 3;
                let follower = if at == leader { (leader + 1) % 3 } else { at };
                self.network.as_ref().map_or(Ok(()), |network| network.separate(follower, leader))?;
                self.hurt = Some((follower, leader));
            }
            other => return Err(Failure::new(format!("an ensemble does not suffer {other} here"))),
        }
        Ok(())
    }

    fn mend(&mut self, fault: Fault, _worker: u32) -> Result<(), Failure> {
        match (fault, self.hurt.take()) {
            (Fault::LeaderKilled, _) => self.ensemble.launch()?,
            (_, Some((follower, leader))) => {
                self.network.as_ref().map_or(Ok(()), |network| network.reunite(follower, leader))?;
            }
            _ => {}
        }
        Ok(())
    }
}

fn start_one() -> Result<Box<dyn Deployment>, Failure> {
    Ok(Box::new(One { server: ZooKeeper::start()?, ways: Ways::default() }))
}

fn start_three() -> Result<Box<dyn Deployment>, Failure> {
    Ok(Box::new(Three { ensemble: Ensemble::start(3)?, network: None, session: "6s", hurt: None }))
}

/// A follower answers for 5 s without its leader.
fn apart(session: &'static str) -> Result<Box<dyn Deployment>, Failure> {
    let network = Network::of(3)?;
    let settings = ZooKeeperSettings::default().with_tick(500).with_sync_limit(10);
    let ensemble = Ensemble::start_in(&network, &settings)?;
    Ok(Box::new(Three { ensemble, network: Some(network), session, hurt: None }))
}

fn start_long() -> Result<Box<dyn Deployment>, Failure> {
    apart("15s")
}

fn start_short() -> Result<Box<dyn Deployment>, Failure> {
    apart("4s")
}

pub(super) fn experiments() -> Vec<Experiment> {
    let second = Duration::from_secs(1);
    let one = |fault| Experiment::new("zookeeper", "one server", fault, start_one).with_ttl(second * 2);
    let three = |fault| Experiment::new("zookeeper", "three servers", fault, start_three).with_ttl(second * 3);
    let work = Work { hold: (8_000, 10_000), long: 0, ..Work::default() };
    let apart = |deployment, start, ttl: Duration| {
        let cut = Experiment::new("zookeeper", deployment, Fault::FollowerCut, start).with_ttl(ttl);
        cut.with_work(work).with_times(second * 16, second * 10).with_served_within(second * 40).with_rounds(3, 2)
    };
    let fifo = [Asked::Of(Property::Fifo)];
    vec![
        one(Fault::HolderKilled).holds(fenced()).holds(fifo).with_rounds(4, 2).with_served_within(second * 12),
        paused(one(Fault::HolderStoppedLong).holds(fenced())).with_rounds(4, 3).quick(),
        paused_write_only(one(Fault::HolderStoppedLong)),
        one(Fault::HolderCut).holds(fenced()),
        one(Fault::RepliesDropped).holds(fenced()),
        one(Fault::RequestsDelayed).holds(fenced()),
        one(Fault::ServersStopped).holds(fenced()),
        one(Fault::ServerRestarted).holds(fenced()),
        three(Fault::LeaderKilled).holds(fenced()).with_rounds(3, 2).with_served_within(second * 20).quick(),
        apart("three hosts, session 15 s", start_long, second * 5)
            .with_work(Work { hold: (18_000, 20_000), ..work })
            .holds(fenced()),
        // Held long enough for the session to end behind the holder's back.
        apart("three hosts, session 4 s", start_short, second * 4).holds(gated()).breaks([Asked::Of(Property::E1)]),
    ]
}
