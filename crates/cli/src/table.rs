//! `fencelock guarantees`: what each engine gives at most, by deployment.

use crate::exit::{self, Outcome};
use crate::output::{answer, answer_json, columns};
use fencelock::Registry;
use serde_json::{Value, json};

/// One line of the table.
struct Row {
    engine: &'static str,
    deployment: &'static str,
    /// After a restart or a power loss of the server.
    restart: &'static str,
    failover: &'static str,
    /// When the server's clock jumps forward.
    clock_jump: &'static str,
    fifo: bool,
    level: &'static str,
}

const fn row(
    engine: &'static str,
    deployment: &'static str,
    survives: [&'static str; 3],
    fifo: bool,
    level: &'static str,
) -> Row {
    let [restart, failover, clock_jump] = survives;
    Row { engine, deployment, restart, failover, clock_jump, fifo, level }
}

const NONE: &str = "-";
const TWO: &str = "two holders, tokens good";

/// The rows, weakest deployment of an engine first.
const ROWS: [Row; 20] = [
    row("memory", "tasks of one process", [NONE, NONE, NONE], true, "advisory"),
    row("sqlite", "one host, local file system, synchronous=FULL", ["safe", NONE, "safe"], false, "fenced"),
    row(
        "postgres",
        "asynchronous or semi-synchronous fail-over",
        ["safe", "lock row can vanish", TWO],
        false,
        "advisory",
    ),
    row("postgres", "one server, durable settings", ["safe", NONE, TWO], false, "fenced"),
    row("postgres", "strict synchronous replication, attested", ["safe", "safe", TWO], false, "replicated"),
    row("mysql", "asynchronous or semi-synchronous fail-over", ["safe", "lock row can vanish", TWO], false, "advisory"),
    row("mysql", "one server, durable settings", ["safe", NONE, TWO], false, "fenced"),
    row("mysql", "group replication, attested", ["safe", "safe", TWO], false, "replicated"),
    row(
        "redis",
        "no persistence, RDB, or AOF everysec",
        ["two holders, tokens may repeat", NONE, "two holders"],
        false,
        "advisory",
    ),
    row(
        "redis",
        "replicas, Sentinel or Cluster, with or without WAIT",
        ["safe", "two holders, tokens may repeat", TWO],
        false,
        "advisory",
    ),
    row("redis", "one server, AOF always, noeviction", ["safe", NONE, TWO], false, "fenced"),
    row("redlock", "no durable counters", ["tokens stop until seeded again", NONE, "two holders"], false, "advisory"),
    row(
        "redlock",
        "the same, redlock.delayed_restart attested",
        ["tokens stop until seeded again", NONE, "two holders"],
        false,
        "leased",
    ),
    row("redlock", "3 or more nodes, odd, AOF always", ["safe", "loss of a minority is safe", TWO], false, "fenced"),
    row("etcd", "before 3.4.38, 3.5.23, 3.6.5", [TWO, TWO, "safe"], true, "advisory"),
    row("etcd", "1 member", ["safe", NONE, "safe"], true, "fenced"),
    row("etcd", "3 or 5 members", ["safe", "safe", "safe"], true, "replicated"),
    row("zookeeper", "session too short for tickTime * (syncLimit + 1)", [TWO, TWO, "safe"], true, "advisory"),
    row("zookeeper", "standalone", ["safe", NONE, "safe"], true, "fenced"),
    row("zookeeper", "3 or 5 voters", ["safe", "safe", "safe"], true, "replicated"),
];

/// The rows of the engines that this build has.
fn rows() -> impl Iterator<Item = &'static Row> {
    let registry = Registry::builtin();
    let schemes: Vec<_> = registry.schemes().map(str::to_owned).collect();
    ROWS.iter().filter(move |row| schemes.iter().any(|scheme| scheme == row.engine))
}

const ABOUT: &str = "\
The most that each engine of this build gives, by deployment, as its guide states it.
`fencelock check` probes what a deployment really gives, and why.
";

/// Shows the table.
pub(crate) fn show(json: bool) -> Outcome {
    if json {
        answer_json(&Value::Array(rows().map(as_json).collect()))?;
    } else {
        answer(&as_text())?;
    }
    Ok(exit::OK)
}

fn as_text() -> String {
    let head = ["ENGINE", "DEPLOYMENT", "RESTART, POWER LOSS", "FAIL-OVER", "CLOCK JUMPS FORWARD", "FIFO", "LEVEL"];
    let rows = rows().map(|row| {
        let fifo = if row.fifo { "yes" } else { "no" };
        [row.engine, row.deployment, row.restart, row.failover, row.clock_jump, fifo, row.level].map(str::to_owned)
    });
    let rows: Vec<_> = [head.map(str::to_owned)].into_iter().chain(rows).collect();
    format!("{ABOUT}\n{}", columns(&rows))
}

fn as_json(row: &Row) -> Value {
    json!({
        "engine": row.engine,
        "deployment": row.deployment,
        "restart": row.restart,
        "failover": row.failover,
        "clock_jump": row.clock_jump,
        "fifo": row.fifo,
        "level": row.level,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencelock::{Capability, Level};

    fn level(text: &str) -> Level {
        text.trim_matches('`').parse().unwrap()
    }

    fn most(levels: impl Iterator<Item = (Level, bool)>) -> Option<(Level, bool)> {
        levels.max_by_key(|(level, _)| *level)
    }

    /// The README's table is what the engines say of themselves, on real servers.
    #[test]
    fn the_most_is_what_the_readme_says() {
        let readme = include_str!("../../../README.md");
        let lines: Vec<Vec<_>> = readme
            .lines()
            .skip_while(|line| !line.contains("guarantees:begin"))
            .take_while(|line| !line.contains("guarantees:end"))
            .map(|line| line.split('|').map(str::trim).collect())
            .filter(|cells: &Vec<_>| cells.len() > 6 && ROWS.iter().any(|row| row.engine == cells[1]))
            .collect();
        assert!(lines.len() > 5);
        for cells in &lines {
            let of_this = lines.iter().filter(|other| other[1] == cells[1]);
            let theirs = most(of_this.map(|cells| (level(cells[3]), cells[6].contains("`fifo`"))));
            // What only an attestation gives may stand in the README, and need not.
            let given = |attested: bool| {
                let rows = ROWS.iter().filter(|row| row.engine == cells[1]);
                let rows = rows.filter(move |row| attested || !row.deployment.contains("attested"));
                most(rows.map(|row| (level(row.level), row.fifo)))
            };
            assert!(theirs == given(true) || theirs == given(false), "{}: {theirs:?}, {:?}", cells[1], given(true));
        }
    }

    #[tokio::test]
    async fn memory_says_the_same_of_itself() {
        let guarantees = fencelock::connect("memory:").await.unwrap().guarantees();
        let row = rows().find(|row| row.engine == "memory").unwrap();
        assert_eq!(guarantees.level(), Some(level(row.level)));
        assert_eq!(guarantees.capabilities().any(|c| c == Capability::Fifo), row.fifo);
    }

    #[test]
    fn every_level_is_one_and_every_engine_of_the_build_has_a_row() {
        assert!(ROWS.iter().all(|row| row.level.parse::<Level>().is_ok()));
        let registry = Registry::builtin();
        // The other schemes are other ways to the same engines.
        let known = ["memory", "sqlite", "postgres", "mysql", "redis", "redlock", "etcd", "zookeeper"];
        for scheme in registry.schemes().filter(|scheme| known.contains(scheme)) {
            assert!(rows().any(|row| row.engine == scheme), "{scheme}");
        }
    }
}
