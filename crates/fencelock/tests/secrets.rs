//! No error and no `Debug` shows a password.

use fencelock::{Builder, DistributedLock, Error, ErrorKind, Registry};
use std::error::Error as _;
use std::sync::Arc;

const PASSWORD: &str = "hunter2";

/// What a careful reader of a log could see of it.
fn shown(error: &Error) -> String {
    let mut text = format!("{error} {error:?}");
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(" {cause} {cause:?}"));
        source = cause.source();
    }
    text
}

fn failing() -> Registry {
    Registry::builtin().with("mine", |target| async move {
        assert!(!format!("{target:?}").contains(PASSWORD));
        Err::<Arc<dyn DistributedLock>, _>(Error::new(ErrorKind::Denied, "no"))
    })
}

fn builder(url: &str) -> Builder {
    fencelock::builder(url).registry(failing())
}

#[tokio::test]
async fn neither_errors_nor_debug_show_a_password() {
    for url in [
        "mine://user:hunter2@host/path",
        "mine://:hunter2@host",
        "mine://host?password=hunter2",
        "memory://user:hunter2@host",
        "sqlite://user:hunter2@host/locks.db",
        "sqlite:locks.db?pasword=hunter2",
        "memory:?password=hunter2",
        "nosuch://user:hunter2@host",
        "mine://user:hunter2@host:99999",
        "mine://user:hunter2@[::1",
        "mine://user:hunter2%@host",
        "mine://user:hunter2@host?ttl=soon",
        // Not percent-encoded as they should be.
        "mine://user:hunter2/x@host",
        "mine://user:hunter2?x@host",
        "mine://user:hunter2@x@host",
        "mine://user:[hunter2/x@host",
        "mine://user:x,[hunter2/x@host",
        "mine://user:x@host:hunter2",
        "mine://user:x@[hunter2",
        "mine://user:hunter2@host?password=hunter2",
    ] {
        let builder = builder(url);
        let debug = format!("{builder:?}");
        assert!(!debug.contains(PASSWORD), "{url}: {debug}");
        let error = builder.connect().await.expect_err(url);
        assert!(!shown(&error).contains(PASSWORD), "{url}: {}", shown(&error));
    }
}

#[tokio::test]
async fn a_secret_setting_from_code_is_not_shown() {
    let builder = builder("memory:").set("password", PASSWORD);
    assert!(!format!("{builder:?}").contains(PASSWORD));
    let error = builder.connect().await.unwrap_err();
    assert!(shown(&error).contains("password") && !shown(&error).contains(PASSWORD), "{error}");
}
