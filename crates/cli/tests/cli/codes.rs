//! Exit codes.

use crate::support::{Place, output, start, until};
use std::fs;
use std::io::Write;
use std::process::Stdio;

#[test]
fn the_commands_own_code_is_ours() {
    let place = Place::new();
    for (script, code) in
        [("exit 0", 0), ("exit 3", 3), ("exit 255", 255), ("kill -SEGV $$", 139), ("kill -KILL $$", 137)]
    {
        assert_eq!(output(place.run("", "n", script)).code, Some(code), "{script}");
    }
    assert!(!place.is_held("n"));
}

#[test]
fn a_command_that_cannot_run_says_so_as_in_a_shell() {
    let place = Place::new();
    fs::write(place.path("text"), "no program").unwrap();
    for (command, code) in [("no-such-command", 127), ("./none", 127), ("./text", 126), ("/", 126)] {
        let said = output(place.fencelock(["run", "n", "--", command]));
        assert_eq!(said.code, Some(code), "{command}");
        assert!(said.stderr.contains(command), "{}", said.stderr);
    }
    assert!(!place.is_held("n"));
}

#[test]
fn the_command_knows_its_lock() {
    let place = Place::new();
    let first = output(place.run("", "orders/1", "echo $FENCELOCK_NAME $FENCELOCK_TOKEN"));
    let second = output(place.run("", "orders/1", "echo $FENCELOCK_NAME $FENCELOCK_TOKEN"));
    let token = |text: &str| text.trim().strip_prefix("orders/1 ").unwrap().parse::<u64>().unwrap();
    assert!(token(&first.stdout) < token(&second.stdout));
}

#[test]
fn input_reaches_the_command() {
    let place = Place::new();
    let mut command = place.run("", "n", "read line; echo got $line");
    let mut running = start({
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command
    });
    writeln!(running.child.stdin.take().unwrap(), "a line").unwrap();
    let mut said = String::new();
    std::io::Read::read_to_string(running.child.stdout.as_mut().unwrap(), &mut said).unwrap();
    assert_eq!((said.as_str(), running.code()), ("got a line\n", Some(0)));
}

#[test]
fn a_wrong_command_line_is_64() {
    let place = Place::new();
    let wrong: [&[&str]; 7] = [
        &[],
        &["run", "n"],
        &["run", "n", "--"],
        &["run", "--ttl", "49ms", "n", "--", "true"],
        &["run", "--ttl", "soon", "n", "--", "true"],
        &["run", "", "--", "true"],
        &["release", "n", "--yes"],
    ];
    for args in wrong {
        assert_eq!(output(place.fencelock(args)).code, Some(64), "{args:?}");
    }
    for args in [["--help"], ["--version"]] {
        let said = output(place.fencelock(args));
        assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn wrong_configuration_is_78() {
    let place = Place::new();
    for url in ["nothing:", "sqlite:locks.db?colour=red", "memory:x"] {
        assert_eq!(output(place.fencelock(["--url", url, "list"])).code, Some(78), "{url}");
    }
    let mut command = place.run("", "n", "true");
    command.env("FENCELOCK_TTL", "1ms");
    let said = output(command);
    assert_eq!(said.code, Some(78), "{}", said.stderr);
    assert!(said.stderr.contains("FENCELOCK_TTL"), "{}", said.stderr);
    let mut command = place.fencelock(["list"]);
    command.env_remove("FENCELOCK_URL");
    assert_eq!(output(command).code, Some(78));
}

#[test]
fn a_configuration_file_is_read() {
    let place = Place::new();
    fs::write(place.path("a.toml"), "[lock]\nurl = 'memory:'\nrequire = 'fenced'\n").unwrap();
    let mut command = place.fencelock(["--config", "a.toml", "check"]);
    command.env_remove("FENCELOCK_URL");
    let said = output(command);
    assert_eq!(said.code, Some(79), "{}", said.stderr);
    assert!(said.stdout.contains("memory"), "the rules are shown all the same: {}", said.stdout);
}

#[test]
fn a_level_that_is_not_given_is_79() {
    let place = Place::new();
    let said = output(place.run("--require replicated", "n", "echo ran"));
    assert_eq!((said.code, said.stdout.as_str()), (Some(79), ""));
    assert_eq!(output(place.run("--require fenced", "n", "exit 5")).code, Some(5));
}

#[test]
fn contention_is_75_or_what_was_chosen() {
    let place = Place::new();
    let mut holder = start(place.run("", "n", "touch running; until test -e stop; do sleep 0.01; done"));
    until("the holder", || place.path("running").exists());
    for (options, code) in [
        ("--no-wait", 75),
        ("--wait 1s", 75),
        ("--no-wait --conflict-exit-code 0", 0),
        ("--wait 0s --conflict-exit-code 9", 9),
    ] {
        let said = output(place.run(options, "n", "echo ran"));
        assert_eq!((said.code, said.stdout.as_str()), (Some(code), ""), "{options}");
    }
    fs::write(place.path("stop"), "").unwrap();
    assert_eq!(holder.code(), Some(0));
}

#[test]
fn a_service_that_is_not_there_is_69() {
    let place = Place::new();
    let said = output(place.fencelock(["--url", "sqlite:/nonexistent/locks.db", "list"]));
    assert!(matches!(said.code, Some(69 | 78)), "{:?} {}", said.code, said.stderr);
}

#[test]
fn nobody_but_a_terminal_is_shown_who_holds() {
    let place = Place::new();
    let mut holder = start(place.run("", "n", "touch running; until test -e stop; do sleep 0.01; done"));
    until("the holder", || place.path("running").exists());
    let said = output(place.run("--wait 1500ms", "n", "true"));
    assert!(
        said.code == Some(75) && !said.stderr.contains("waiting for") && !said.stderr.contains('\r'),
        "{}",
        said.stderr
    );
    fs::write(place.path("stop"), "").unwrap();
    assert_eq!(holder.code(), Some(0));
}

#[test]
fn variables_of_others_change_nothing() {
    let place = Place::new();
    let mut command = place.run("", "-n", "exit 5");
    command.env("RUST_LOG", "no=such=level,trace").env("FENCELOCK_SERVICE_HOST", "10.0.0.1");
    command.env("FENCELOCK_PORT", "tcp://10.0.0.1:80").env("FENCELOCK_PORT_80_TCP", "tcp://10.0.0.1:80");
    let said = output(command);
    assert_eq!((said.code, said.stderr.as_str()), (Some(5), ""));
}
