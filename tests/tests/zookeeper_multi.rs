//! The example that counts in ZooKeeper loses no visit.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test")]

use fencelock::zookeeper::zookeeper_client::Client;
use std::path::Path;
use std::process::{Command, Stdio};

#[tokio::test]
async fn three_programs_at_once_count_every_visit() {
    let server = fencelock_lab::ZooKeeper::start().unwrap();
    let address = server.address().to_string();
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("Cargo.toml");
    let start = |verb: &str| {
        let mut command = Command::new(env!("CARGO"));
        command.args([verb, "--quiet", "--locked", "--manifest-path"]).arg(&manifest);
        command.args(["-p", "fencelock-examples", "--features", "zookeeper", "--example", "zookeeper_multi"]);
        if verb == "run" {
            command.args(["--", &address]);
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    assert!(start("build").wait_with_output().unwrap().status.success());
    let programs = [start("run"), start("run"), start("run")];
    for program in programs {
        let output = program.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 10);
    }
    let client = Client::connect(&address).await.unwrap();
    assert_eq!(client.get_data("/visits").await.unwrap().0, b"30");
}
