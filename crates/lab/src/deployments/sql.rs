//! PostgreSQL and MariaDB with durable settings, and PostgreSQL with a standby that lags.

use super::about_its_ttl;
use super::ways::Ways;
use crate::experiment::{Asked, Deployment, Experiment, fenced, gated, paused, paused_write_only};
use crate::fault::Fault;
use crate::worker::Work;
use fencelock_lab::{Failure, MariaDb, Postgres};
use fencelock_testkit::history::Property;
use std::time::Duration;

/// Renewed after a third of the ttl, a lock has run out before on such a clock.
const SPEED: u32 = 4;

struct Pg {
    primary: Postgres,
    standby: Option<Postgres>,
    ways: Ways,
}

impl Pg {
    /// The standby hears nothing more, then the primary dies and the standby takes its
    /// place, for everybody but the holder, who is on the wrong side for a while.
    fn fail_over(&mut self, holder: u32) -> Result<(), Failure> {
        let standby = self.standby.take().ok_or_else(|| Failure::new("there is no standby"))?;
        standby.sql("ALTER SYSTEM SET primary_conninfo = ''")?;
        standby.sql("SELECT pg_reload_conf()")?;
        // Beyond a ttl, so that whoever holds then holds by what the standby has not heard.
        std::thread::sleep(Duration::from_secs(4));
        self.primary.server_mut().kill();
        standby.promote()?;
        self.ways.turn_to(standby.address(), Some(holder));
        self.primary = standby;
        Ok(())
    }
}

impl Deployment for Pg {
    fn url(&mut self, worker: u32) -> Result<String, Failure> {
        let port = self.ways.to(self.primary.address(), worker)?;
        Ok(self.primary.url().replace(&format!(":{}", self.primary.address().port()), &format!(":{port}")))
    }

    fn hurt(&mut self, fault: Fault, worker: u32) -> Result<(), Failure> {
        match fault {
            Fault::ServersStopped => self.primary.freeze(),
            Fault::ServerRestarted => {
                self.primary.server_mut().kill();
                self.primary.restart()?;
            }
            Fault::ServerWiped => self.primary.wipe()?,
            Fault::Flushed => self.primary.sql("TRUNCATE fencelock_locks")?,
            Fault::FailedOver => self.fail_over(worker)?,
            Fault::ClockForward => self.primary.clock()?.step(60)?,
            Fault::ClockBack => self.primary.clock()?.step(-60)?,
            Fault::ClockFast => self.primary.clock()?.run_at(SPEED)?,
            other if self.ways.hurt(other, worker) => {}
            other => return Err(Failure::new(format!("PostgreSQL does not suffer {other}"))),
        }
        Ok(())
    }

    fn mend(&mut self, fault: Fault, _worker: u32) -> Result<(), Failure> {
        match fault {
            Fault::ServersStopped => self.primary.thaw(),
            Fault::FailedOver => {
                self.ways.turn_to(self.primary.address(), None);
                self.standby = Some(self.primary.start_standby("behind", &[])?);
            }
            Fault::ClockFast => self.primary.clock()?.run_at(1)?,
            _ => self.ways.mend(),
        }
        Ok(())
    }
}

struct Maria {
    server: MariaDb,
    ways: Ways,
}

impl Deployment for Maria {
    fn url(&mut self, worker: u32) -> Result<String, Failure> {
        let port = self.ways.to(self.server.address(), worker)?;
        Ok(self.server.url().replace(&format!(":{}", self.server.address().port()), &format!(":{port}")))
    }

    fn hurt(&mut self, fault: Fault, worker: u32) -> Result<(), Failure> {
        match fault {
            Fault::ServersStopped => self.server.server().stop(),
            Fault::ServerRestarted => {
                self.server.server_mut().kill();
                self.server.restart()?;
            }
            Fault::ServerWiped => self.server.wipe()?,
            Fault::Flushed => self.server.sql("TRUNCATE fencelock_locks")?,
            Fault::ClockForward => self.server.clock()?.step(60)?,
            Fault::ClockBack => self.server.clock()?.step(-60)?,
            Fault::ClockFast => self.server.clock()?.run_at(SPEED)?,
            other if self.ways.hurt(other, worker) => {}
            other => return Err(Failure::new(format!("MariaDB does not suffer {other}"))),
        }
        Ok(())
    }

    fn mend(&mut self, fault: Fault, _worker: u32) -> Result<(), Failure> {
        match fault {
            Fault::ServersStopped => self.server.server().cont(),
            Fault::ClockFast => self.server.clock()?.run_at(1)?,
            _ => self.ways.mend(),
        }
        Ok(())
    }
}

fn start_postgres() -> Result<Box<dyn Deployment>, Failure> {
    Ok(Box::new(Pg { primary: Postgres::start_durable()?, standby: None, ways: Ways::default() }))
}

fn start_postgres_clocked() -> Result<Box<dyn Deployment>, Failure> {
    let primary = Postgres::start_durable_with_clock()?;
    Ok(Box::new(Pg { primary, standby: None, ways: Ways::default() }))
}

fn start_mariadb_clocked() -> Result<Box<dyn Deployment>, Failure> {
    Ok(Box::new(Maria { server: MariaDb::start_durable_with_clock()?, ways: Ways::default() }))
}

fn start_with_standby() -> Result<Box<dyn Deployment>, Failure> {
    let primary = Postgres::start_durable()?;
    let standby = primary.start_standby("behind", &[])?;
    Ok(Box::new(Pg { primary, standby: Some(standby), ways: Ways::default() }))
}

fn start_mariadb() -> Result<Box<dyn Deployment>, Failure> {
    Ok(Box::new(Maria { server: MariaDb::start_durable()?, ways: Ways::default() }))
}

pub(super) fn experiments() -> Vec<Experiment> {
    type Start = fn() -> Result<Box<dyn Deployment>, Failure>;
    let twice = [Asked::Of(Property::E1)];
    let of = |engine, start: Start, clocked: Start| {
        let bare = move |fault| Experiment::new(engine, "single, durable", fault, start);
        let fenced = move |fault| bare(fault).holds(fenced());
        let at_clock = move |fault| {
            let experiment = Experiment::new(engine, "single, durable, a clock that is set", fault, clocked);
            experiment.with_work(Work::beset(200, 600)).with_rounds(4, 2)
        };
        let beset = move |fault| bare(fault).with_work(Work::beset(200, 800)).with_rounds(4, 2);
        vec![
            fenced(Fault::HolderKilled),
            fenced(Fault::HolderStoppedShort),
            about_its_ttl(fenced(Fault::HolderStoppedLong)),
            paused(fenced(Fault::HolderStoppedLong)).quick(),
            paused_write_only(bare(Fault::HolderStoppedLong)),
            fenced(Fault::HolderCut),
            fenced(Fault::RepliesDropped),
            fenced(Fault::RequestsDelayed),
            fenced(Fault::ServersStopped),
            fenced(Fault::ServerRestarted),
            // Its table is gone, and only who connects makes it: nobody is granted anything.
            beset(Fault::ServerWiped).with_rounds(1, 1).holds(gated()).holds(twice),
            beset(Fault::Flushed).breaks(twice),
            at_clock(Fault::ClockForward).breaks(twice),
            at_clock(Fault::ClockBack),
            at_clock(Fault::ClockFast).called("four times as fast").breaks(twice),
        ]
    };
    let work = Work::beset(14_000, 18_000);
    let second = Duration::from_secs(1);
    let standby = |fault| {
        let experiment = Experiment::new("postgres", "asynchronous standby", fault, start_with_standby);
        experiment.with_ttl(second * 3)
    };
    let failed = standby(Fault::FailedOver).with_work(work).with_rounds(3, 1);
    let failed = failed.with_times(second * 5, second * 2).breaks(twice).quick();
    let others = [Fault::HolderKilled, Fault::HolderCut, Fault::ServersStopped, Fault::ServerRestarted];
    let others = others.map(|fault| standby(fault).with_rounds(3, 2));
    of("postgres", start_postgres, start_postgres_clocked)
        .into_iter()
        .chain(of("mysql", start_mariadb, start_mariadb_clocked))
        .chain([failed])
        .chain(others)
        .collect()
}
