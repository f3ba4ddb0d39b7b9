//! A deployment that is wrong on purpose, by which the lab shows that it would see it.

use crate::experiment::{Asked, Deployment, Experiment};
use crate::fault::Fault;
use crate::worker::Work;
use fencelock_lab::{Failure, Mood, Proxy, Redis};
use fencelock_testkit::history::Property;
use std::time::Duration;

/// A server that is well, behind a way that stays closed once it was.
struct NeverHeals {
    redis: Redis,
    way: Proxy,
}

impl Deployment for NeverHeals {
    fn url(&mut self, _worker: u32) -> Result<String, Failure> {
        Ok(format!("redis://127.0.0.1:{}", self.way.port()))
    }

    fn hurt(&mut self, _fault: Fault, _worker: u32) -> Result<(), Failure> {
        self.way.set(Mood::Refuse);
        Ok(())
    }

    fn mend(&mut self, _fault: Fault, _worker: u32) -> Result<(), Failure> {
        // It says so, and does nothing: the server is well all the while.
        self.redis.command(&["PING"]).map(|_| ())
    }
}

fn start() -> Result<Box<dyn Deployment>, Failure> {
    let redis = Redis::start_durable()?;
    let way = Proxy::before(redis.address())?;
    Ok(Box::new(NeverHeals { redis, way }))
}

pub(crate) fn experiment() -> Experiment {
    let work = Work { wait: Duration::from_millis(400), ..Work::default() };
    let never = Experiment::new("redis", "a service that never heals", Fault::HolderCut, start).with_work(work);
    let never = never.with_times(Duration::from_millis(500), Duration::from_secs(1)).with_rounds(1, 1);
    never.breaks([Asked::Of(Property::L1)]).wrong_on_purpose()
}
