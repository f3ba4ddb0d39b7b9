//! One Redis, with and without durability.

use super::ways::Ways;
use crate::experiment::{Asked, Deployment, Experiment, fenced, gated, paused, paused_write_only};
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
            Fault::ServerRestarted | Fault::ServerWiped => {
                self.redis.server_mut().kill();
                if fault == Fault::ServerWiped {
                    let _ = std::fs::remove_dir_all(self.redis.server().folder().join("appendonlydir"));
                }
                self.redis.restart()?;
            }
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
    offset: i64,
}

impl Deployment for Clocked {
    fn url(&mut self, _worker: u32) -> Result<String, Failure> {
        Ok(format!("redis://{}", self.nodes.addresses()))
    }

    fn hurt(&mut self, fault: Fault, _worker: u32) -> Result<(), Failure> {
        match fault {
            Fault::ClockForward => self.offset += 60,
            Fault::ClockBack => self.offset -= 60,
            Fault::ClockFast => return self.nodes.set_clock(0, "+0 x2"),
            other => return Err(Failure::new(format!("a clock does not suffer {other}"))),
        }
        self.nodes.jump(0, self.offset)
    }

    fn mend(&mut self, _fault: Fault, _worker: u32) -> Result<(), Failure> {
        Ok(())
    }
}

fn start_durable() -> Result<Box<dyn Deployment>, Failure> {
    Ok(Box::new(Single { redis: Redis::start_durable()?, ways: Ways::default() }))
}

fn start_forgetful() -> Result<Box<dyn Deployment>, Failure> {
    Ok(Box::new(Single { redis: Redis::start()?, ways: Ways::default() }))
}

fn start_clocked() -> Result<Box<dyn Deployment>, Failure> {
    Ok(Box::new(Clocked { nodes: RedisNodes::start_with_clocks(1)?, offset: 0 }))
}

pub(super) fn experiments() -> Vec<Experiment> {
    let durable = |fault| Experiment::new("redis", "AOF always", fault, start_durable).holds(fenced());
    let forgetful =
        |fault| Experiment::new("redis", "no persistence", fault, start_forgetful).with_work(Work::beset(200, 800));
    let clocked = |fault| {
        Experiment::new("redis", "a clock that is set", fault, start_clocked)
            .holds(gated())
            .with_work(Work::beset(200, 600))
    };
    let twice = [Asked::Of(Property::E1)];
    vec![
        durable(Fault::HolderKilled),
        paused(durable(Fault::HolderStoppedLong)).quick(),
        paused_write_only(Experiment::new("redis", "AOF always", Fault::HolderStoppedLong, start_durable)),
        durable(Fault::HolderCut),
        durable(Fault::RepliesDropped),
        durable(Fault::RequestsDelayed),
        durable(Fault::RequestsTwice),
        durable(Fault::ServersStopped),
        durable(Fault::ServerRestarted).quick(),
        forgetful(Fault::ServerRestarted).breaks(twice).with_rounds(4, 2).quick(),
        forgetful(Fault::Flushed).breaks(twice),
        forgetful(Fault::Evicted).breaks(twice),
        clocked(Fault::ClockForward).breaks(twice).with_rounds(4, 2).quick(),
        clocked(Fault::ClockBack).holds(fenced()),
        clocked(Fault::ClockFast),
    ]
}
