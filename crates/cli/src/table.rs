//! `fencelock guarantees`: what each engine gave in the deployments it was tried on.

use crate::check;
use crate::exit::{self, Outcome};
use crate::output::{answer, answer_json, columns};
use fencelock::{Guarantees, Level, Registry, Rule};
use serde_json::Value;

const ABOUT: &str = "\
What each engine of this build gave where it was tried, by deployment; T1 to T4 are explained in the README.
`fencelock check` probes what your deployment really gives, rule by rule.
";

/// The deployments of the engines that this build has.
fn rows() -> Vec<Guarantees> {
    let registry = Registry::builtin();
    let known = |found: &Guarantees| registry.schemes().any(|scheme| scheme == found.engine());
    fencelock::deployments().into_iter().filter(known).collect()
}

/// Shows the table.
pub(crate) fn show(json: bool) -> Outcome {
    let rows = rows();
    if json {
        answer_json(&Value::Array(rows.iter().map(check::as_json).collect()))?;
    } else {
        answer(&as_text(&rows))?;
    }
    Ok(exit::OK)
}

fn as_text(rows: &[Guarantees]) -> String {
    let head = ["ENGINE", "DEPLOYMENT", "LEVEL", "REACH", "LEANS ON", "CAPABILITIES", "WHY NOT MORE"];
    let rows = rows.iter().map(|found| {
        [
            found.engine().to_owned(),
            found.deployment().replace('`', ""),
            found.level().map_or("none", Level::as_str).to_owned(),
            found.scope().to_string(),
            list(found.assumptions().map(|assumption| assumption.id().to_owned())),
            list(found.capabilities().map(|capability| capability.to_string())),
            found.next_obstacle().map_or("-", Rule::reason).replace('`', ""),
        ]
    });
    let rows: Vec<_> = [head.map(str::to_owned)].into_iter().chain(rows).collect();
    format!("{ABOUT}\n{}", columns(&rows))
}

fn list(items: impl Iterator<Item = String>) -> String {
    let items: Vec<_> = items.collect();
    if items.is_empty() { "-".to_owned() } else { items.join(",") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_engine_of_the_build_has_a_row() {
        // The other schemes are other ways to the same engines.
        let known = ["memory", "sqlite", "postgres", "mysql", "redis", "redlock", "etcd", "zookeeper"];
        let (registry, rows) = (Registry::builtin(), rows());
        for scheme in registry.schemes().filter(|scheme| known.contains(scheme)) {
            assert!(rows.iter().any(|found| found.engine() == scheme), "{scheme}");
        }
        assert!(rows.iter().all(|found| registry.schemes().any(|scheme| scheme == found.engine())));
    }

    #[tokio::test]
    async fn memory_says_the_same_of_itself() {
        let real = fencelock::connect("memory:").await.unwrap().guarantees();
        let kept = rows().into_iter().find(|found| found.engine() == "memory").unwrap();
        assert_eq!(kept.with_deployment(real.deployment().to_owned()), *real);
    }
}
