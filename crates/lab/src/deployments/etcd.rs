//! etcd: one member, and three, on this host or on hosts of their own.

use super::about_its_ttl;
use super::ways::Ways;
use crate::experiment::{Asked, Deployment, Experiment, fenced, gated, paused, paused_write_only};
use crate::fault::Fault;
use crate::worker::Work;
use fencelock_lab::{Etcd, Failure, Network};
use fencelock_testkit::history::Property;
use std::time::{Duration, Instant};

/// The shortest ttl that it grants as asked.
const TTL: Duration = Duration::from_secs(3);

/// The ttl where a leader goes on that has been replaced.
const RELAPSING: Duration = Duration::from_secs(12);

struct Members {
    etcd: Etcd,
    /// Where each member is on a host of its own.
    network: Option<Network>,
    /// Each worker asks one member alone.
    pinned: bool,
    attested: bool,
    /// A leader that stood still is cut off when it goes on.
    relapses: bool,
    ways: Ways,
    hurt: Option<(usize, usize)>,
}

impl Members {
    fn of(etcd: Etcd, network: Option<Network>) -> Self {
        Self { etcd, network, pinned: false, attested: true, relapses: false, ways: Ways::default(), hurt: None }
    }

    fn network(&self) -> Result<&Network, Failure> {
        self.network.as_ref().ok_or_else(|| Failure::new("the members share a host"))
    }

    /// The holder's member is made the leader, cut off as soon as it has kept a lease alive, and stands
    /// still until another leads. When it goes on, it still takes itself for the leader until it
    /// finds that nobody follows, and is asked to keep the lease alive which the other counts since long.
    fn relapse(&self, worker: u32) -> Result<usize, Failure> {
        let member = worker as usize % self.etcd.count();
        self.etcd.move_leader(member)?;
        let asked = || self.etcd.metric(member, r#"grpc_server_msg_received_total{grpc_method="LeaseKeepAlive""#);
        let (before, end) = (asked()?, Instant::now() + RELAPSING);
        while asked()? <= before && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.cut(Network::separate, member)?;
        let server = self.etcd.server(member)?;
        server.stop();
        // The next keepalive comes after a third of the ttl, and waits for its answer for 2 s.
        std::thread::sleep(RELAPSING / 3 + Duration::from_secs(1));
        server.cont();
        Ok(member)
    }

    fn cut(&self, verb: fn(&Network, usize, usize) -> Result<(), Failure>, leader: usize) -> Result<(), Failure> {
        let network = self.network()?;
        (0..self.etcd.count()).filter(|at| *at != leader).try_for_each(|at| verb(network, leader, at))
    }
}

impl Deployment for Members {
    fn url(&mut self, worker: u32) -> Result<String, Failure> {
        // Whoever asks what the deployment is asks all of it.
        if self.pinned && worker != u32::MAX {
            return Ok(format!("etcd://{}", self.etcd.endpoint(worker as usize % self.etcd.count())?));
        }
        if self.network.is_some() {
            return Ok(format!("etcd://{}", self.etcd.endpoints().join(",")));
        }
        let members = (0..self.etcd.count()).map(|at| self.etcd.endpoint(at));
        let members = members.collect::<Result<Vec<_>, _>>()?;
        Ok(format!("etcd://{}", self.ways.all_to(members, worker)?))
    }

    /// What Debian ships may acknowledge a keepalive for a lease that is revoked.
    fn attest(&self) -> Vec<String> {
        if self.attested { vec!["etcd.lease_fixes".to_owned()] } else { Vec::new() }
    }

    fn hurt(&mut self, fault: Fault, worker: u32) -> Result<(), Failure> {
        match fault {
            Fault::ServersStopped => self.etcd.freeze(),
            Fault::ServerRestarted => {
                self.etcd.kill(0)?;
                self.etcd.restart(0)?;
            }
            Fault::ServerWiped => self.etcd.replace()?,
            Fault::Flushed => {
                // A watch would tell the holder at once. What names the store stays: clients refuse one whose name is gone.
                self.ways.hurt(Fault::HolderCut, worker);
                self.etcd.ctl(["del", "fencelock/l/", "--prefix"])?;
            }
            Fault::LeaderStopped if self.relapses => {
                let member = self.relapse(worker)?;
                self.hurt = Some((member, member));
            }
            Fault::LeaderKilled | Fault::LeaderStopped | Fault::LeaderIsolated => {
                let leader = self.etcd.leader()?;
                match fault {
                    Fault::LeaderKilled => self.etcd.kill(leader)?,
                    Fault::LeaderStopped => self.etcd.server(leader)?.stop(),
                    _ => self.cut(Network::separate, leader)?,
                }
                self.hurt = Some((leader, leader));
            }
            Fault::FollowerCut => {
                let leader = self.etcd.leader()?;
                // The one that the holder is at, unless it leads.
                let at = worker as usize % self.etcd.count();
                let follower = if at == leader { (leader + 1) % self.etcd.count() } else { at };
                self.network()?.separate(follower, leader)?;
                self.hurt = Some((follower, leader));
            }
            other if self.ways.hurt(other, worker) => {}
            other => return Err(Failure::new(format!("etcd does not suffer {other}"))),
        }
        Ok(())
    }

    fn mend(&mut self, fault: Fault, _worker: u32) -> Result<(), Failure> {
        match (fault, self.hurt.take()) {
            (Fault::ServersStopped, _) => self.etcd.thaw(),
            (Fault::LeaderKilled, Some((leader, _))) => self.etcd.restart(leader)?,
            (Fault::LeaderStopped, Some((leader, _))) if self.relapses => self.cut(Network::reunite, leader)?,
            (Fault::LeaderStopped, Some((leader, _))) => self.etcd.server(leader)?.cont(),
            (Fault::LeaderIsolated, Some((leader, _))) => self.cut(Network::reunite, leader)?,
            (Fault::FollowerCut, Some((follower, leader))) => self.network()?.reunite(follower, leader)?,
            _ => self.ways.mend(),
        }
        Ok(())
    }
}

fn start_one() -> Result<Box<dyn Deployment>, Failure> {
    Ok(Box::new(Members::of(Etcd::start()?, None)))
}

fn start_three() -> Result<Box<dyn Deployment>, Failure> {
    Ok(Box::new(Members::of(Etcd::start_members(3)?, None)))
}

fn start_apart() -> Result<Box<dyn Deployment>, Failure> {
    let network = Network::of(3)?;
    Ok(Box::new(Members::of(Etcd::start_in(&network)?, Some(network))))
}

fn start_pinned() -> Result<Box<dyn Deployment>, Failure> {
    let network = Network::of(3)?;
    Ok(Box::new(Members { pinned: true, ..Members::of(Etcd::start_in(&network)?, Some(network)) }))
}

fn start_unattested() -> Result<Box<dyn Deployment>, Failure> {
    let network = Network::of(3)?;
    Ok(Box::new(Members { attested: false, ..Members::of(Etcd::start_in(&network)?, Some(network)) }))
}

fn start_relapsing() -> Result<Box<dyn Deployment>, Failure> {
    let network = Network::of(3)?;
    let members = Members::of(Etcd::start_in(&network)?, Some(network));
    Ok(Box::new(Members { pinned: true, attested: false, relapses: true, ..members }))
}

pub(super) fn experiments() -> Vec<Experiment> {
    let second = Duration::from_secs(1);
    let one = |fault| Experiment::new("etcd", "one member", fault, start_one).with_ttl(TTL);
    let three = |fault| Experiment::new("etcd", "three members", fault, start_three).with_ttl(TTL);
    let apart = |fault| Experiment::new("etcd", "three hosts", fault, start_apart).with_ttl(TTL).with_rounds(4, 2);
    // A worker whose member is cut off loses what it holds, and nobody else does.
    let pinned = |fault| {
        let experiment = Experiment::new("etcd", "three hosts, each worker at one", fault, start_pinned);
        experiment.with_ttl(TTL).with_rounds(4, 2)
    };
    let unattested = |fault| {
        let experiment = Experiment::new("etcd", "three hosts, nothing attested", fault, start_unattested);
        experiment.with_ttl(TTL).with_rounds(4, 2)
    };
    let relapse =
        Experiment::new("etcd", "nothing attested, each worker at one", Fault::LeaderStopped, start_relapsing);
    let relapse = relapse.called("goes on while cut off").with_ttl(RELAPSING).with_work(Work::beset(40_000, 50_000));
    // One at each member.
    let relapse = relapse.with_workers(3).with_rounds(3, 1).with_times(second * 14, second * 2);
    let fifo = [Asked::Of(Property::Fifo)];
    let twice = [Asked::Of(Property::E1)];
    let wiped = |fault| one(fault).with_work(Work::beset(1_000, 3_000)).with_rounds(4, 2);
    vec![
        one(Fault::HolderKilled).holds(fenced()).holds(fifo).with_rounds(4, 2),
        one(Fault::HolderStoppedShort).holds(fenced()).with_rounds(4, 2),
        about_its_ttl(one(Fault::HolderStoppedLong).holds(fenced())).with_rounds(4, 2),
        paused(one(Fault::HolderStoppedLong).holds(fenced())).with_rounds(4, 3).quick(),
        paused_write_only(one(Fault::HolderStoppedLong)),
        one(Fault::HolderCut).holds(fenced()),
        one(Fault::RepliesDropped).holds(fenced()),
        one(Fault::RequestsDelayed).holds(fenced()),
        one(Fault::ServersStopped).holds(fenced()).with_rounds(4, 2),
        one(Fault::ServerRestarted).holds(fenced()),
        // Another store has another name, and only who connects takes it for the right one: nobody is granted anything.
        wiped(Fault::ServerWiped).with_rounds(1, 1).holds(gated()).holds(twice),
        wiped(Fault::Flushed).with_times(second, TTL * 2).breaks(twice),
        three(Fault::HolderKilled).holds(fenced()).holds(fifo).with_rounds(4, 2),
        paused(three(Fault::HolderStoppedLong).holds(fenced())).with_rounds(4, 3),
        three(Fault::HolderCut).holds(fenced()).with_rounds(4, 2),
        three(Fault::RepliesDropped).holds(fenced()).with_rounds(4, 2),
        three(Fault::RequestsDelayed).holds(fenced()).with_rounds(4, 2),
        three(Fault::ServersStopped).holds(fenced()).with_rounds(4, 2),
        three(Fault::ServerRestarted).holds(fenced()).with_rounds(4, 2),
        three(Fault::LeaderKilled).holds(fenced()).with_rounds(3, 2).quick(),
        three(Fault::LeaderStopped).holds(fenced()).with_rounds(4, 2),
        apart(Fault::LeaderKilled).holds(fenced()),
        apart(Fault::LeaderIsolated).holds(fenced()),
        apart(Fault::FollowerCut).holds(fenced()),
        pinned(Fault::LeaderIsolated).holds(fenced()),
        pinned(Fault::FollowerCut).holds(fenced()),
        unattested(Fault::HolderKilled),
        unattested(Fault::LeaderIsolated),
        unattested(Fault::LeaderStopped).with_times(second * 5, second * 4),
        unattested(Fault::FollowerCut),
        relapse.breaks(twice),
    ]
}
