//! A quick run, of the engines that need no server: every line of the results is there, and soon.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test")]

use serde_json::Value;
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn a_quick_run_writes_every_row_and_the_report() {
    let folder = tempfile::tempdir().unwrap();
    let (json, html) = (folder.path().join("rows.jsonl"), folder.path().join("report.html"));
    let started = Instant::now();
    let output = Command::new(env!("CARGO_BIN_EXE_fencelock-bench"))
        .args(["--quick", "--engine", "memory,sqlite", "--case", "one task,64 tasks"])
        .args(["--json".as_ref(), json.as_os_str(), "--html".as_ref(), html.as_os_str()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(started.elapsed() < Duration::from_secs(120), "{:?}", started.elapsed());
    let lines = std::fs::read_to_string(json).unwrap();
    let rows: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for engine in ["memory", "sqlite"] {
        for case in ["one task", "64 tasks"] {
            for who in ["ours", "floor", "floor again"] {
                for pinned in [true, false] {
                    let is = |row: &&Value| {
                        row["engine"] == engine && row["case"] == case && row["who"] == who && row["pinned"] == pinned
                    };
                    let found: Vec<_> = rows.iter().filter(is).collect();
                    assert!(
                        matches!(found[..], [row] if row["ops_per_s"].as_f64() > Some(0.0)
                        && row["p50_us"].as_f64() <= row["p99_us"].as_f64()
                        && row["ratio_to_floor"].as_f64() > Some(0.0)
                        && row["rounds"].as_u64() >= Some(7)),
                        "{engine}, {case}, {who}: {found:?}"
                    );
                }
            }
        }
    }
    let page = std::fs::read_to_string(html).unwrap();
    assert!(page.contains("<svg") && page.contains("throughput, 64 tasks, of raw"));
}
