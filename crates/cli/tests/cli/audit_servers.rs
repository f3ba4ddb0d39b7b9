//! What `audit` finds in the logs of processes that used a real Redis.

use crate::support::{Place, output, start, until};
use fencelock_lab::{Redis, RedisSentinel};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const LOG: &str = "FENCELOCK_TEST_LOG";
const URL: &str = "FENCELOCK_TEST_URL";
/// If set, the process holds one lock until it is told that it is lost, and makes this file when it has it.
const MARK: &str = "FENCELOCK_TEST_MARK";
const PROCESSES: usize = 8;
const ROUNDS: usize = 1_250;

/// Not a test by itself: with a log to write it is one of the processes below.
#[test]
fn a_process_that_logs() {
    let (Ok(log), Ok(url)) = (std::env::var(LOG), std::env::var(URL)) else { return };
    let file = File::create(log).unwrap();
    let logs = tracing_subscriber::fmt().json().with_max_level(tracing_subscriber::filter::LevelFilter::DEBUG);
    logs.with_writer(std::sync::Mutex::new(file)).init();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = fencelock::builder(&url).holder("library").connect().await.unwrap();
        if let Ok(mark) = std::env::var(MARK) {
            let lock = client.named("orders/1001").ttl(Duration::from_secs(45)).note("req-1");
            let guard = lock.acquire().await.unwrap();
            fs::write(mark, "").unwrap();
            guard.lost().await;
            assert!(guard.release().await.is_err());
            return;
        }
        let mut random = u64::from(std::process::id());
        for _ in 0..ROUNDS {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let name = format!("orders/{}", (random >> 33) % 12);
            let guard = client.named(&name).wait_at_most(Duration::from_secs(60)).acquire().await.unwrap();
            tokio::task::yield_now().await;
            guard.release().await.unwrap();
        }
        client.close().await;
    });
}

fn process(log: &Path, url: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "audit_servers::a_process_that_logs", "--nocapture"]);
    command.env(LOG, log).env(URL, url).stdout(Stdio::null());
    command
}

#[test]
fn ten_thousand_clean_holds_by_eight_processes_are_clean() {
    let server = Redis::start().unwrap();
    let place = Place::at(format!("redis://{}?request_timeout=10s", server.address()));
    let logs: Vec<_> = (0..PROCESSES).map(|at| place.path(&format!("{at}.log"))).collect();
    let mut processes: Vec<_> = logs.iter().map(|log| start(process(log, &place.url()))).collect();
    for process in &mut processes {
        // Not `code()`, since all of them together may take longer than one thing may.
        assert_eq!(process.child.wait().unwrap().code(), Some(0));
    }
    let said = output(place.fencelock(["audit".as_ref()].into_iter().chain(logs.iter().map(|log| log.as_os_str()))));
    assert_eq!(said.code, Some(0), "{}{}", said.stdout, said.stderr);
    assert!(said.stdout.starts_with("10000 holds of 12 names in 8 files"), "{}", said.stdout);
    assert!(said.stdout.ends_with("nothing is wrong\n"), "{}", said.stdout);

    // A second holder beside one of them, all in order otherwise, is found among all of these.
    let text = fs::read_to_string(&logs[0]).unwrap();
    let of = |event: &str| text.lines().find(|line| line.contains(&format!("\"event\":\"{event}\""))).unwrap();
    let forged = format!("{}\n{}\n", of("granted"), of("released").replace("\"released\"", "\"renewed\""));
    fs::write(place.path("forged.log"), forged.replace("\"claim\":\"", "\"claim\":\"f")).unwrap();
    let all = ["audit".as_ref(), "forged.log".as_ref()];
    let said = output(place.fencelock(all.into_iter().chain(logs.iter().map(|log| log.as_os_str()))));
    assert_eq!(said.code, Some(1));
    assert!(said.stdout.contains("overlap: orders/") && said.stdout.contains("token order"), "{}", said.stdout);
}

#[test]
fn a_double_hold_after_a_fail_over_is_found() {
    let mut set = RedisSentinel::start().unwrap();
    let hosts: Vec<_> = set.sentinels().iter().map(ToString::to_string).collect();
    let url =
        format!("redis+sentinel://{}/{}?request_timeout=1500ms&connect_timeout=1500ms", hosts.join(","), set.name());
    let place = Place::at(url);
    // The replicas do not hear of the lock: asynchronous replication may be late at any time.
    let master = &set.servers()[0];
    for replica in &set.servers()[1..] {
        replica.command(&["CONFIG", "SET", "masterauth", "no-such-password"]).unwrap();
        replica.command(&["CLIENT", "KILL", "TYPE", "master"]).unwrap();
    }
    until("the replicas to be cut off", || {
        master.command(&["INFO", "replication"]).unwrap().contains("connected_slaves:0")
    });
    let mut command = process(&place.path("first.log"), &place.url());
    command.env(MARK, place.path("held"));
    let mut first = start(command);
    until("the first holder", || place.path("held").exists());
    set.servers_mut()[0].server_mut().kill();
    // The first believes in its lock until its next renewal, and the new master knows nothing of it.
    let mut code = Some(69);
    until("the second holder", || {
        let options = "--log-format json --wait 60s --holder shell --note req-2";
        let mut command = place.run(options, "orders/1001", "sleep 0.3");
        command.stderr(File::create(place.path("second.log")).unwrap());
        code = start(command).code();
        // While there is no master it cannot connect.
        code != Some(69)
    });
    assert_eq!(code, Some(0), "{}", place.read("second.log"));
    assert_eq!(first.code(), Some(0), "{}", place.read("first.log"));
    let said = output(place.fencelock(["audit", "first.log", "second.log", "--html", "page.html"]));
    assert_eq!(said.code, Some(1), "{}{}", said.stdout, said.stderr);
    assert!(said.stdout.contains("overlap: orders/1001 was held by two"), "{}", said.stdout);
    for part in ["of library, note req-1", "of shell, note req-2", "stale release: orders/1001"] {
        assert!(said.stdout.contains(part), "{}", said.stdout);
    }
    assert!(place.read("page.html").contains("class=\"b\""));
}
