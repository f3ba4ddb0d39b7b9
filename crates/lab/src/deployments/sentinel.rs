//! A Redis master with replicas and Sentinels, and fail-overs to a replica that has not heard the last writes.

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
    hurt: Option<usize>,
}

impl Replicated {
    fn is_master(&self, at: usize) -> bool {
        let told = self.set.servers().get(at).map(|redis| redis.command(&["INFO", "replication"]));
        told.is_some_and(|info| info.is_ok_and(|info| info.contains("role:master")))
    }

    fn master(&self) -> Result<usize, Failure> {
        (0..3).find(|at| self.is_master(*at)).ok_or_else(|| Failure::new("there is no master"))
    }

    /// Lets the master end by `end` when the replicas have heard nothing for a while,
    /// and waits until one of them is promoted.
    fn fail_over(&mut self, end: fn(&mut Server)) -> Result<(), Failure> {
        let master = self.master()?;
        // Stopped, they cannot come back to the master that drops them. (A replica that
        // is only stopped finds what it has missed in its socket.)
        let replicas = |set: &RedisSentinel, signal: fn(&Server)| {
            set.servers().iter().enumerate().filter(|(at, _)| *at != master).for_each(|(_, r)| signal(r.server()));
        };
        replicas(&self.set, Server::stop);
        if let Some(redis) = self.set.servers_mut().get_mut(master) {
            redis.command(&["CLIENT", "KILL", "TYPE", "replica"])?;
            std::thread::sleep(DEAF);
            end(redis.server_mut());
        }
        replicas(&self.set, Server::cont);
        self.hurt = Some(master);
        self.until_promoted(master)
    }

    fn until_promoted(&self, old: usize) -> Result<(), Failure> {
        let end = Instant::now() + Duration::from_secs(20);
        while !(0..3).any(|at| at != old && self.is_master(at)) {
            if Instant::now() > end {
                return Err(Failure::new("no replica was promoted within 20 s"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Deployment for Replicated {
    fn url(&mut self, _worker: u32) -> Result<String, Failure> {
        let sentinels: Vec<_> = self.set.sentinels().iter().map(ToString::to_string).collect();
        Ok(format!("redis+sentinel://{}/{}", sentinels.join(","), self.set.name()))
    }

    fn hurt(&mut self, fault: Fault, _worker: u32) -> Result<(), Failure> {
        match fault {
            Fault::FailedOver => self.fail_over(|master| {
                master.kill();
            }),
            Fault::LeaderStopped => self.fail_over(|master| master.stop()),
            Fault::LeaderKilled => {
                let master = self.master()?;
                self.set.servers_mut().get_mut(master).map(|redis| redis.server_mut().kill());
                self.hurt = Some(master);
                self.until_promoted(master)
            }
            Fault::ServersStopped => {
                self.set.stop();
                Ok(())
            }
            other => Err(Failure::new(format!("Sentinel does not suffer {other} here"))),
        }
    }

    fn mend(&mut self, fault: Fault, _worker: u32) -> Result<(), Failure> {
        let hurt = self.hurt.take().and_then(|at| self.set.servers_mut().get_mut(at));
        match (fault, hurt) {
            (Fault::ServersStopped, _) => self.set.cont(),
            (Fault::LeaderStopped, Some(redis)) => redis.server().cont(),
            (_, Some(redis)) => redis.restart()?,
            _ => {}
        }
        Ok(())
    }
}

fn start() -> Result<Box<dyn Deployment>, Failure> {
    Ok(Box::new(Replicated { set: RedisSentinel::start_with(Duration::from_secs(1))?, hurt: None }))
}

pub(super) fn experiments() -> Vec<Experiment> {
    let second = Duration::from_secs(1);
    let of = |fault| Experiment::new("redis", "Sentinel", fault, start).with_ttl(second * 2);
    let deaf = |fault| {
        let experiment = of(fault).with_ttl(second * 8).with_work(Work::beset(9_000, 12_000)).with_workers(8);
        experiment.with_rounds(3, 1).with_times(second * 6, second * 4).breaks([Asked::Of(Property::E1)])
    };
    vec![
        of(Fault::HolderKilled),
        of(Fault::HolderStoppedLong),
        of(Fault::ServersStopped),
        of(Fault::LeaderKilled).with_times(second * 4, second * 4).with_rounds(3, 2),
        deaf(Fault::FailedOver).with_rounds(2, 1).quick(),
        deaf(Fault::LeaderStopped),
    ]
}
