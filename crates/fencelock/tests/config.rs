//! File, environment, URL and code: which counts, where it is looked for, and where passwords go.
#![allow(clippy::expect_used)] // in helpers, which clippy does not take for tests

use fencelock::{Config, DistributedLock, Environment, Error, ErrorKind, LockClient, Registry, Target, Wait};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const S: Duration = Duration::from_secs(1);

fn config(file: &str, variables: &[(&str, &str)]) -> Config {
    let config = Config::from_toml(format!("[lock]\n{file}"), "fencelock.toml").expect(file);
    config.with_environment(&Environment::new(variables.iter().copied())).expect(file)
}

fn ttl(locks: &LockClient) -> Duration {
    locks.named("a").options().ttl
}

#[tokio::test]
async fn code_over_url_over_environment_over_file_over_default() {
    let defaults = config("url = 'memory:'", &[]).connect().await.unwrap();
    assert_eq!(ttl(&defaults), 30 * S);
    let file = "url = 'memory:'\nttl = '1s'";
    assert_eq!(ttl(&config(file, &[]).connect().await.unwrap()), S);
    let variables = [("FENCELOCK_TTL", "2s")];
    assert_eq!(ttl(&config(file, &variables).connect().await.unwrap()), 2 * S);
    for with_url in [
        config("url = 'memory:?ttl=3s'\nttl = '1s'", &variables),
        config(file, &[("FENCELOCK_TTL", "2s"), ("FENCELOCK_URL", "memory:?ttl=3s")]),
        config(file, &variables).with_url("memory:?ttl=3s"),
    ] {
        assert_eq!(ttl(&with_url.clone().connect().await.unwrap()), 3 * S);
        assert_eq!(ttl(&with_url.clone().builder().set("ttl", "4s").connect().await.unwrap()), 4 * S);
        assert_eq!(ttl(&with_url.builder().ttl(5 * S).connect().await.unwrap()), 5 * S);
    }
}

#[tokio::test]
async fn a_wait_without_end_and_one_with_replace_each_other() {
    let wait = async |config: Config| config.connect().await.unwrap().named("a").options().wait;
    let forever = "url = 'memory:'\nwait_at_most = 'forever'";
    assert_eq!(wait(config(forever, &[])).await, Wait::Forever);
    assert_eq!(wait(config(forever, &[("FENCELOCK_WAIT_AT_MOST", "1s")])).await, Wait::AtMost(S));
    assert_eq!(wait(config("", &[("FENCELOCK_URL", "memory:?wait_at_most=forever")])).await, Wait::Forever);
}

#[tokio::test]
async fn lists_of_all_places_count_together() {
    let file = "url = 'memory:'\nrequire_capability = ['fifo']";
    assert!(config(file, &[("FENCELOCK_REQUIRE_CAPABILITY", "notified_waiting")]).connect().await.is_ok());
    for (file, variables) in [
        ("url = 'memory:'\nrequire_capability = ['push_loss']", &[("FENCELOCK_REQUIRE_CAPABILITY", "fifo")]),
        (file, &[("FENCELOCK_REQUIRE_CAPABILITY", "push_loss")]),
    ] {
        let e = config(file, variables).connect().await.unwrap_err();
        assert_eq!((e.kind(), e.message().contains("`push_loss` was required")), (ErrorKind::Refused, true), "{e}");
    }
}

/// An engine that keeps what it is asked for and denies everything.
fn asked() -> (Registry, Arc<Mutex<Vec<Target>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let keeps = Arc::clone(&seen);
    let registry = Registry::builtin().with("mine", move |target: Target| {
        keeps.lock().expect("no panic").push(target);
        async { Err::<Arc<dyn DistributedLock>, _>(Error::new(ErrorKind::Denied, "no")) }
    });
    (registry, seen)
}

async fn target(config: Config) -> Target {
    let (registry, seen) = asked();
    let denied = config.builder().registry(registry).connect().await.expect_err("nobody is let in");
    assert_eq!(denied.kind(), ErrorKind::Denied, "{denied}");
    let mut seen = seen.lock().expect("no panic");
    seen.pop().expect("it was asked")
}

async fn who(config: Config) -> (Option<String>, Option<String>) {
    let url = target(config).await.url;
    (url.user, url.password.map(|password| password.reveal().to_owned()))
}

fn some(user: &str, password: &str) -> (Option<String>, Option<String>) {
    (Some(user.to_owned()), Some(password.to_owned()))
}

#[tokio::test]
async fn user_and_password_reach_the_engine_wherever_they_were_written() {
    let lock = "url = 'mine://host'\nusername = 'u1'\npassword = 'p1'\n";
    let engine = format!("{lock}[lock.mine]\nusername = 'u2'\npassword = 'p2'\n");
    let variables = [("FENCELOCK_USERNAME", "u3"), ("FENCELOCK_PASSWORD", "p3")];
    let of_engine = [("FENCELOCK_MINE_PASSWORD", "p4"), ("FENCELOCK_PASSWORD", "p3")];
    assert_eq!(who(config(lock, &[])).await, some("u1", "p1"));
    assert_eq!(who(config(&engine, &[])).await, some("u2", "p2"));
    assert_eq!(who(config(&engine, &variables)).await, some("u3", "p3"));
    assert_eq!(who(config(&engine, &of_engine)).await, some("u2", "p4"));
    assert_eq!(who(config(&engine, &variables).with_url("mine://u5:p%2F5@host")).await, some("u5", "p/5"));
    assert_eq!(who(config(&engine, &variables).with_url("mine://u5@host")).await, some("u5", "p3"));
    assert_eq!(who(config(&engine, &[]).with_url("mine://host?password=p6")).await, some("u2", "p6"));
    assert!(target(config(&engine, &variables)).await.url.settings.keys().next().is_none());
}

#[tokio::test]
async fn a_password_file_is_read_without_its_line_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("password");
    let name = path.to_str().unwrap();
    let file = format!("url = 'mine://host'\nusername = 'u'\npassword_file = '{name}'");
    for (written, read) in
        [("hunter2", "hunter2"), ("hunter2\n", "hunter2"), ("hunter2\r\n", "hunter2"), (" h \n\n", " h \n")]
    {
        std::fs::write(&path, written).unwrap();
        assert_eq!(who(config(&file, &[])).await, some("u", read));
        let by_variable = [("FENCELOCK_PASSWORD_FILE", name), ("FENCELOCK_USERNAME", "u")];
        assert_eq!(who(config("url = 'mine://host'\npassword = 'x'", &by_variable)).await, some("u", read));
    }
    let by_url = config("username = 'u'", &[]).with_url(format!("mine://host?password_file={name}"));
    assert_eq!(who(by_url).await, some("u", " h \n"));
    // One that does not count is not read.
    std::fs::remove_file(&path).unwrap();
    assert_eq!(who(config(&file, &[("FENCELOCK_PASSWORD", "p")])).await, some("u", "p"));

    for (written, says) in
        [(b"\n".as_slice(), "is empty"), (b"hunter\xff2", "not UTF-8"), (&[b'7'; 70_000], "more than 65536 bytes")]
    {
        std::fs::write(&path, written).unwrap();
        let (registry, _) = asked();
        let e = config(&file, &[]).builder().registry(registry).connect().await.unwrap_err();
        let message = e.message();
        assert!(message.starts_with("fencelock.toml:4: `password_file`") && message.contains(says), "{e}");
        assert!(message.contains(name) && !format!("{e:?}").contains("hunter"), "{e:?}");
    }
}

#[tokio::test]
async fn only_the_table_of_the_configured_engine_is_used() {
    let file = "url = 'mine:'\n[lock.mine]\npool = 4\nwords = ['a', 'b']\nfast = true\n[lock.sqlite]\ncreate = 7";
    let variables = [("FENCELOCK_MINE_POOL", "5"), ("FENCELOCK_SQLITE_BUSY_TIMEOUT", "1s"), ("FENCELOCK_TOKEN", "7")];
    let mut settings = target(config(file, &variables)).await.url.settings;
    assert_eq!(settings.number::<u8>("pool").unwrap(), Some(5));
    assert_eq!((settings.text("words").as_deref(), settings.flag("fast").unwrap()), (Some("a,b"), Some(true)));
    settings.finish().unwrap();
    assert!(
        config(file, &[("FENCELOCK_URL", "memory:"), ("HOME", "/")])
            .builder()
            .registry(asked().0)
            .connect()
            .await
            .is_ok()
    );
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn what_the_engine_finds_wrong_is_placed_too() {
    let message =
        async |file: &str, variables| config(file, variables).connect().await.unwrap_err().message().to_owned();
    let file = "url = 'sqlite:locks.db'\n[lock.sqlite]\nbusy_timeout = '2s'";
    let bound = "`busy_timeout` is at most";
    assert!(message(file, &[]).await.starts_with(&format!("fencelock.toml:4: {bound}")));
    let variable = [("FENCELOCK_SQLITE_BUSY_TIMEOUT", "3s")];
    assert!(message(file, &variable).await.starts_with(&format!("FENCELOCK_SQLITE_BUSY_TIMEOUT: {bound}")));
    assert!(message("url = 'sqlite:'", &[]).await.starts_with("fencelock.toml:2: `url`: a lock file has a path"));
    let e = config("url = 'sqlite:?busy_timeout=2s'", &[]).connect().await.unwrap_err();
    assert!(e.message().starts_with("fencelock.toml:2: "), "{e}");
}

#[cfg(not(feature = "sqlite"))]
#[tokio::test]
async fn an_engine_that_was_left_out_names_its_feature_and_the_place() {
    let e = config("url = 'sqlite:locks.db'\n[lock.sqlite]\ncreate = false", &[]).connect().await.unwrap_err();
    assert!(e.message().starts_with("fencelock.toml:2: `url`: `sqlite:` needs the cargo feature `sqlite`"), "{e}");
}

#[tokio::test]
async fn a_value_from_code_is_not_put_down_to_the_file() {
    let file = "url = 'memory:'\nttl = '5s'\nmax_hold = '1h'";
    let e = config(file, &[]).builder().ttl(Duration::from_millis(1)).connect().await.unwrap_err();
    assert_eq!(e.message(), "ttl is 50 ms to 7 days, not 1ms");
    let e = config(file, &[]).builder().set("ttl", "1ms").connect().await.unwrap_err();
    assert_eq!(e.message(), "code: ttl is 50 ms to 7 days, not 1ms");
}

fn write(path: &Path, ttl: &str) {
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    std::fs::write(path, format!("[lock]\nurl = 'memory:'\nttl = '{ttl}'")).expect("a file");
}

#[tokio::test]
async fn the_first_file_that_exists_counts() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let (here, home) = (at("here"), at("home"));
    let load = |variables: &[(&str, &Path)]| {
        let all = variables.iter().map(|(name, path)| ((*name).to_owned(), path.as_os_str().to_owned()));
        Config::load_in(&Environment::new(all).with_directory(&here))
    };
    let (xdg, home_file) = (at("xdg/fencelock/fencelock.toml"), home.join(".config/fencelock/fencelock.toml"));
    let (named, local) = (at("named.toml"), here.join("fencelock.toml"));
    for (path, ttl) in [(&named, "1s"), (&local, "2s"), (&xdg, "3s"), (&home_file, "4s")] {
        write(path, ttl);
    }
    let (xdg_home, home) = (at("xdg"), home.as_path());
    let all = [("FENCELOCK_CONFIG", named.as_path()), ("XDG_CONFIG_HOME", &xdg_home), ("HOME", home)];
    let found = async |variables: &[(&str, &Path)]| {
        let config = load(variables).unwrap();
        (config.path().unwrap().to_owned(), ttl(&config.connect().await.unwrap()))
    };
    assert_eq!(found(&all).await, (named.clone(), S));
    assert_eq!(found(&all[1..]).await, (local.clone(), 2 * S));
    std::fs::remove_file(&local).unwrap();
    assert_eq!(found(&all[1..]).await, (xdg, 3 * S));
    assert_eq!(found(&all[2..]).await, (home_file, 4 * S));

    std::fs::remove_file(&named).unwrap();
    let e = load(&all).unwrap_err();
    assert!(e.message().starts_with("FENCELOCK_CONFIG: cannot read"), "{e}");
    assert_eq!(Config::from_file(&named).unwrap_err().kind(), ErrorKind::InvalidConfig);
    // There, and not to be read: no other one is taken instead.
    std::fs::create_dir_all(&local).unwrap();
    assert!(load(&all[1..]).unwrap_err().message().contains("fencelock.toml"));
}

#[tokio::test]
async fn errors_name_the_file_as_it_was_found() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fencelock.toml");
    std::fs::write(&path, "[lock]\n\ntll = '1s'").unwrap();
    let e = Config::from_file(&path).unwrap_err();
    assert!(e.message().starts_with(&format!("{}:3: unknown setting", path.display())), "{e}");
    let e = Config::load_in(&Environment::default().with_directory(dir.path())).unwrap_err();
    assert!(e.message().contains("fencelock.toml:3: "), "{e}");
}

#[cfg(unix)]
#[test]
fn a_variable_that_is_not_unicode_is_named() {
    use std::os::unix::ffi::OsStringExt;
    let value = std::ffi::OsString::from_vec(vec![b'h', 0xff]);
    let e = Config::default().with_environment(&Environment::new([("FENCELOCK_TTL", value)])).unwrap_err();
    assert_eq!(e.message(), "FENCELOCK_TTL: its value is not UTF-8");
}

#[test]
fn debug_output_has_no_values() {
    let file = "url = 'mine://u:hunter2@host'\npassword = 'hunter2'\n[lock.mine]\nca = 'hunter2'";
    let variables = [("FENCELOCK_PASSWORD", "hunter2"), ("FENCELOCK_MINE_KEY", "hunter2")];
    let config = config(file, &variables).with_url("mine://u:hunter2@host");
    assert!(!format!("{config:?}").contains("hunter2"), "{config:?}");
    assert!(!format!("{:?}", config.builder()).contains("hunter2"));
}
