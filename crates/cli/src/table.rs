//! `fencelock guarantees`: what each engine gives at most, by deployment.

use crate::exit::{self, Outcome};
use crate::output::{answer, answer_json, columns};
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
const ROWS: [Row; 14] = [
    row("memory", "tasks of one process", [NONE, NONE, NONE], true, "advisory"),
    row("sqlite", "one host, local file system, synchronous=FULL", ["safe", NONE, "safe"], false, "fenced"),
    row(
        "postgres, mysql",
        "asynchronous or semi-synchronous fail-over",
        ["safe", "lock row can vanish", TWO],
        false,
        "advisory",
    ),
    row("postgres, mysql", "one server, durable settings", ["safe", NONE, TWO], false, "fenced"),
    row("postgres, mysql", "strict synchronous replication, attested", ["safe", "safe", TWO], false, "replicated"),
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
    row("redlock", "3 or more nodes, odd, AOF always", ["safe", "loss of a minority is safe", TWO], false, "fenced"),
    row("etcd", "before 3.4.38, 3.5.23, 3.6.5", [TWO, TWO, "safe"], true, "advisory"),
    row("etcd", "3 or 5 members (1 member: fenced)", ["safe", "safe", "safe"], true, "replicated"),
    row("zookeeper", "session too short for tickTime * (syncLimit + 1)", [TWO, TWO, TWO], true, "advisory"),
    row("zookeeper", "3 or 5 voters (standalone: fenced)", ["safe", "safe", "safe"], true, "replicated"),
];

/// Shows the table.
pub(crate) fn show(json: bool) -> Outcome {
    if json {
        answer_json(&Value::Array(ROWS.iter().map(as_json).collect()))?;
    } else {
        answer(&as_text())?;
    }
    Ok(exit::OK)
}

fn as_text() -> String {
    let head = ["ENGINE", "DEPLOYMENT", "RESTART, POWER LOSS", "FAIL-OVER", "CLOCK JUMPS FORWARD", "FIFO", "LEVEL"];
    let rows = ROWS.iter().map(|row| {
        let fifo = if row.fifo { "yes" } else { "no" };
        [row.engine, row.deployment, row.restart, row.failover, row.clock_jump, fifo, row.level].map(str::to_owned)
    });
    let rows: Vec<_> = [head.map(str::to_owned)].into_iter().chain(rows).collect();
    let note = "At most: `fencelock check` probes what a deployment really gives, and why.\n";
    format!("{}\n{note}", columns(&rows))
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
    use fencelock::Level;

    #[test]
    fn every_level_is_one() {
        for row in &ROWS {
            assert!(row.level.parse::<Level>().is_ok(), "{}", row.level);
        }
    }
}
