//! What the README says of what the lab showed.

use super::Result;
use super::lab::Lab;
use super::words::{count, counted, none_or, wrapped};
use super::{levels, properties, witnesses};

pub(super) fn text(lab: &Lab) -> Result<String> {
    let confirmed = lab.claims.iter().filter(|claim| claim.confirmed).count();
    let guarded = &lab.guarded;
    let run = wrapped(&format!(
        "A whole run of {}, by `{}`: {} in {:.0} minutes. What is *not* promised was looked for, and broke so; the time \
         is that of the shortest witness of each experiment:",
        lab.run.told(),
        lab.run.command,
        counted(lab.told.experiments, "experiment"),
        lab.told.minutes
    ));
    let behind = wrapped(&format!(
        "Behind gates, on deployments that promise `fenced` or more: {} updates, {} of them lost; {} attempts of holders that had \
         lost their lock, {} of them accepted; in {}, {:.0} minutes of work, {:.0} of them under mixed faults. Faults met a hold \
         or a waiter {} times, and one was under way for {:.0} minutes.",
        count(guarded.updates),
        none_or(guarded.lost),
        count(guarded.stale),
        none_or(guarded.accepted),
        counted(guarded.experiments, "experiment"),
        guarded.minutes,
        guarded.mixed_minutes,
        count(guarded.faults),
        guarded.fault_minutes
    ));
    let levels = wrapped(&format!(
        "A level is confirmed when each of its properties held under each of its faults, with a witness against the next level \
         up: {confirmed} of {} are. *UP* is that somebody is served while a server is away.",
        lab.claims.len()
    ));
    let witnesses = witnesses::table(lab)?;
    let (promises, claims, unexpected) = (properties::table(lab), levels::table(lab), properties::unexpected(lab));
    Ok(format!(
        "{run}\n\n{witnesses}\nWhat is promised, and how often it could have broken:\n\n{promises}\n{behind}\n\n{levels}\n\n\
         {claims}\n{unexpected}"
    ))
}

/// Of a run that does mixed faults alone, which is longer under them than each experiment of the whole.
pub(super) fn mixed(lab: &Lab) -> Result<String> {
    if let Some(other) = lab.experiments.iter().find(|of| of.fault != "mixed") {
        return Err(format!("{} is not one of mixed faults", other.id()).into());
    }
    let guarded = &lab.guarded;
    let unexpected = properties::unexpected(lab);
    let text = wrapped(&format!(
        "Mixed faults alone, for {:.0} minutes in all, on {}, by `{}`: {} on everything that promises `fenced` or more, {} \
         updates behind gates, {} of them lost; {} attempts of holders that had lost their lock, {} of them accepted.",
        guarded.mixed_minutes,
        lab.run.told(),
        lab.run.command,
        counted(guarded.experiments, "experiment"),
        count(guarded.updates),
        none_or(guarded.lost),
        count(guarded.stale),
        none_or(guarded.accepted),
    ));
    Ok(format!("{text}\n\n{unexpected}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::lab::Lab;
    use crate::measured::totals;

    const LAB: &str = r#"{"kind":"run","date":"2026-01-01","command":"c","processors":2,"system":"s"}
{"kind":"told","experiments":3,"minutes":1.6,"jobs":3,"seed":7,"failed":["etcd/a/b"]}
{"kind":"experiment","engine":"redis","deployment":"Sentinel","level":"advisory","server":"R","fault":"failed-over","variant":"","seed":7,"hits":2,"operations":30,"ran":60.0,"faulted":1.0,"verdicts":[["E1","broken","broken",30,2,"lock/0: two must hold it at once for 23456 us"],["K1","nothing","holds",30,0],["K2","nothing","holds",30,0]]}
{"kind":"experiment","engine":"etcd","deployment":"one member","level":"fenced","server":"e_x","fault":"holder-stopped-long","variant":"","seed":7,"hits":3,"operations":1000,"ran":60.0,"faulted":1.0,"verdicts":[["E1","holds","holds",1000,0],["K2","holds","inconclusive",1000,0],["G2","holds","holds",2000,0],["G1","holds","holds",5,0],["G2 without a gate","broken","broken",9,1,"w"]]}
{"kind":"experiment","engine":"zookeeper","deployment":"a","level":"fenced","server":"z","fault":"holder-stopped-long","variant":"v","seed":7,"hits":4,"operations":5,"ran":30.0,"faulted":1.0,"verdicts":[["G2 without a gate","broken","holds",9,0]]}
{"kind":"claim","engine":"redis","server":"R","level":"advisory","confirmed":true,"lacks":[],"borrowed":[],"above":"not leased: so","experiments":1,"hits":2}
{"kind":"claim","engine":"etcd","server":"e_x","level":"fenced","confirmed":false,"lacks":["a connection that is cut was not tried","K2 is inconclusive in etcd/one member/holder-stopped-long"],"borrowed":[],"above":"","experiments":1,"hits":3}
{"kind":"guarded","experiments":1,"minutes":1.0,"fault_minutes":0.5,"mixed_minutes":0.0,"faults":3,"updates":2000,"lost":0,"stale":5,"accepted":0}
"#;

    #[test]
    fn a_run_in_words() {
        let lab = Lab::read(LAB).unwrap();
        totals::check(&lab).unwrap();
        let said = text(&lab).unwrap();
        for part in [
            "A whole run of 2026-01-01, on 2 processors, by `c`: 3 experiments in 2 minutes.",
            "because the master died or stood still | two held at once for 23 ms | grew |\n",
            "| etcd | a holder stopped between its look and its write, at data that only the lock guards | updates lost, in 1 of 2 \
             experiments | grew |\n",
            "| E1: no two hold a lock at once | 1 | 1 | 0 | 0 | 1,000 times |\n",
            "| K2: tokens grow | 1 | 0 | 0 | 1 | 1,000 times |\n",
            "2,000 updates, none of them lost; 5 attempts",
            "up: 1 of 2 are.",
            "| Redis | R | `advisory` | confirmed | 1 | 2 | 30 | not leased: so |\n",
            "| etcd | `e_x` | `fenced` | **open** | 1 | 3 | 1,000 | a connection that is cut was not tried; 1 verdict not as \
             promised, below |\n",
            "Of 7 verdicts all as expected but 2, and 1 experiment could not be tried:\n",
            "- `etcd/one member/holder-stopped-long`: K2 not shown, for too little happened\n",
            "- `zookeeper/a/holder-stopped-long (v)`: G2 without a gate not shown to break\n- `etcd/a/b`: could not be tried\n",
        ] {
            assert!(said.contains(part), "{part}\n\n{said}");
        }
    }

    #[test]
    fn mixed_faults_in_words() {
        let lab = Lab::read(LAB).unwrap();
        assert!(mixed(&lab).is_err(), "other faults are in it");
        let all: Vec<_> =
            LAB.lines().filter(|line| !line.contains("Sentinel") && !line.contains("zookeeper")).collect();
        let all =
            all.join("\n").replace("holder-stopped-long", "mixed").replace("\"experiments\":3", "\"experiments\":1");
        let said = mixed(&Lab::read(&all).unwrap()).unwrap();
        let said = said.replace('\n', " ");
        assert!(said.contains("1 experiment on everything that promises `fenced` or more, 2,000 updates"), "{said}");
    }

    #[test]
    fn a_witness_without_words_is_told() {
        let elsewhere = LAB.replace("Sentinel", "on the moon").replace("failed-over", "dust");
        assert!(text(&Lab::read(&elsewhere).unwrap()).is_err());
        let odd = LAB.replace("for 23456 us", "for a while");
        assert!(text(&Lab::read(&odd).unwrap()).is_err());
    }

    #[test]
    fn totals_that_are_not_those_of_the_experiments_are_found() {
        for (right, wrong) in [
            ("\"updates\":2000", "\"updates\":2001"),
            ("\"accepted\":0", "\"accepted\":1"),
            ("\"experiments\":3,\"minutes\"", "\"experiments\":4,\"minutes\""),
            ("\"confirmed\":false", "\"confirmed\":true"),
            ("\"hits\":2}", "\"hits\":3}"),
            ("\"minutes\":1.0", "\"minutes\":2.0"),
        ] {
            let lab = LAB.replace(right, wrong);
            assert_ne!(lab, LAB, "{right}");
            assert!(totals::check(&Lab::read(&lab).unwrap()).is_err(), "{wrong}");
        }
    }
}
