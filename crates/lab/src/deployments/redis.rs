//! One Redis, with and without durability.

use super::about_its_ttl;
use super::ways::Ways;
use crate::experiment::{Asked, Deployment, Experiment, fenced, paused, paused_write_only};
use crate::fault::Fault;
use crate::worker::Work;
use fencelock_lab::{Failure, Redis, RedisNodes};
use fencelock_testkit::history::Property;

/// One server, which each worker reaches in a way of its own.
struct Single {
    redis: Redis,
    ways: Ways,
}

impl Deployment for Single {
    fn url(&mut self, worker: u32) -> Result<String, Failure> {
        Ok(format!("redis://127.0.0.1:{}", self.ways.to(self.redis.address(), worker)?))
    }

    fn hurt(&mut self, fault: Fault, worker: u32) -> Result<(), Failure> {
        match fault {
            Fault::ServersStopped => self.redis.server().stop(),
            Fault::ServerRestarted => {
                self.redis.server_mut().kill();
                self.redis.restart()?;
            }
            Fault::ServerWiped => self.redis.wipe()?,
            Fault::Flushed => {
                self.redis.command(&["FLUSHALL"])?;
            }
            Fault::Evicted => evict(&self.redis)?,
            other if self.ways.hurt(other, worker) => {}
            other => return Err(Failure::new(format!("one Redis does not suffer {other}"))),
        }
        Ok(())
    }

    fn mend(&mut self, fault: Fault, _worker: u32) -> Result<(), Failure> {
        match fault {
            Fault::ServersStopped => self.redis.server().cont(),
            _ => self.ways.mend(),
        }
        Ok(())
    }
}

/// Somebody lets the server evict, and fills its memory with other people's keys
/// until nothing of ours can be left. (Where it evicts from the start, connecting is refused.)
fn evict(redis: &Redis) -> Result<(), Failure> {
    redis.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"])?;
    redis.command(&["CONFIG", "SET", "maxmemory", "4mb"])?;
    let value = "x".repeat(10_000);
    for at in 0..600 {
        redis.command(&["SET", &format!("filler:{at}"), &value])?;
    }
    Ok(())
}

/// One server on a clock that can be set.
struct Clocked {
    nodes: RedisNodes,
    speed: u32,
}

impl Deployment for Clocked {
    fn url(&mut self, _worker: u32) -> Result<String, Failure> {
        Ok(format!("redis://{}", self.nodes.addresses()))
    }

    fn hurt(&mut self, fault: Fault, _worker: u32) -> Result<(), Failure> {
        let clock = self.nodes.clock(0)?;
        match fault {
            Fault::ClockForward => clock.step(60),
            Fault::ClockBack => clock.step(-60),
            Fault::ClockFast => clock.run_at(self.speed),
            other => Err(Failure::new(format!("a clock does not suffer {other}"))),
        }
    }

    fn mend(&mut self, _fault: Fault, _worker: u32) -> Result<(), Failure> {
        self.nodes.clock(0)?.run_at(1)
    }
}

fn start_durable() -> Result<Box<dyn Deployment>, Failure> {
    Ok(Box::new(Single { redis: Redis::start_durable()?, ways: Ways::default() }))
}

fn start_forgetful() -> Result<Box<dyn Deployment>, Failure> {
    Ok(Box::new(Single { redis: Redis::start()?, ways: Ways::default() }))
}

fn start_clocked() -> Result<Box<dyn Deployment>, Failure> {
    Ok(Box::new(Clocked { nodes: RedisNodes::start_durable_with_clocks(1)?, speed: 2 }))
}

fn start_fast() -> Result<Box<dyn Deployment>, Failure> {
    Ok(Box::new(Clocked { nodes: RedisNodes::start_durable_with_clocks(1)?, speed: 4 }))
}

pub(super) fn experiments() -> Vec<Experiment> {
    let bare = |fault| Experiment::new("redis", "AOF always", fault, start_durable);
    let durable = |fault| bare(fault).holds(fenced());
    let forgetful = |fault| Experiment::new("redis", "no persistence", fault, start_forgetful);
    let beset = |fault| forgetful(fault).with_work(Work::beset(200, 800));
    let clocked =
        |fault, start| Experiment::new("redis", "a clock that is set", fault, start).with_work(Work::beset(200, 600));
    let twice = [Asked::Of(Property::E1)];
    vec![
        durable(Fault::HolderKilled),
        durable(Fault::HolderStoppedShort),
        about_its_ttl(durable(Fault::HolderStoppedLong)),
        paused(durable(Fault::HolderStoppedLong)).quick(),
        paused_write_only(bare(Fault::HolderStoppedLong)),
        durable(Fault::HolderCut),
        durable(Fault::RepliesDropped),
        durable(Fault::RequestsDelayed),
        durable(Fault::RequestsTwice),
        durable(Fault::ServersStopped),
        durable(Fault::ServerRestarted).quick(),
        bare(Fault::ServerWiped).with_work(Work::beset(200, 800)).breaks(twice).with_rounds(4, 2),
        forgetful(Fault::HolderKilled),
        forgetful(Fault::HolderStoppedLong),
        forgetful(Fault::HolderCut),
        forgetful(Fault::RepliesDropped),
        forgetful(Fault::RequestsDelayed),
        forgetful(Fault::ServersStopped),
        beset(Fault::ServerRestarted).breaks(twice).with_rounds(4, 2).quick(),
        beset(Fault::Flushed).breaks(twice),
        beset(Fault::Evicted).breaks(twice),
        clocked(Fault::ClockForward, start_clocked).breaks(twice).with_rounds(4, 2).quick(),
        clocked(Fault::ClockBack, start_clocked).holds(fenced()),
        // Renewed after a third of the ttl, it is in time, unless a renewal is late.
        clocked(Fault::ClockFast, start_clocked).called("twice as fast"),
        clocked(Fault::ClockFast, start_fast).called("four times as fast").breaks(twice),
    ]
}
