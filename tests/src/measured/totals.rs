//! The totals that the lab concluded are those of the experiments that are kept.

use super::Result;
use super::lab::{Experiment, Lab, Verdict};

pub(super) fn check(lab: &Lab) -> Result<()> {
    if lab.told.experiments != lab.experiments.len() {
        return Err(format!("{} experiments are kept, of {}", lab.experiments.len(), lab.told.experiments).into());
    }
    for claim in &lab.claims {
        let same = |of: &&Experiment| of.engine == claim.engine && of.server == claim.server && of.level == claim.level;
        let all: Vec<_> = lab.experiments.iter().filter(same).collect();
        let hits: u64 = all.iter().map(|of| of.hits).sum();
        if (all.len(), hits) != (claim.experiments, claim.hits) {
            return Err(format!("{claim:?} is not of {} experiments with {hits} hits", all.len()).into());
        }
        let not = |of: &&Experiment| of.verdicts.iter().any(|verdict| verdict.1 == "holds" && verdict.2 != "holds");
        if let (true, Some(wrong)) = (claim.confirmed, all.into_iter().find(not)) {
            return Err(format!("{claim:?} is not confirmed by {}", wrong.id()).into());
        }
    }
    let said = &lab.guarded;
    let (mut found, mut seconds) = ([0; 6], 0.0);
    for of in lab.experiments.iter().filter(|of| matches!(of.level.as_str(), "fenced" | "replicated")) {
        let verdict = |id| of.verdicts.iter().find(|Verdict(property, .., asked, _, _)| property == id && *asked > 0);
        let Some(updates) = verdict("G2") else { continue };
        let (stale, accepted) = verdict("G1").map_or((0, 0), |stale| (stale.3, stale.4));
        for (sum, more) in found.iter_mut().zip([1, of.hits, updates.3, updates.4, stale, accepted]) {
            *sum += more;
        }
        seconds += of.ran;
    }
    let claimed = [said.experiments as u64, said.faults, said.updates, said.lost, said.stale, said.accepted];
    if found != claimed || (seconds / 60.0 - said.minutes).abs() > 0.01 * said.minutes {
        return Err(format!("{said:?} is not {found:?} in {seconds} s").into());
    }
    Ok(())
}
