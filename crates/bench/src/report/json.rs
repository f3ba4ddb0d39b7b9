//! Everything as lines of JSON: the rows as they are, then what is concluded from them, told apart by a `kind`.

use super::budgets::budgets;
use super::{engines, peers};
use crate::contender::lacks;
use crate::row::Row;
use serde::Serialize;

/// How the rows came about.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct How {
    pub(crate) quick: bool,
    pub(crate) rounds: usize,
    pub(crate) round_ms: u128,
    pub(crate) processors: usize,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Line<'r> {
    How(How),
    Budget { engine: &'r str, what: &'r str, value: f64, limit: f64, is_least: bool, met: bool },
    Peer { engine: &'r str, who: &'r str, lacks: &'r str },
}

pub(crate) fn json(rows: &[Row], how: How) -> String {
    let mut lines: String = rows.iter().map(|row| row.to_json() + "\n").collect();
    let budgets = budgets(rows);
    let budgets = budgets.iter().map(|budget| Line::Budget {
        engine: &budget.engine,
        what: budget.what,
        value: budget.value,
        limit: budget.limit,
        is_least: budget.is_least,
        met: budget.is_met(),
    });
    let peers = engines(rows).into_iter().flat_map(|engine| {
        let peers = peers::peers(rows, engine).into_iter();
        peers.filter_map(move |who| Some(Line::Peer { engine, who, lacks: lacks(engine, who)? }))
    });
    for line in [Line::How(how)].into_iter().chain(budgets).chain(peers) {
        // It is made of numbers, texts and nothing else: that cannot fail.
        lines.push_str(&serde_json::to_string(&line).unwrap_or_default());
        lines.push('\n');
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::names;

    #[test]
    fn what_is_concluded_follows_the_rows_and_is_none() {
        let row = |who: &str, ratio| Row {
            case: names::ONE_TASK.into(),
            engine: "redis".into(),
            who: who.into(),
            ratio_to_floor: Some(ratio),
            pinned: true,
            ..Row::default()
        };
        let rows = [row("ours", 0.5), row("floor", 1.0), row("SET NX", 1.2)];
        let text = json(&rows, How { quick: true, rounds: 7, round_ms: 30, processors: 2 });
        let read: Vec<_> = text.lines().filter_map(Row::from_json).collect();
        assert_eq!(read, rows);
        let rest: Vec<_> = text.lines().skip(rows.len()).collect();
        assert_eq!(
            rest,
            [
                r#"{"kind":"how","quick":true,"rounds":7,"round_ms":30,"processors":2}"#,
                r#"{"kind":"budget","engine":"redis","what":"latency, one task, of raw","value":2.0,"limit":1.15,"is_least":false,"met":false}"#,
                r#"{"kind":"peer","engine":"redis","who":"SET NX","lacks":"no token, no waiting, no renewal: the least that can be called a lock"}"#,
            ]
        );
    }
}
