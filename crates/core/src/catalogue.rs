//! Guarantees as text, so that what engines said of themselves on real servers can be kept.

use crate::{Assumption, Capability, Guarantees, Level, Liveness, Rule, RuleOutcome, Scope};
use std::fmt::Write;

const SCOPES: [Scope; 3] = [Scope::Process, Scope::Host, Scope::Network];
const OUTCOMES: [RuleOutcome; 5] =
    [RuleOutcome::Proved, RuleOutcome::Attested, RuleOutcome::Assumed, RuleOutcome::Refused, RuleOutcome::Unknown];

const fn ends(liveness: Liveness) -> &'static str {
    match liveness {
        Liveness::Lease => "lease",
        Liveness::Session => "session",
    }
}

/// The text of several guarantees, which [`read_catalogue`] reads back.
///
/// The deployment's words stand as they are; give one that does not depend on
/// the machine with [`Guarantees::with_deployment`].
#[must_use]
pub fn catalogue<'a>(found: impl IntoIterator<Item = &'a Guarantees>) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    for found in found {
        let _ = writeln!(text, "== {}: {}", found.engine(), found.deployment());
        let _ = writeln!(text, "reach {}", found.scope());
        let _ = writeln!(text, "ends {}", ends(found.liveness()));
        for assumption in found.assumptions() {
            let _ = writeln!(text, "leans {}", assumption.id());
        }
        for capability in found.capabilities() {
            let _ = writeln!(text, "can {capability}");
        }
        for rule in found.rules() {
            let attestable = if rule.is_attestable() { " attestable" } else { "" };
            let _ = writeln!(text, "rule {} {} {}{attestable}", rule.id(), rule.level(), rule.outcome());
            let _ = writeln!(text, "  {}", rule.reason());
            if let Some(fix) = rule.fix() {
                let _ = writeln!(text, "  fix: {fix}");
            }
        }
        text.push('\n');
    }
    text
}

/// Reads what [`catalogue`] wrote. Lines that it would not have written are passed over.
#[must_use]
pub fn read_catalogue(text: &'static str) -> Vec<Guarantees> {
    text.split("== ").filter_map(read).collect()
}

fn read(entry: &'static str) -> Option<Guarantees> {
    let mut lines = entry.lines().peekable();
    let (engine, deployment) = lines.next()?.split_once(": ")?;
    let scope = lines.next()?.strip_prefix("reach ")?;
    let scope = SCOPES.into_iter().find(|known| known.to_string() == scope)?;
    let liveness = match lines.next()?.strip_prefix("ends ")? {
        "session" => Liveness::Session,
        _ => Liveness::Lease,
    };
    let mut found = Guarantees::of(engine, deployment, scope, liveness);
    while let Some(line) = lines.next() {
        let mut words = line.split(' ');
        match (words.next(), words.next()) {
            (Some("leans"), Some(id)) => {
                let assumption = Assumption::ALL.into_iter().find(|known| known.id() == id)?;
                found = found.with_assumption(assumption);
            }
            (Some("can"), Some(name)) => {
                let capability = Capability::ALL.into_iter().find(|known| known.to_string() == name)?;
                found = found.with_capability(capability);
            }
            (Some("rule"), Some(id)) => {
                let level: Level = words.next()?.parse().ok()?;
                let outcome = words.next()?;
                let outcome = OUTCOMES.into_iter().find(|known| known.to_string() == outcome)?;
                let reason = lines.next()?.trim_start();
                let fix =
                    lines.next_if(|line| line.starts_with("  fix: ")).and_then(|line| line.strip_prefix("  fix: "));
                let rule = Rule::new(id, level).kept(outcome, reason, fix);
                found = found.with_rule(if words.next().is_some() { rule.attestable() } else { rule });
            }
            _ => {}
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let one = Guarantees::of("e", "one node: as it comes", Scope::Host, Liveness::Session)
            .with_assumption(Assumption::ServerClock)
            .with_capability(Capability::PushLoss)
            .with_rule(Rule::new("e.clock", Level::Leased).assumed("nobody can probe it"))
            .with_rule(Rule::new("e.disk", Level::Fenced).unknown("hidden").attestable())
            .with_rule(Rule::new("e.single", Level::Replicated).refused("one host", "use etcd"));
        let two = Guarantees::of("f", "two", Scope::Process, Liveness::Lease)
            .with_rule(Rule::new("f.disk", Level::Fenced).refused("not synced", "sync").attestable())
            .attest(["f.disk"])
            .unwrap();
        let text: &'static str = Box::leak(catalogue([&one, &two]).into_boxed_str());
        assert_eq!(read_catalogue(text), [one, two]);
        assert!(read_catalogue("== nothing").is_empty());
    }
}
