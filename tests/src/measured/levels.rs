//! What each deployment says of itself, and whether all of it was shown.

use super::lab::{Claim, Experiment, Lab};
use super::words::{count, counted, engine, marked};

pub(super) fn table(lab: &Lab) -> String {
    let mut text = "| | deployment | level | | experiments | faults that hit | locks granted | the next level, or what is open |\n\
         |---|---|---|---|--:|--:|--:|---|\n"
        .to_owned();
    for claim in &lab.claims {
        let same = |of: &&Experiment| of.engine == claim.engine && of.server == claim.server && of.level == claim.level;
        let granted = lab.experiments.iter().filter(same).map(|of| of.operations).sum();
        text.push_str(&format!(
            "| {} | {} | `{}` | {} | {} | {} | {} | {} |\n",
            engine(&claim.engine),
            marked(&claim.server),
            claim.level,
            if claim.confirmed { "confirmed" } else { "**open**" },
            claim.experiments,
            claim.hits,
            count(granted),
            marked(&reason(claim))
        ));
    }
    text
}

fn reason(claim: &Claim) -> String {
    if claim.confirmed {
        return [&claim.above].into_iter().chain(&claim.borrowed).cloned().collect::<Vec<_>>().join("; ");
    }
    let (verdicts, rest): (Vec<_>, Vec<_>) =
        claim.lacks.iter().partition(|lack| lack.contains(" is broken in ") || lack.contains(" is inconclusive in "));
    let verdicts = match verdicts.len() {
        0 => None,
        some => Some(format!("{} not as promised, below", counted(some, "verdict"))),
    };
    rest.into_iter().cloned().chain(verdicts).collect::<Vec<_>>().join("; ")
}
