//! Nothing that could be a password is shown.

use crate::support::{Place, output};

#[test]
fn no_output_holds_a_password() {
    let place = Place::new();
    let secret = "s3cr3t-Pa55";
    let urls = [
        format!("nothing://user:{secret}@host/db"),
        format!("sqlite://user:{secret}@host/db"),
        format!("memory://user:{secret}@host"),
        format!("memory:?password={secret}"),
    ];
    for url in urls {
        let commands: [&[&str]; 5] =
            [&["list"], &["check"], &["run", "n", "--", "true"], &["--help"], &["run", "--help"]];
        for args in commands {
            for variable in ["FENCELOCK_LOG", "RUST_LOG"] {
                let mut command = place.fencelock(args);
                command.env("FENCELOCK_URL", &url).env(variable, "trace");
                let said = output(command);
                assert!(!said.stdout.contains(secret) && !said.stderr.contains(secret), "{args:?} {}", said.stderr);
            }
            let mut command = place.fencelock(["--url", &url]);
            command.args(args).env("FENCELOCK_LOG", "trace");
            let said = output(command);
            assert!(!said.stdout.contains(secret) && !said.stderr.contains(secret), "{args:?} {}", said.stderr);
        }
    }
}

#[test]
fn logs_are_off_until_asked_for() {
    let place = Place::new();
    assert_eq!(output(place.run("", "n", "true")).stderr, "");
    let mut command = place.run("", "n", "true");
    command.env("FENCELOCK_LOG", "trace");
    let logs = output(command).stderr;
    assert!(logs.contains("granted"), "{logs}");
    // What client libraries log is out of our hands, and may be a password.
    assert!(logs.lines().all(|line| line.contains(" fencelock")), "{logs}");
}
