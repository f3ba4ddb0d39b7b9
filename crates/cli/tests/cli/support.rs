//! A place for a test to work in, and processes that do not outlive it.

use sqlx::{Connection, Executor, SqliteConnection};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The longest that anything here may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// A directory with a lock database, and no other configuration but its URL.
pub(crate) struct Place {
    directory: TempDir,
    url: Option<String>,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), url: None }
    }

    /// With the locks on a server.
    #[cfg(any(
        feature = "etcd",
        feature = "mysql",
        feature = "postgres",
        feature = "redis",
        feature = "redlock",
        feature = "zookeeper"
    ))]
    pub(crate) fn at(url: impl Into<String>) -> Self {
        Self { url: Some(url.into()), ..Self::new() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Unless it is a server's, of a file for whose writers everybody waits as long as a loaded machine may make them.
    pub(crate) fn url(&self) -> String {
        self.url.clone().unwrap_or_else(|| format!("{}?request_timeout=30s&busy_timeout=20s", self.file()))
    }

    /// The lock database, to whom knows nothing of locks.
    pub(crate) fn file(&self) -> String {
        format!("sqlite:{}", self.path("locks.db").display())
    }

    /// With the time-outs that a file has by itself: for whoever keeps it away.
    pub(crate) fn with_a_file_as_it_is() -> Self {
        let mut place = Self::new();
        place.url = Some(place.file());
        place
    }

    /// The text of a file, empty if there is none.
    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// `program` in this place, knowing its locks.
    pub(crate) fn program(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        for (name, value) in self.variables() {
            command.env(name, value);
        }
        command.current_dir(self.directory.path()).env_remove("RUST_LOG").stdin(Stdio::null());
        command
    }

    pub(crate) fn variables(&self) -> [(&'static str, String); 4] {
        let home = self.directory.path().display().to_string();
        [
            ("FENCELOCK_URL", self.url()),
            ("BINARY", BINARY.to_owned()),
            ("HOME", home.clone()),
            ("XDG_CONFIG_HOME", home),
        ]
    }

    pub(crate) fn fencelock<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = self.program(BINARY);
        command.args(args);
        command
    }

    /// `fencelock run OPTIONS NAME -- sh -c SCRIPT`
    pub(crate) fn run(&self, options: &str, name: &str, script: &str) -> Command {
        let mut command = self.fencelock(["run"]);
        command.args(options.split_whitespace()).args([name, "--", "sh", "-c", script]);
        command
    }

    /// What somebody does to the lock database by hand.
    pub(crate) fn sql(&self, statement: &'static str) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut connection = SqliteConnection::connect(&self.file()).await.unwrap();
            connection.execute("PRAGMA busy_timeout = 10000").await.unwrap();
            assert!(connection.execute(statement).await.unwrap().rows_affected() > 0, "{statement}");
            connection.close().await.unwrap();
        });
    }

    /// Keeps every writer of the lock database out, until what this returns is called.
    pub(crate) fn engine_away(&self) -> impl FnOnce() + use<> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let url = self.file();
        let mut connection = runtime.block_on(async {
            let mut connection = SqliteConnection::connect(&url).await.unwrap();
            connection.execute("PRAGMA busy_timeout = 10000").await.unwrap();
            connection.execute("BEGIN IMMEDIATE").await.unwrap();
            connection
        });
        move || {
            runtime.block_on(async {
                connection.execute("ROLLBACK").await.unwrap();
                connection.close().await.unwrap();
            });
        }
    }

    /// Who holds `name`, as `status --json` tells it.
    pub(crate) fn is_held(&self, name: &str) -> bool {
        output(self.fencelock(["status", "--json", name])).stdout.contains("\"held\": true")
    }
}

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_fencelock");

/// How a process ended, and what it said.
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) fn output(mut command: Command) -> Said {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Said { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
}

/// A process that is killed when the test ends.
pub(crate) struct Running {
    pub(crate) child: Child,
}

pub(crate) fn start(mut command: Command) -> Running {
    Running { child: command.spawn().unwrap() }
}

impl Running {
    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(name, self.pid());
    }

    /// Waits for its end, for as long as anything may take.
    pub(crate) fn end(&mut self) -> ExitStatus {
        let mut ended = None;
        until("the end of a process", || {
            ended = self.child.try_wait().unwrap();
            ended.is_some()
        });
        ended.unwrap()
    }

    pub(crate) fn code(&mut self) -> Option<i32> {
        self.end().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal by its name, without `SIG`, to one process.
pub(crate) fn signal(name: &str, pid: i32) {
    let status = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap();
    assert!(status.success(), "kill -{name} {pid}");
}

/// Asks again and again until it is so.
pub(crate) fn until(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < LIMIT, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// State, parent and group of a process; `None` once it is gone or dead.
pub(crate) fn stat(pid: i32) -> Option<(char, i32, i32)> {
    let stat = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    let mut fields = stat[stat.rfind(')')? + 2..].split(' ');
    let state = fields.next()?.chars().next()?;
    let mut number = || fields.next()?.parse().ok();
    let stat = (state, number()?, number()?);
    (!matches!(state, 'Z' | 'X')).then_some(stat)
}

/// Whether the group of this leader has stopped. A shell whose new process stopped between
/// `vfork` and `exec` sleeps (`D`) until that one goes on, and so has stopped too.
pub(crate) fn is_stopped(leader: i32) -> bool {
    let states = group(leader).into_iter().filter_map(stat).map(|(state, ..)| state).collect::<Vec<_>>();
    states.contains(&'T') && states.iter().all(|state| matches!(state, 'T' | 'D'))
}

/// Living processes for which `is_one` says so, given parent and group.
pub(crate) fn processes(is_one: impl Fn(i32, i32) -> bool) -> Vec<i32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| stat(*pid).is_some_and(|(_, parent, group)| is_one(parent, group))).collect()
}

/// Living processes of a group.
pub(crate) fn group(group: i32) -> Vec<i32> {
    processes(|_, of| of == group)
}

/// The group of the command under this supervisor, once it runs.
pub(crate) fn command_of(supervisor: i32) -> i32 {
    let mut found = None;
    until("the command", || {
        let children = processes(|parent, _| parent == supervisor);
        found =
            children.into_iter().find(|pid| stat(*pid).is_some_and(|(_, _, group)| group == *pid) && !is_ours(*pid));
        found.is_some()
    });
    found.unwrap()
}

/// The watchdog of this supervisor, once it watches.
pub(crate) fn watchdog_of(supervisor: i32) -> i32 {
    let mut found = None;
    until("the watchdog", || {
        let name = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        found = processes(|parent, _| parent == supervisor).into_iter().find(|pid| name(pid) == "lock-watchdog\n");
        found.is_some()
    });
    found.unwrap()
}

/// Whether the process is this program in one of its parts.
fn is_ours(pid: i32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline"))
        .is_ok_and(|line| line.starts_with(b"fencelock\0") || line.starts_with(b"lock-watchdog\0"))
}

/// A script of two processes that append `beat` to the file `log` every few
/// milliseconds, whatever TERM says.
pub(crate) const BEATS: &str = "\
    trap '' TERM; beat() { while :; do echo beat >> log; sleep 0.005; done; }; \
    beat & sh -c 'trap \"\" TERM; while :; do echo beat >> log; sleep 0.005; done' & beat";
