//! The lab finds what is wrong on purpose, and however a run ends, nothing of it is left.

#![allow(clippy::unwrap_used, reason = "no library code")]

use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const LAB: &str = env!("CARGO_BIN_EXE_fencelock-lab");

/// A run of the lab whose temporary folders are all in one of the test's own.
struct Lab {
    child: Child,
    temporary: TempDir,
}

fn command(temporary: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(LAB);
    command.arg("run").args(arguments).env("TMPDIR", temporary);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn open_to_servers() -> TempDir {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

impl Lab {
    fn start(arguments: &[&str]) -> Self {
        let temporary = open_to_servers();
        let child = command(temporary.path(), arguments).spawn().unwrap();
        Self { child, temporary }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.child.id().cast_signed()).unwrap(), signal).unwrap();
    }

    /// What it noted of its processes, once there are `count` of them and all workers are among them.
    fn processes(&self, count: usize) -> Vec<(u32, u64)> {
        wait_for(Duration::from_secs(60), || {
            let folder = entries(self.temporary.path()).into_iter().next()?;
            let noted = std::fs::read_to_string(folder.join("processes")).ok()?;
            let noted: Vec<_> = noted
                .lines()
                .filter_map(|line| line.split_once(' '))
                .filter_map(|(id, start)| Some((id.parse().ok()?, start.parse().ok()?)))
                .collect();
            // Short-lived helpers are noted too: those that live are counted.
            (noted.iter().filter(|process| is_alive(**process)).count() >= count).then_some(noted)
        })
    }

    fn ended(&mut self, within: Duration) -> ExitStatus {
        wait_for(within, || self.child.try_wait().unwrap())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait_for<T>(within: Duration, mut what: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + within;
    loop {
        if let Some(found) = what() {
            return found;
        }
        assert!(Instant::now() < end, "not within {within:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn is_alive((id, start): (u32, u64)) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{id}/stat")) else { return false };
    let fields: Vec<_> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields.first() != Some(&"Z") && fields.get(19).and_then(|field| field.parse().ok()) == Some(start)
}

fn said_by(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}

/// Namespaces, links, firewall rules and mounts that name the process or its folder.
fn left_in_the_kernel(id: u32, folder: &Path) -> Vec<String> {
    let mark = format!("flab{id}");
    let everything = [
        said_by("ip", &["netns", "list"]),
        said_by("ip", &["-o", "link", "show"]),
        said_by("nft", &["list", "ruleset"]),
        said_by("iptables-save", &[]),
        std::fs::read_to_string("/proc/mounts").unwrap(),
    ];
    let named = |line: &&str| line.contains(&mark) || line.contains(&*folder.to_string_lossy());
    everything.iter().flat_map(|text| text.lines()).filter(named).map(str::to_owned).collect()
}

fn assert_nothing_is_left(id: u32, temporary: &Path, processes: &[(u32, u64)]) {
    let left: Vec<_> = processes.iter().filter(|process| is_alive(**process)).collect();
    assert!(left.is_empty(), "processes: {left:?}");
    assert_eq!(entries(temporary), Vec::<PathBuf>::new(), "files");
    // The kernel takes a namespace's links away some time after the namespace.
    let until = Instant::now() + Duration::from_secs(20);
    while !left_in_the_kernel(id, temporary).is_empty() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(left_in_the_kernel(id, temporary), Vec::<String>::new());
}

const REDIS: [&str; 6] = ["--engine", "redis", "--deployment", "AOF always", "--fault", "servers-stopped"];

#[test]
fn a_service_that_never_heals_is_found() {
    let temporary = open_to_servers();
    let status = command(temporary.path(), &["--self-test", "--seed", "5"]).status().unwrap();
    assert!(status.success(), "{status}: L1 was not found broken");
    assert_eq!(entries(temporary.path()), Vec::<PathBuf>::new());
}

#[test]
fn after_ctrl_c_nothing_is_left() {
    // Three hosts of their own, three servers, four workers.
    let mut lab = Lab::start(&["--engine", "etcd", "--deployment", "three hosts", "--fault", "leader-isolated"]);
    let processes = lab.processes(7);
    let (id, temporary) = (lab.child.id(), lab.temporary.path().to_owned());
    assert!(!left_in_the_kernel(id, &temporary).is_empty(), "it has namespaces while it runs");
    lab.signal(Signal::INT);
    let status = lab.ended(Duration::from_secs(90));
    assert!(!status.success(), "what ended early has not shown all");
    assert_nothing_is_left(id, &temporary, &processes);
}

#[test]
fn after_a_second_ctrl_c_it_ends_at_once_and_nothing_is_left() {
    let mut lab = Lab::start(&["--engine", "etcd", "--deployment", "three hosts", "--fault", "leader-isolated"]);
    let processes = lab.processes(3);
    let (id, temporary) = (lab.child.id(), lab.temporary.path().to_owned());
    lab.signal(Signal::INT);
    std::thread::sleep(Duration::from_millis(5));
    lab.signal(Signal::INT);
    let status = lab.ended(Duration::from_secs(20));
    assert_eq!(status.code(), Some(130), "it did not wait for the end of what it did");
    assert_nothing_is_left(id, &temporary, &processes);
}

#[test]
fn what_a_killed_run_left_goes_with_the_next() {
    let mut lab = Lab::start(&REDIS);
    let processes = lab.processes(5);
    let (id, temporary) = (lab.child.id(), lab.temporary.path().to_owned());
    lab.signal(Signal::KILL);
    lab.ended(Duration::from_secs(5));
    assert_eq!(entries(&temporary).len(), 1, "its folder is left");
    // A folder with the same kind of name, and no owner noted in it, is nobody's to remove.
    let other = temporary.join("fencelock-lab-run-other");
    std::fs::create_dir(&other).unwrap();
    let status = command(&temporary, &["--engine", "nothing of that name"]).status().unwrap();
    assert_eq!(status.code(), Some(2));
    assert_eq!(entries(&temporary), std::slice::from_ref(&other));
    std::fs::remove_dir(other).unwrap();
    wait_for(Duration::from_secs(5), || processes.iter().all(|process| !is_alive(*process)).then_some(()));
    assert_nothing_is_left(id, &temporary, &processes);
}
