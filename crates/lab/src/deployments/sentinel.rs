//! A Redis master with replicas and Sentinels, and a fail-over to a replica that has not heard the last writes.

use crate::experiment::{Asked, Deployment, Experiment};
use crate::fault::Fault;
use crate::worker::Work;
use fencelock_lab::{Failure, RedisSentinel, Server};
use fencelock_testkit::history::Property;
use std::time::{Duration, Instant};

/// How long the replicas hear nothing before the master dies: beyond a ttl, so
/// that whoever holds then holds by what they have not heard.
const DEAF: Duration = Duration::from_secs(7);

struct Replicated {
    set: RedisSentinel,
    dead: Option<usize>,
}

impl Deployment for Replicated {
    fn url(&mut self, _worker: u32) -> Result<String, Failure> {
        let sentinels: Vec<_> = self.set.sentinels().iter().map(ToString::to_string).collect();
        Ok(format!("redis+sentinel://{}/{}", sentinels.join(","), self.set.name()))
    }

    fn hurt(&mut self, fault: Fault, _worker: u32) -> Result<(), Failure> {
        if fault != Fault::FailedOver {
            return Err(Failure::new(format!("Sentinel does not suffer {fault} here")));
        }
        let is_master = |at: &usize| {
            let told = self.set.servers().get(*at).map(|redis| redis.command(&["INFO", "replication"]));
            told.is_some_and(|info| info.is_ok_and(|info| info.contains("role:master")))
        };
        let master = (0..3).find(is_master).ok_or_else(|| Failure::new("there is no master"))?;
        // Stopped, they cannot come back to the master that drops them. (A replica that
        // is only stopped finds what it has missed in its socket.)
        let replicas = |set: &RedisSentinel, signal: fn(&Server)| {
            set.servers().iter().enumerate().filter(|(at, _)| *at != master).for_each(|(_, r)| signal(r.server()));
        };
        replicas(&self.set, Server::stop);
        if let Some(redis) = self.set.servers_mut().get_mut(master) {
            redis.command(&["CLIENT", "KILL", "TYPE", "replica"])?;
            std::thread::sleep(DEAF);
            redis.server_mut().kill();
        }
        replicas(&self.set, Server::cont);
        self.dead = Some(master);
        let end = Instant::now() + Duration::from_secs(20);
        while !(0..3).any(|at| {
            at != master && {
                let told = self.set.servers().get(at).map(|redis| redis.command(&["INFO", "replication"]));
                told.is_some_and(|info| info.is_ok_and(|info| info.contains("role:master")))
            }
        }) {
            if Instant::now() > end {
                return Err(Failure::new("no replica was promoted within 20 s"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn mend(&mut self, _fault: Fault, _worker: u32) -> Result<(), Failure> {
        if let Some(redis) = self.dead.take().and_then(|at| self.set.servers_mut().get_mut(at)) {
            redis.restart()?;
        }
        Ok(())
    }
}

fn start() -> Result<Box<dyn Deployment>, Failure> {
    Ok(Box::new(Replicated { set: RedisSentinel::start_with(Duration::from_secs(1))?, dead: None }))
}

pub(super) fn experiments() -> Vec<Experiment> {
    let work = Work::beset(9_000, 12_000);
    let ttl = Duration::from_secs(8);
    let of = |fault| Experiment::new("redis", "Sentinel", fault, start).with_ttl(ttl).with_work(work);
    let twice = of(Fault::FailedOver).breaks([Asked::Of(Property::E1)]);
    vec![twice.with_workers(8).with_rounds(3, 1).with_times(Duration::from_secs(6), Duration::from_secs(4)).quick()]
}
