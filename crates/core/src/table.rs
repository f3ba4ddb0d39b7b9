//! The guarantee table, made from the data.

use crate::{Guarantees, Rule};
use std::fmt::Write;

/// A Markdown table with a line for each deployment and what was found there.
///
/// The README's table is made by this, and a test compares it.
#[must_use]
pub fn guarantee_table<'a>(deployments: impl IntoIterator<Item = &'a Guarantees>) -> String {
    let mut table = String::from(
        "| engine | deployment | level | reach | leans on | capabilities | why not more |\n|---|---|---|---|---|---|---|\n",
    );
    for found in deployments {
        let level = found.level().map_or_else(|| "none".to_owned(), |level| format!("`{level}`"));
        let leans = list(found.assumptions().map(|assumption| assumption.id().to_owned()));
        let capabilities = list(found.capabilities().map(|capability| format!("`{capability}`")));
        let (engine, deployment, scope) = (found.engine(), found.deployment(), found.scope());
        let why = why_not_more(found);
        // Writing to a string cannot fail.
        let _ = writeln!(table, "| {engine} | {deployment} | {level} | {scope} | {leans} | {capabilities} | {why} |");
    }
    table
}

fn list(items: impl Iterator<Item = String>) -> String {
    let items: Vec<_> = items.collect();
    if items.is_empty() { "–".to_owned() } else { items.join(", ") }
}

fn why_not_more(found: &Guarantees) -> String {
    let reason = found.next_obstacle().map_or("–", Rule::reason);
    reason.split(' ').map(as_code).collect::<Vec<_>>().join(" ")
}

/// The name of a setting as Markdown has it, wherever the reason comes from.
fn as_code(word: &str) -> String {
    let name = word.trim_matches(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let is_bare = name.contains('_') && !word.contains('`');
    if is_bare { word.replace(name, &format!("`{name}`")) } else { word.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Assumption, Capability, Level, Liveness, Scope};

    #[test]
    fn a_line_says_level_and_reason() {
        let found = Guarantees::of("e", "one file", Scope::Host, Liveness::Lease)
            .with_assumption(Assumption::ServerMemory)
            .with_capability(Capability::Fifo)
            .with_rule(Rule::new("e.disk", Level::Fenced).proved("seen"))
            .with_rule(Rule::new("e.one", Level::Replicated).refused("one_host: it is `one_file`", "use more"));
        let table = guarantee_table([&found]);
        assert_eq!(
            table.lines().nth(2),
            Some("| e | one file | `fenced` | host | T4 | `fifo` | `one_host`: it is `one_file` |")
        );
    }
}
