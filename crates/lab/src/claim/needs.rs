//! What has to have been tried before a level is confirmed.

use super::Case;
use crate::fault::Fault;
use crate::report::Report;
use fencelock::{Assumption, Guarantees, Level, Scope};
use std::fmt;

/// A kind of fault that a level withstands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    ClientCrash,
    CutConnection,
    ServerAway,
    Pause,
    Restart,
    Clock,
    /// One of several servers is lost.
    Minority,
    /// Servers are cut off from each other.
    Partition,
}

impl Need {
    fn is_met_by(self, fault: Fault) -> bool {
        match self {
            Self::ClientCrash => fault == Fault::HolderKilled,
            Self::CutConnection => {
                matches!(fault, Fault::HolderCut | Fault::RepliesDropped | Fault::RepliesLate | Fault::RequestsDelayed)
            }
            // Of several servers, the one that leads.
            Self::ServerAway => matches!(fault, Fault::ServersStopped | Fault::LeaderKilled | Fault::LeaderStopped),
            Self::Pause => fault == Fault::HolderStoppedLong,
            Self::Restart => matches!(fault, Fault::ServerRestarted | Fault::LeaderKilled),
            Self::Clock => matches!(fault, Fault::ClockForward | Fault::ClockBack | Fault::ClockFast),
            Self::Minority => matches!(fault, Fault::LeaderKilled | Fault::LeaderStopped),
            Self::Partition => matches!(fault, Fault::LeaderIsolated | Fault::FollowerCut),
        }
    }

    /// Whether it concerns the client alone, whatever servers there are.
    const fn is_the_clients(self) -> bool {
        matches!(self, Self::ClientCrash | Self::CutConnection | Self::Pause)
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ClientCrash => "a client that crashes",
            Self::CutConnection => "a connection that is cut",
            Self::ServerAway => "a server that is away",
            Self::Pause => "a pause of the holder",
            Self::Restart => "a restart of a server",
            Self::Clock => "clocks that are wrong",
            Self::Minority => "the loss of a minority",
            Self::Partition => "servers cut off from each other",
        })
    }
}

/// What a level has to withstand where the deployment is of this kind.
pub(super) fn needs(level: Level, found: &Guarantees) -> Vec<Need> {
    let leans = |on| found.assumptions().any(|assumption| assumption == on);
    let mut needs = vec![(Level::Advisory, Need::ClientCrash), (Level::Leased, Need::Pause)];
    // A file has no server and no connection.
    if found.scope() == Scope::Network {
        needs.extend([
            (Level::Advisory, Need::CutConnection),
            (Level::Advisory, Need::ServerAway),
            (Level::Leased, Need::Restart),
            (Level::Replicated, Need::Minority),
            (Level::Replicated, Need::Partition),
        ]);
    }
    if leans(Assumption::ServerClock) {
        needs.push((Level::Fenced, Need::Clock));
    }
    needs.into_iter().filter(|(from, _)| *from <= level).map(|(_, need)| need).collect()
}

/// Nothing if it was tried here; where else it was, if that will do; or that it was not.
pub(super) fn lacking(need: Need, case: &Case<'_>, all: &[Case<'_>]) -> Result<Option<String>, String> {
    if case.reports.iter().any(|report| tried(need, report)) {
        return Ok(None);
    }
    let alike = all.iter().filter(|other| other.found.engine() == case.found.engine() && other.level >= case.level);
    let elsewhere = alike.flat_map(|other| &other.reports).find(|report| need.is_the_clients() && tried(need, report));
    match elsewhere {
        Some(report) => Ok(Some(format!("{need}: tried with {}", report.experiment.deployment))),
        None => Err(format!("{need} was not tried")),
    }
}

fn tried(need: Need, report: &Report) -> bool {
    let hit = report.rows.first().is_some_and(|row| row.hits >= report.experiment.least_hits && row.hits > 0);
    hit && report.experiment.mixed.is_empty() && need.is_met_by(report.experiment.fault)
}
