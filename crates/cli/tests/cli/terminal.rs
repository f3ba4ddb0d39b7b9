//! On a real pseudo-terminal.

use crate::support::{BEATS, BINARY, LIMIT, Place, command_of, output, start, stat, until};
use pty_process::blocking::{Command, Pty, open};
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A program with a terminal of its own.
struct Session {
    keyboard: Pty,
    screen: Arc<Mutex<String>>,
    child: Child,
}

impl Session {
    fn start(place: &Place, program: &str, args: &[&str]) -> Self {
        let (pty, pts) = open().unwrap();
        let mut command = Command::new(program);
        for (name, value) in place.variables() {
            command = command.env(name, value);
        }
        let child = command.args(args).env("PS1", "$ ").current_dir(place.path("")).spawn(pts).unwrap();
        let screen = Arc::new(Mutex::new(String::new()));
        let shown = Arc::clone(&screen);
        // Reading and writing at once need two handles of the same terminal.
        let keyboard = pty;
        let mut display: std::fs::File = std::os::fd::AsFd::as_fd(&keyboard).try_clone_to_owned().unwrap().into();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = display.read(&mut buffer) {
                shown.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..n]));
            }
        });
        Self { keyboard, screen, child }
    }

    fn run(place: &Place, options: &[&str], script: &str) -> Self {
        let args = [&["run"], options, &["n", "--", "sh", "-c", script]].concat();
        Self::start(place, BINARY, &args)
    }

    fn keys(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    fn shows(&self, text: &str) -> bool {
        self.screen.lock().unwrap().contains(text)
    }

    fn expect(&self, text: &str) {
        let begin = Instant::now();
        while !self.shows(text) {
            assert!(begin.elapsed() < LIMIT, "no `{text}` in:\n{}", self.screen.lock().unwrap());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn end(&mut self) -> ExitStatus {
        let mut ended = None;
        until("the end of a session", || {
            ended = self.child.try_wait().unwrap();
            ended.is_some()
        });
        ended.unwrap()
    }

    fn code(&mut self) -> Option<i32> {
        self.end().code()
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// An interactive shell with job control.
    fn shell(place: &Place) -> Self {
        Self::start(place, "bash", &["--norc", "--noprofile", "-i"])
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_command_can_ask_on_the_terminal() {
    let place = Place::new();
    for from in ["", "< /dev/tty"] {
        let mut session =
            Session::run(&place, &[], &format!("printf 'who? '; read who {from}; echo hello $who; exit 3"));
        session.expect("who? ");
        session.keys("world\n");
        session.expect("hello world");
        assert_eq!(session.code(), Some(3));
    }
}

#[test]
fn a_command_with_other_input_gets_the_terminal_when_it_asks() {
    let place = Place::new();
    let mut session = Session::start(
        &place,
        "sh",
        &[
            "-c",
            "echo x | \"$BINARY\" run n -- sh -c 'printf ask; read who < /dev/tty; echo hello $who' | cat; echo over",
        ],
    );
    session.expect("ask");
    session.keys("world\n");
    session.expect("hello world");
    session.expect("over");
    assert_eq!(session.code(), Some(0));
}

#[test]
fn a_command_in_a_substitution_gets_the_terminal_when_it_asks() {
    let place = Place::new();
    let mut shell = Session::shell(&place);
    shell.expect("$ ");
    // Its shell ignores the signal that would stop it for want of the terminal.
    for from in ["", "< /dev/tty"] {
        shell.keys(&format!(
            "x=$($BINARY run n -- sh -c 'echo as\"\"king > /dev/tty; read y {from}; echo $y'); echo \"<$x>\"\n"
        ));
        shell.expect("asking");
        shell.keys("world\n");
        shell.expect("<world>");
        shell.screen.lock().unwrap().clear();
    }
    shell.keys("exit\n");
    shell.code();
}

#[test]
fn control_c_reaches_the_command() {
    let place = Place::new();
    let mut session = Session::run(&place, &[], "echo go; exec sleep 30");
    session.expect("go");
    session.keys("\x03");
    assert_eq!(session.end().signal(), Some(2));
    assert!(!place.is_held("n"));
}

#[test]
fn control_c_stops_a_script_too() {
    let place = Place::new();
    let run = "\"$BINARY\" run n -- sh -c 'echo g\"\"o; exec sleep 30'";
    for script in [
        format!("while :; do {run}; echo ag\"\"ain; done"),
        format!("{run} || echo ag\"\"ain; echo ag\"\"ain"),
        // The command has not got the terminal, and its group is another.
        format!("{run} < /dev/null > log; echo ag\"\"ain"),
    ] {
        let mut session = Session::start(&place, "bash", &["-c", &script]);
        until("the command", || session.shows("go") || place.read("log") == "go\n");
        session.keys("\x03");
        assert_eq!(session.end().signal(), Some(2), "{script}");
        assert!(!session.shows("again"), "{script}");
    }
}

#[test]
fn a_command_that_outlives_control_c_has_its_own_code() {
    let place = Place::new();
    let mut session = Session::run(&place, &[], "trap 'exit 130' INT; echo go; while :; do sleep 0.01; done");
    session.expect("go");
    session.keys("\x03");
    assert_eq!(session.code(), Some(130));
}

#[test]
fn control_c_in_a_wait_stops_a_script_too() {
    let place = Place::new();
    let mut holder = start(place.run("", "n", "touch running; until test -e stop; do sleep 0.01; done"));
    until("the holder", || place.path("running").exists());
    let script = "while :; do \"$BINARY\" run --wait forever n -- true; echo ag\"\"ain; done";
    let mut session = Session::start(&place, "bash", &["-c", script]);
    session.expect("waiting for n");
    session.keys("\x03");
    assert_eq!(session.end().signal(), Some(2));
    assert!(!session.shows("again"));
    std::fs::write(place.path("stop"), "").unwrap();
    assert_eq!(holder.code(), Some(0));
}

#[test]
fn control_s_does_not_keep_the_command_alive() {
    let place = Place::new();
    let mut session = Session::run(&place, &["--ttl", "6s", "--kill-after", "60s"], BEATS);
    until("beats", || place.read("log").lines().count() > 30);
    let command = command_of(session.pid());
    session.keys("\x13");
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(output(place.fencelock(["release", "--force", "--yes", "n"])).code, Some(0));
    until("the end of the group", || crate::support::group(command).is_empty());
    session.keys("\x11");
    assert_eq!(session.code(), Some(76));
}

#[test]
fn a_wait_in_the_background_draws_nothing() {
    let place = Place::new();
    let mut holder = start(place.run("", "n", "touch running; until test -e stop; do sleep 0.01; done"));
    until("the holder", || place.path("running").exists());
    let mut shell = Session::shell(&place);
    shell.expect("$ ");
    shell.keys("$BINARY run --wait forever n -- true &\n");
    std::thread::sleep(Duration::from_millis(1200));
    assert!(!shell.shows("waiting for n"));
    std::fs::write(place.path("stop"), "").unwrap();
    assert_eq!(holder.code(), Some(0));
    shell.keys("wait; exit\n");
    shell.code();
}

#[test]
fn control_z_in_a_session_without_a_shell_stops_nothing() {
    let place = Place::new();
    let mut session =
        Session::run(&place, &[], "echo go; for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.1; done; echo on; exit 3");
    session.expect("go");
    session.keys("\x1a");
    session.expect("on");
    assert_eq!(session.code(), Some(3));
}

#[test]
fn control_z_gives_the_shell_control_and_fg_goes_on() {
    let place = Place::new();
    let mut shell = Session::shell(&place);
    shell.expect("$ ");
    shell.keys("$BINARY run n -- sh -c 'echo be\"\"gun; read x; echo got $x'; echo code:$?\n");
    shell.expect("begun");
    shell.keys("\x1a");
    shell.expect("Stopped");
    shell.keys("echo pro\"\"mpt\n");
    shell.expect("prompt");
    shell.screen.lock().unwrap().clear();
    shell.keys("fg\n");
    // The shell says what goes on, and gives it the terminal.
    shell.expect("run n -- sh");
    std::thread::sleep(Duration::from_millis(500));
    shell.keys("line\n");
    shell.expect("got line");
    shell.keys("jobs; echo no\"\"jobs; exit\n");
    shell.expect("nojobs");
    shell.code();
}

#[test]
fn a_script_has_its_terminal_again_afterwards() {
    let place = Place::new();
    // Without job control the script shares its group with fencelock, and takes nothing back by itself.
    let script = "\"$BINARY\" run n -- true; echo ready; read x; echo got $x";
    let mut session = Session::start(&place, "sh", &["-c", script]);
    session.expect("ready");
    session.keys("line\n");
    session.expect("got line");
    assert_eq!(session.code(), Some(0));
}

#[test]
fn bg_lets_the_command_go_on_without_the_terminal() {
    let place = Place::new();
    let mut shell = Session::shell(&place);
    shell.expect("$ ");
    shell.keys(
        "$BINARY run n -- sh -c 'echo be\"\"gun; until test -e stop; do sleep 0.01; done; echo fin\"\"ished > done'\n",
    );
    shell.expect("begun");
    shell.keys("\x1a");
    shell.expect("Stopped");
    shell.keys("bg\n");
    shell.keys("echo pro\"\"mpt\n");
    shell.expect("prompt");
    std::fs::write(place.path("stop"), "").unwrap();
    until("the command", || place.read("done") == "finished\n");
    shell.keys("wait; exit\n");
    shell.code();
}

#[test]
fn fg_after_the_deadline_kills_without_continuing() {
    let place = Place::new();
    let mut shell = Session::shell(&place);
    shell.expect("$ ");
    let script = "trap \"\" TERM; while :; do echo beat >> log; sleep 0.01; done";
    shell.keys(&format!("$BINARY run --ttl 4s --kill-after 20s n -- sh -c '{script}'\n"));
    until("beats", || place.read("log").lines().count() > 10);
    shell.keys("\x1a");
    shell.expect("Stopped");
    let beats = place.read("log").lines().count();
    // Past the deadline and within the grace: only the supervisor kills now.
    std::thread::sleep(Duration::from_millis(5_000));
    shell.keys("fg; echo code:$?\n");
    shell.expect("code:76");
    assert_eq!(place.read("log").lines().count(), beats, "the command was not continued");
    shell.keys("exit\n");
    shell.code();
}

#[test]
fn the_terminal_is_given_back_when_the_lock_is_lost() {
    let place = Place::new();
    let mut shell = Session::shell(&place);
    shell.expect("$ ");
    shell.keys("$BINARY run --max-hold 300ms --kill-after 100ms n -- sleep 30; echo code:$?\n");
    shell.expect("code:76");
    shell.keys("echo pro\"\"mpt; exit\n");
    shell.expect("prompt");
    shell.code();
}

#[test]
fn a_wait_shows_who_holds_and_control_c_ends_it() {
    let place = Place::new();
    let mut holder =
        start(place.run("--holder somebody", "n", "touch running; until test -e stop; do sleep 0.01; done"));
    until("the holder", || place.path("running").exists());
    let mut session = Session::run(&place, &["--wait", "forever"], "echo ran");
    session.expect("waiting for n");
    session.expect("held by somebody");
    let pressed = Instant::now();
    session.keys("\x03");
    assert_eq!(session.end().signal(), Some(2));
    assert!(pressed.elapsed() < Duration::from_secs(10), "{:?}", pressed.elapsed());
    assert!(session.screen.lock().unwrap().trim_end_matches("^C").ends_with("\r\x1b[K"), "the line is erased");
    std::fs::write(place.path("stop"), "").unwrap();
    assert_eq!(holder.code(), Some(0));
    assert!(!place.is_held("n"));
}

#[test]
fn a_terminal_that_hangs_up_ends_the_command() {
    let place = Place::new();
    let session = Session::run(&place, &[], "echo go; exec sleep 60");
    session.expect("go");
    let (supervisor, command) = (session.pid(), command_of(session.pid()));
    crate::support::signal("HUP", supervisor);
    until("the end", || stat(command).is_none());
}

#[test]
fn release_asks_on_a_terminal() {
    let place = Place::new();
    let mut holder = start(place.run("--ttl 10s", "n", "touch running; sleep 60"));
    until("the holder", || place.path("running").exists());
    for (key, freed) in [("n\n", false), ("y\n", true)] {
        let mut session = Session::start(&place, BINARY, &["release", "--force", "n"]);
        session.expect("[y/N]");
        session.keys(key);
        assert_eq!(session.code(), Some(if freed { 0 } else { 64 }));
    }
    assert_eq!(holder.code(), Some(76));
    assert_eq!(output(place.fencelock(["status", "n"])).stdout, "n: nobody holds it\n");
}

/// Who confirms has looked at one hold: the next one keeps the lock.
#[test]
fn release_takes_the_lock_from_the_hold_that_was_shown_only() {
    let place = Place::new();
    let script = "touch $FENCELOCK_TOKEN; until test -e stop-$FENCELOCK_TOKEN; do sleep 0.01; done";
    let tokens = || -> Vec<_> {
        let files = std::fs::read_dir(place.path("")).unwrap().map(|file| file.unwrap().file_name());
        let mut tokens: Vec<u64> = files.filter_map(|name| name.to_str()?.parse().ok()).collect();
        tokens.sort_unstable();
        tokens
    };
    let mut first = start(place.run("--holder first", "n", script));
    until("the first holder", || tokens().len() == 1);
    let mut session = Session::start(&place, BINARY, &["release", "--force", "n"]);
    session.expect("held by first");
    session.expect("[y/N]");
    let mut second = start(place.run("--holder second", "n", script));
    std::fs::write(place.path(&format!("stop-{}", tokens()[0])), "").unwrap();
    assert_eq!(first.code(), Some(0));
    until("the second holder", || tokens().len() == 2);
    session.keys("y\n");
    assert_eq!(session.code(), Some(75));
    let (old, new) = (tokens()[0], tokens()[1]);
    session.expect(&format!("second holds it with token {new}, and nobody with token {old}"));

    let force = |token: u64, args: &[&str]| {
        let token = token.to_string();
        output(place.fencelock([&["release", "--force", "--token", &token], args, &["n"]].concat()))
    };
    for args in [&["--yes"][..], &[]] {
        let said = force(old, args);
        assert_eq!(said.code, Some(75), "{}", said.stderr);
        assert!(said.stderr.contains("nothing was released"), "{}", said.stderr);
    }
    assert!(place.is_held("n"));
    assert_eq!(force(new, &["--yes"]).stdout, "n: released\n");
    assert_eq!(second.code(), Some(76));
    let said = force(new, &["--yes"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), "n: nobody holds it\n"), "{}", said.stderr);
}
