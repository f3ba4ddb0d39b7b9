//! The guarantee table, made from the data.

use crate::{Guarantees, Level};
use std::fmt::Write;

/// A Markdown table with a line for each deployment: its name, as the reader
/// knows it, and what was found there.
///
/// The README's table is made by this, and a test compares it.
#[must_use]
pub fn guarantee_table<'a>(deployments: impl IntoIterator<Item = (&'a str, &'a Guarantees)>) -> String {
    let mut table = String::from(
        "| engine | deployment | level | reach | leans on | capabilities | why not more |\n|---|---|---|---|---|---|---|\n",
    );
    for (deployment, found) in deployments {
        let level = found.level().map_or_else(|| "none".to_owned(), |level| format!("`{level}`"));
        let leans = list(found.assumptions().map(|assumption| assumption.id().to_owned()));
        let capabilities = list(found.capabilities().map(|capability| format!("`{capability}`")));
        let (engine, scope, why) = (found.engine(), found.scope(), why_not_more(found));
        // Writing to a string cannot fail.
        let _ = writeln!(table, "| {engine} | {deployment} | {level} | {scope} | {leans} | {capabilities} | {why} |");
    }
    table
}

fn list(items: impl Iterator<Item = String>) -> String {
    let items: Vec<_> = items.collect();
    if items.is_empty() { "–".to_owned() } else { items.join(", ") }
}

/// The reason of the first rule that fails for the next level up.
fn why_not_more(found: &Guarantees) -> String {
    let next = Level::ALL.into_iter().find(|level| found.level().is_none_or(|given| *level > given));
    let rule = next.and_then(|next| found.obstacles(next).next());
    rule.map_or_else(|| "–".to_owned(), |rule| rule.reason().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Assumption, Capability, Liveness, Rule, Scope};

    #[test]
    fn a_line_says_level_and_reason() {
        let found = Guarantees::of("e", "as probed", Scope::Host, Liveness::Lease)
            .with_assumption(Assumption::ServerMemory)
            .with_capability(Capability::Fifo)
            .with_rule(Rule::new("e.disk", Level::Fenced).proved("seen"))
            .with_rule(Rule::new("e.one", Level::Replicated).refused("one host", "use more"));
        let table = guarantee_table([("one file", &found)]);
        assert_eq!(table.lines().nth(2), Some("| e | one file | `fenced` | host | T4 | `fifo` | one host |"));
    }
}
