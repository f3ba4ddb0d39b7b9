//! A server that hides its settings: what it will not say is unknown, until somebody who knows attests it.

use fencelock_core::{ErrorKind, Level, RuleOutcome};
use fencelock_lab::Redis;

/// A user who may lock, and is not shown the configuration.
fn with_a_user() -> (Redis, String) {
    let redis = Redis::start_durable().unwrap();
    let user = ["ACL", "SETUSER", "app", "on", ">pass", "~*", "&*", "+@all", "-config"];
    assert!(redis.command(&user).unwrap().starts_with("+OK"));
    let url = format!("redis://app:pass@{}", redis.address());
    (redis, url)
}

#[tokio::test]
async fn what_redis_hides_is_refused_above_advisory_and_accepted_when_attested() {
    let (_redis, url) = with_a_user();
    let found = fencelock::connect(&url).await.unwrap().guarantees();
    assert_eq!(found.level(), Some(Level::Advisory));
    assert!(found.rule_is("redis.persistence", RuleOutcome::Unknown), "{found:#?}");

    let e = fencelock::connect(format!("{url}?require=leased")).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Refused, "{e}");
    for part in ["redis.persistence (unknown)", "CONFIG GET", "attest `redis.persistence`", "attest `redis.rewrite`"] {
        assert!(e.message().contains(part), "{part}: {e}");
    }
    let attested = format!("{url}?require=fenced&attest=redis.persistence,redis.rewrite");
    let found = fencelock::connect(attested).await.unwrap().guarantees();
    assert_eq!(found.level(), Some(Level::Fenced));
    assert!(found.rule_is("redis.persistence", RuleOutcome::Attested), "{found:#?}");
}

/// What the server says is stronger than what the configuration says.
#[tokio::test]
async fn what_redis_shows_cannot_be_attested_away() {
    let redis = Redis::start().unwrap();
    let e = fencelock::connect(format!("redis://{}?attest=redis.persistence", redis.address())).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Refused, "{e}");
    for part in ["`redis.persistence` is attested, and it is not so", "no AOF", "appendfsync always"] {
        assert!(e.message().contains(part), "{part}: {e}");
    }
}
