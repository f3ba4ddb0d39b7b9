//! etcd: one member, and three on hosts of their own.

use super::ways::Ways;
use crate::experiment::{Asked, Deployment, Experiment, fenced, paused, paused_write_only};
use crate::fault::Fault;
use fencelock_lab::{Etcd, Failure, Network};
use fencelock_testkit::history::Property;
use std::time::Duration;

/// The shortest ttl that it grants as asked.
const TTL: Duration = Duration::from_secs(3);

struct Members {
    etcd: Etcd,
    /// Where each member is on a host of its own.
    network: Option<Network>,
    ways: Ways,
    hurt: Option<usize>,
}

impl Members {
    fn cut(&self, verb: fn(&Network, usize, usize) -> Result<(), Failure>, leader: usize) -> Result<(), Failure> {
        let network = self.network.as_ref().ok_or_else(|| Failure::new("the members share a host"))?;
        (0..self.etcd.count()).filter(|at| *at != leader).try_for_each(|at| verb(network, leader, at))
    }
}

impl Deployment for Members {
    fn url(&mut self, worker: u32) -> Result<String, Failure> {
        if self.etcd.count() == 1 {
            return Ok(format!("etcd://127.0.0.1:{}", self.ways.to(self.etcd.endpoint(0)?, worker)?));
        }
        let members = (0..self.etcd.count()).map(|at| self.etcd.endpoint(at).map(|address| address.to_string()));
        Ok(format!("etcd://{}", members.collect::<Result<Vec<_>, _>>()?.join(",")))
    }

    /// What Debian ships may acknowledge a keepalive for a lease that is revoked; that is another experiment's.
    fn attest(&self) -> Vec<String> {
        vec!["etcd.lease_fixes".to_owned()]
    }

    fn hurt(&mut self, fault: Fault, worker: u32) -> Result<(), Failure> {
        match fault {
            Fault::ServersStopped => self.etcd.freeze(),
            Fault::ServerRestarted => {
                self.etcd.kill(0)?;
                self.etcd.restart(0)?;
            }
            Fault::LeaderKilled => {
                let leader = self.etcd.leader()?;
                self.etcd.kill(leader)?;
                self.hurt = Some(leader);
            }
            Fault::LeaderIsolated => {
                let leader = self.etcd.leader()?;
                self.cut(Network::separate, leader)?;
                self.hurt = Some(leader);
            }
            other if self.ways.hurt(other, worker) => {}
            other => return Err(Failure::new(format!("etcd does not suffer {other}"))),
        }
        Ok(())
    }

    fn mend(&mut self, fault: Fault, _worker: u32) -> Result<(), Failure> {
        match (fault, self.hurt.take()) {
            (Fault::ServersStopped, _) => self.etcd.thaw(),
            (Fault::LeaderKilled, Some(leader)) => self.etcd.restart(leader)?,
            (Fault::LeaderIsolated, Some(leader)) => self.cut(Network::reunite, leader)?,
            _ => self.ways.mend(),
        }
        Ok(())
    }
}

fn start_one() -> Result<Box<dyn Deployment>, Failure> {
    Ok(Box::new(Members { etcd: Etcd::start()?, network: None, ways: Ways::default(), hurt: None }))
}

fn start_three() -> Result<Box<dyn Deployment>, Failure> {
    Ok(Box::new(Members { etcd: Etcd::start_members(3)?, network: None, ways: Ways::default(), hurt: None }))
}

fn start_apart() -> Result<Box<dyn Deployment>, Failure> {
    let network = Network::of(3)?;
    let etcd = Etcd::start_in(&network)?;
    Ok(Box::new(Members { etcd, network: Some(network), ways: Ways::default(), hurt: None }))
}

pub(super) fn experiments() -> Vec<Experiment> {
    let one = |fault| Experiment::new("etcd", "one member", fault, start_one).with_ttl(TTL);
    let three = |fault| Experiment::new("etcd", "three members", fault, start_three).with_ttl(TTL);
    let apart = |fault| Experiment::new("etcd", "three hosts", fault, start_apart).with_ttl(TTL);
    let fifo = [Asked::Of(Property::Fifo)];
    vec![
        one(Fault::HolderKilled).holds(fenced()).holds(fifo).with_rounds(4, 2),
        paused(one(Fault::HolderStoppedLong).holds(fenced())).with_rounds(4, 3).quick(),
        paused_write_only(one(Fault::HolderStoppedLong)),
        one(Fault::HolderCut).holds(fenced()),
        one(Fault::RepliesDropped).holds(fenced()),
        one(Fault::RequestsDelayed).holds(fenced()),
        one(Fault::ServerRestarted).holds(fenced()),
        three(Fault::ServersStopped).holds(fenced()),
        three(Fault::LeaderKilled).holds(fenced()).with_rounds(3, 2).quick(),
        apart(Fault::LeaderIsolated).holds(fenced()).with_rounds(4, 2),
    ]
}
