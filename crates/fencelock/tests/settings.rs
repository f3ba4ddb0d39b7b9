//! Which of several settings counts, and what is said of a wrong one.
#![allow(clippy::expect_used)] // in helpers, which clippy does not take for tests

mod posing;

use fencelock::{AcquireOptions, Error, ErrorKind, Level, LockClient, Wait};
use std::time::Duration;

const S: Duration = Duration::from_secs(1);

fn options(locks: &LockClient) -> AcquireOptions {
    locks.named("a").options().clone()
}

async fn refused(url: &str) -> Error {
    fencelock::builder(url).registry(posing::registry()).connect().await.expect_err(url)
}

#[tokio::test]
async fn defaults_hold_where_nothing_is_said() {
    let locks = fencelock::connect("memory:").await.unwrap();
    assert_eq!(options(&locks), AcquireOptions::default());
    assert!(locks.holder().ends_with(&format!(":{}", std::process::id())));
}

#[tokio::test]
async fn the_url_counts_over_defaults() {
    let url = "memory:?ttl=2s&wait_at_most=3s&max_hold=1h&lock_delay=4s&cohort=5&holder=host%201&require=advisory";
    let locks = fencelock::connect(url).await.unwrap();
    let all = options(&locks);
    assert_eq!((all.ttl, all.wait, all.max_hold), (2 * S, Wait::AtMost(3 * S), Some(3600 * S)));
    assert_eq!((all.lock_delay, all.cohort, locks.holder()), (4 * S, 5, "host 1"));
}

#[tokio::test]
async fn code_counts_over_the_url() {
    let url = "memory:?ttl=2s&wait_at_most=3s&max_hold=1h&lock_delay=4s&holder=url&require=replicated";
    let code = || fencelock::builder(url).ttl(5 * S).max_hold(6 * S).lock_delay(7 * S).require(Level::Advisory);
    let locks = code().wait_forever().holder("code").clock_drift(0).connect().await.unwrap();
    let all = options(&locks);
    assert_eq!((all.ttl, all.wait, all.max_hold), (5 * S, Wait::Forever, Some(6 * S)));
    assert_eq!((all.lock_delay, locks.holder()), (7 * S, "code"));
    assert_eq!(options(&code().wait_at_most(8 * S).connect().await.unwrap()).wait, Wait::AtMost(8 * S));
}

#[tokio::test]
async fn set_counts_over_the_url_and_under_the_typed_one() {
    let set = || fencelock::builder("memory:?ttl=2s").set("ttl", "5s");
    assert_eq!(options(&set().connect().await.unwrap()).ttl, 5 * S);
    assert_eq!(options(&set().ttl(6 * S).connect().await.unwrap()).ttl, 6 * S);
    let cohort = fencelock::builder("memory:?cohort=2").set("cohort", "3").cohort(4).connect().await.unwrap();
    assert_eq!(options(&cohort).cohort, 4);
}

#[tokio::test]
async fn an_engine_sees_its_own_settings_from_url_and_code() {
    let e = refused("posing:?pool=many").await;
    assert_eq!(e.message(), "URL parameter: `pool` is a number in range, not `many`");
    let code = fencelock::builder("posing:?pool=many").set("pool", "4").registry(posing::registry());
    assert!(code.connect().await.is_ok());
    let code = fencelock::builder("posing:?pool=4").set("pool", "few").registry(posing::registry());
    assert_eq!(code.connect().await.unwrap_err().message(), "code: `pool` is a number in range, not `few`");
}

#[tokio::test]
async fn a_misspelt_setting_names_the_nearest_common_or_own() {
    for (wrong, right) in [
        ("tll", "ttl"),
        ("wait_atmost", "wait_at_most"),
        ("maxhold", "max_hold"),
        ("lockdelay", "lock_delay"),
        ("requires", "require"),
        ("atest", "attest"),
        ("holdr", "holder"),
        ("poool", "pool"),
    ] {
        let e = refused(&format!("posing:?{wrong}=1")).await;
        assert_eq!(e.kind(), ErrorKind::InvalidConfig);
        assert_eq!(e.message(), format!("URL parameter: unknown setting `{wrong}`; did you mean `{right}`?"));
    }
}

#[tokio::test]
async fn values_out_of_bounds_are_refused() {
    for url in [
        "memory:?ttl=49ms",
        "memory:?ttl=8d",
        "memory:?ttl=soon",
        "memory:?ttl",
        "memory:?wait_at_most=-1s",
        "memory:?max_hold=0s",
        "memory:?lock_delay=8d",
        "memory:?cohort=101",
        "memory:?cohort=-1",
        "memory:?ttl=1s&ttl=soon",
    ] {
        assert_eq!(refused(url).await.kind(), ErrorKind::InvalidConfig, "{url}");
    }
    let e = fencelock::builder("memory:").clock_drift(500_001).connect().await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidConfig);
}
