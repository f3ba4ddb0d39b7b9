//! A program is refused at start when the deployment gives less than it needs.
#![allow(clippy::expect_used)] // in helpers, which clippy does not take for tests

mod posing;

use fencelock::{Assumption, Builder, Capability, Error, ErrorKind, Level, RuleOutcome};

fn posing(parameters: &str) -> Builder {
    fencelock::builder(format!("posing:{parameters}")).registry(posing::registry())
}

async fn refused(builder: Builder) -> Error {
    builder.connect().await.expect_err("more was required than there is")
}

#[tokio::test]
async fn a_level_that_is_there_connects() {
    let locks = posing("").require(Level::Leased).connect().await.unwrap();
    assert_eq!(locks.guarantees().level(), Some(Level::Leased));
}

#[tokio::test]
async fn a_level_that_is_not_there_is_refused_and_says_what_to_do() {
    for builder in [posing("").require(Level::Fenced), posing("?require=fenced")] {
        let e = refused(builder).await;
        assert_eq!((e.kind(), e.engine(), e.operation()), (ErrorKind::Refused, Some("posing"), Some("connect")));
        assert!(e.message().contains("attest `posing.disk`"), "{e}");
    }
    let e = refused(posing("").require(Level::Replicated).attest("posing.disk")).await;
    assert!(e.message().contains("start three") && !e.message().contains("posing.disk"), "{e}");
}

#[tokio::test]
async fn an_attestation_gives_the_level_and_is_shown_ever_after() {
    for builder in [
        posing("").attest("posing.disk"),
        posing("?attest=posing.disk"),
        posing("?attest=posing.clock,%20posing.disk"),
        posing("").set("attest", "posing.disk"),
    ] {
        let locks = builder.require(Level::Fenced).connect().await.unwrap();
        assert!(locks.guarantees().rule_is("posing.disk", RuleOutcome::Attested));
        assert!(locks.guarantees().rule_is("posing.clock", RuleOutcome::Proved));
    }
}

#[tokio::test]
async fn a_deployment_that_is_refused_can_be_shown() {
    for builder in [
        posing("").require(Level::Replicated).forbid(Assumption::ServerClock),
        posing("").require_capability(Capability::PushLoss),
        posing("?attest=posing.disk").attest("posing.nodes"),
        posing("").attest("posing.disk").attest("posing.dsik"),
    ] {
        let found = builder.probe().await.unwrap();
        assert!(found.rule_is("posing.nodes", RuleOutcome::Refused), "{found:?}");
        assert!(found.level() >= Some(Level::Leased), "{found:?}");
    }
    let found = posing("?attest=posing.disk").attest("posing.nodes").probe().await.unwrap();
    assert!(found.rule_is("posing.disk", RuleOutcome::Attested), "{found:?}");
    let e = posing("?pool=many").probe().await.unwrap_err();
    assert_eq!((e.kind(), e.operation()), (ErrorKind::InvalidConfig, Some("probe")), "{e}");
}

#[tokio::test]
async fn attestations_of_all_places_count_together() {
    let locks = posing("?attest=posing.disk").attest("posing.clock").set("attest", "").connect().await.unwrap();
    assert!(locks.guarantees().rule_is("posing.disk", RuleOutcome::Attested));
}

#[tokio::test]
async fn what_cannot_be_attested_is_refused() {
    for (builder, says) in [
        (posing("").attest("posing.dsik"), "those that can be attested: posing.disk"),
        (fencelock::builder("memory:?attest=posing.disk"), "`posing.disk`"),
    ] {
        let e = refused(builder).await;
        assert_eq!(e.kind(), ErrorKind::InvalidConfig, "{e}");
        assert!(e.message().contains(says), "{e}");
    }
}

#[tokio::test]
async fn what_was_disproved_is_refused_with_the_evidence_whoever_attests_it() {
    for builder in [posing("").attest("posing.nodes"), posing("?attest=posing.nodes")] {
        let e = refused(builder).await;
        assert_eq!(e.kind(), ErrorKind::Refused, "{e}");
        assert!(e.message().contains("`posing.nodes` is attested, and it is not so: "), "{e}");
        assert!(e.message().contains("start three"), "{e}");
    }
}

#[tokio::test]
async fn assumptions_can_be_forbidden() {
    assert!(posing("?forbid=T1,T4").connect().await.is_ok());
    for builder in [posing("?forbid=T2"), posing("").forbid(Assumption::ServerClock).forbid(Assumption::ClockRates)] {
        let e = refused(builder).await;
        assert_eq!((e.kind(), e.engine()), (ErrorKind::Refused, Some("posing")));
        assert!(e.message().starts_with("`T2` (the server's clock is not stepped) was forbidden"), "{e}");
    }
    let e = refused(posing("?forbid=T5")).await;
    assert!(e.message().starts_with("URL parameter: `forbid` cannot be `T5`"), "{e}");
}

#[tokio::test]
async fn capabilities_can_be_required() {
    assert!(posing("").require_capability(Capability::Fifo).connect().await.is_ok());
    let e = refused(posing("").require_capability(Capability::Fifo).require_capability(Capability::InStoreGuard)).await;
    assert_eq!((e.kind(), e.engine()), (ErrorKind::Refused, Some("posing")));
    assert!(e.message().starts_with("`in_store_guard` was required, and one pretended node has `fifo`"), "{e}");
}

#[tokio::test]
async fn a_cohort_is_refused_where_no_token_can_be_reserved() {
    for builder in [posing("?cohort=3"), posing("").cohort(3)] {
        let e = refused(builder).await;
        assert_eq!((e.kind(), e.engine()), (ErrorKind::Refused, Some("posing")));
        assert!(e.message().contains("`cohort` was asked for, and one pretended node cannot reserve"), "{e}");
    }
    let locks = posing("?cohort=0").connect().await.unwrap();
    assert_eq!(locks.named("a").cohort(1).acquire().await.unwrap_err().kind(), ErrorKind::Refused);
}

#[tokio::test]
async fn a_level_that_does_not_exist_names_the_nearest() {
    let e = refused(posing("?require=fence")).await;
    assert_eq!(e.message(), "URL parameter: `require` cannot be `fence`; did you mean `fenced`?");
}
