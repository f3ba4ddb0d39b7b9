//! What the README says of what the lab showed.

use super::Result;
use super::lab::Lab;
use super::words::{count, none_or};
use super::{levels, properties, witnesses};

pub(super) fn text(lab: &Lab) -> Result<String> {
    let confirmed = lab.claims.iter().filter(|claim| claim.confirmed).count();
    let guarded = &lab.guarded;
    Ok(format!(
        "All of it was tried on {}, by `{}`:\n{} experiments in {:.0} minutes. What is *not* promised was looked for, and broke \
         so; the time is that of the shortest witness of each\nexperiment:\n\n{}\n\
         What is promised, and how often it could have broken:\n\n{}\n\
         Behind gates, on deployments that promise `fenced` or more: {} updates, {} of them lost; {} attempts of holders that had \
         lost\ntheir lock, {} of them accepted; in {} experiments, {:.0} minutes of work, {:.0} of them under mixed faults. {} \
         faults met a hold or\na waiter, and one was under way for {:.0} minutes.\n\n\
         A level is confirmed when each of its properties held under each of its faults, with a witness against the next level \
         up: {confirmed} of\n{} are.\n\n{}\n{}",
        lab.run.told(),
        lab.run.command,
        lab.told.experiments,
        lab.told.minutes,
        witnesses::table(lab)?,
        properties::table(lab),
        count(guarded.updates),
        none_or(guarded.lost),
        count(guarded.stale),
        none_or(guarded.accepted),
        guarded.experiments,
        guarded.minutes,
        guarded.mixed_minutes,
        count(guarded.faults),
        guarded.fault_minutes,
        lab.claims.len(),
        levels::table(lab),
        properties::unexpected(lab)
    ))
}
