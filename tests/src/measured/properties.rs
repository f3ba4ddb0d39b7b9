//! What was promised, promise by promise: where it held, and how often it could have broken.

use super::lab::{Experiment, Lab, Verdict};
use super::words::{count, counted};

const PROPERTIES: [(&str, &str); 10] = [
    ("E1", "no two hold a lock at once"),
    ("E2", "a loss is final, and told before the next is granted"),
    ("K1", "no token comes twice"),
    ("K2", "tokens grow"),
    ("G1", "no stale effect is accepted behind a gate"),
    ("G2", "no acknowledged update is lost behind a gate"),
    ("R1", "only the owner renews or releases"),
    ("L1", "who waits is served after a fault"),
    ("FIFO", "who waits is served in order"),
    ("UP", "somebody is served while a server is away"),
];

pub(super) fn table(lab: &Lab) -> String {
    let mut text = "| promised | experiments | held | broken | too little happened | could have broken |\n\
         |---|--:|--:|--:|--:|--:|\n"
        .to_owned();
    for (id, said) in PROPERTIES {
        let of_it: Vec<_> = promised(lab).map(|(_, verdict)| verdict).filter(|verdict| verdict.0 == id).collect();
        if of_it.is_empty() {
            continue;
        }
        let came = |what: &str| of_it.iter().filter(|verdict| verdict.2 == what).count();
        let asked = of_it.iter().map(|verdict| verdict.3).sum();
        text.push_str(&format!(
            "| {id}: {said} | {} | {} | {} | {} | {} times |\n",
            of_it.len(),
            came("holds"),
            came("broken"),
            came("inconclusive"),
            count(asked)
        ));
    }
    text
}

fn promised(lab: &Lab) -> impl Iterator<Item = (&Experiment, &Verdict)> {
    let all = lab.experiments.iter().flat_map(|of| of.verdicts.iter().map(move |verdict| (of, verdict)));
    all.filter(|(_, verdict)| verdict.1 == "holds")
}

/// Every verdict that was not the expected one, an experiment a line.
pub(super) fn unexpected(lab: &Lab) -> String {
    let mut text = String::new();
    let (mut expected, mut wrong) = (0_u64, 0);
    for experiment in &lab.experiments {
        let asked: Vec<_> = experiment.verdicts.iter().filter(|verdict| verdict.1 != "nothing").collect();
        let not: Vec<_> = asked.iter().filter(|verdict| verdict.1 != verdict.2).collect();
        expected += asked.len() as u64;
        wrong += not.len();
        let mut parts: Vec<String> = Vec::new();
        for (came, said) in [
            ("broken", "broken"),
            ("holds", "not shown to break"),
            ("inconclusive", "not shown, for too little happened"),
        ] {
            let ids: Vec<_> =
                not.iter().filter(|verdict| verdict.2 == came).map(|verdict| verdict.0.as_str()).collect();
            if !ids.is_empty() {
                parts.push(format!("{} {said}", ids.join(", ")));
            }
        }
        if !parts.is_empty() {
            text.push_str(&format!("- `{}`: {}\n", experiment.id(), parts.join("; ")));
        }
    }
    text.extend(lab.told.failed.iter().map(|id| format!("- `{id}`: could not be tried\n")));
    let end = match (wrong, lab.told.failed.len()) {
        (0, 0) => "all as expected.\n".to_owned(),
        (wrong, 0) => format!("all as expected but {wrong}:\n\n{text}"),
        (wrong, failed) => {
            let failed = counted(failed, "experiment");
            format!("all as expected but {wrong}, and {failed} could not be tried:\n\n{text}")
        }
    };
    format!("Of {} verdicts {end}", count(expected))
}
