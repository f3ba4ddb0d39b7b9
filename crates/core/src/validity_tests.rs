use super::*;
use crate::{Evidence, FakeClock, Grant, Lease, LockName, Terms};
use proptest::prelude::*;

const S: Duration = Duration::from_secs(1);

fn hold(clock: &FakeClock, ttl: Duration) -> Validity {
    let terms = Terms::new(LockName::new("a").unwrap(), ttl).with_clock(clock.clock());
    let claim = terms.mint().unwrap();
    let sent = claim.now();
    let grant = Grant::new(&claim, Nothing, sent, FencingToken::new(1)).with_margin(Duration::from_millis(2));
    Validity::new(&grant, None, None, hold_terms(true), grant.claim.now())
}

fn hold_terms(renews: bool) -> HoldTerms {
    let observer = Arc::new(Observer::new("test".into()));
    HoldTerms { observer, drift: Drift::DEFAULT, renews, jumped: Arc::default() }
}

struct Nothing;

#[async_trait::async_trait]
impl Lease for Nothing {
    async fn keep_alive(&self, _: &Validity) -> LossReason {
        LossReason::Revoked
    }
    async fn extend(&self, _: Duration, _: &Validity) -> crate::Result<()> {
        Ok(())
    }
    async fn release(self: Box<Self>) -> crate::Result<()> {
        Ok(())
    }
    fn evidence(&self) -> Evidence {
        Evidence::none()
    }
}

#[tokio::test(start_paused = true)]
async fn held_until_the_deadline_and_never_again() {
    let clock = FakeClock::new();
    let v = hold(&clock, S);
    tokio::time::advance(Duration::from_millis(987)).await;
    assert!(v.is_held());
    let sent = v.now();
    tokio::time::advance(Duration::from_millis(1)).await;
    assert!(!v.is_held(), "ttl - 1 % - 2 ms");
    v.renewed(sent);
    assert!(!v.is_held(), "a renewal acknowledged after the deadline revives nothing");
    assert_eq!(v.ended(), Some(Ended::Lost(LossReason::Expired)));
}

#[tokio::test(start_paused = true)]
async fn a_suspend_counts() {
    let clock = FakeClock::new();
    let v = hold(&clock, S);
    clock.suspend(S);
    assert!(!v.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_renewal_counts_from_its_sending() {
    let clock = FakeClock::new();
    let v = hold(&clock, S);
    let sent = v.now().plus(Duration::from_millis(300));
    tokio::time::advance(Duration::from_millis(900)).await;
    v.renewed(sent);
    assert_eq!(v.remaining(), Duration::from_millis(300 + 988 - 900));
    v.renewed(sent);
    assert_eq!(v.remaining(), Duration::from_millis(388), "an older proof moves nothing");
}

#[tokio::test(start_paused = true)]
async fn doubt_is_jeopardy_until_the_next_proof() {
    let clock = FakeClock::new();
    let v = hold(&clock, S);
    v.doubt(&"cut");
    assert!(v.in_jeopardy() && v.is_held());
    tokio::time::advance(Duration::from_millis(1)).await;
    v.renewed(v.now());
    assert!(!v.in_jeopardy());
    tokio::time::advance(Duration::from_millis(500)).await;
    assert!(v.in_jeopardy(), "a renewal is overdue");
    v.lose(LossReason::Revoked);
    assert!(!v.in_jeopardy(), "lost is not in jeopardy");
}

#[tokio::test(start_paused = true)]
async fn no_acknowledgement_moves_the_deadline_back() {
    let clock = FakeClock::new();
    let v = hold(&clock, S);
    v.extended(v.now(), S / 10);
    assert_eq!(v.remaining(), Duration::from_millis(988));
    v.doubt(&"cut");
    tokio::time::advance(Duration::from_millis(10)).await;
    v.extended(v.now(), S * 10);
    assert_eq!(v.remaining(), Duration::from_millis(9_898));
    assert!(!v.in_jeopardy());
}

#[tokio::test(start_paused = true)]
async fn an_old_acknowledgement_ends_no_doubt() {
    let clock = FakeClock::new();
    let v = hold(&clock, S);
    let old = v.now();
    v.doubt(&"cut");
    v.renewed(old);
    assert!(v.in_jeopardy());
}

#[tokio::test(start_paused = true)]
async fn the_longest_hold_is_part_of_the_deadline() {
    let clock = FakeClock::new();
    let claim = hold(&clock, S * 30).claim().clone();
    let grant = Grant::new(&claim, Nothing, claim.now(), FencingToken::new(1));
    let v = Validity::new(&grant, None, Some(S * 5), hold_terms(true), grant.claim.now());
    assert_eq!(v.remaining(), S * 5);
    clock.suspend(S * 5);
    assert!(!v.is_held());
    assert_eq!(v.ended(), Some(Ended::Lost(LossReason::MaxHold)));
}

#[tokio::test(start_paused = true)]
async fn a_fixed_lease_is_not_renewed() {
    let clock = FakeClock::new();
    let claim = hold(&clock, S).claim().clone();
    let grant = Grant::new(&claim, Nothing, claim.now(), FencingToken::new(1));
    let v = Validity::new(&grant, None, None, hold_terms(false), grant.claim.now());
    tokio::time::advance(S / 2).await;
    v.doubt(&"cut");
    v.renewed(v.now());
    assert!(!v.in_jeopardy(), "contact is good again");
    assert!(v.remaining() < S / 2);
    v.extended(v.now(), S);
    assert!(v.remaining() > S / 2);
}

#[tokio::test(start_paused = true)]
async fn released_is_final_and_not_lost() {
    let clock = FakeClock::new();
    let v = hold(&clock, S);
    v.begin_release(v.now()).unwrap();
    assert!(!v.is_held() && v.ended().is_none());
    assert!(!v.lose(LossReason::MaxHold));
    v.end_release(Ended::Released, v.now());
    assert_eq!(v.until_ended().await, Ended::Released);
    assert!(v.begin_release(v.now()).is_err());
}

proptest! {
    #[test]
    fn the_deadline_is_before_the_servers(sent in 0u64..1 << 50, ms in 50u64..604_800_000, margin in 0u64..5_000, late in 0u64..1_000_000_000) {
        let (ttl, margin) = (Duration::from_millis(ms), Duration::from_micros(margin));
        let ours = deadline(Moment::from_nanos(sent), ttl, Drift::DEFAULT, margin);
        let servers = Moment::from_nanos(sent + late).plus(ttl);
        prop_assert!(ours < servers);
        prop_assert!(servers.since(ours) >= ttl / 100 + margin.min(ttl / 2));
    }

    #[test]
    fn no_duration_overflows(sent: u64, ttl: u64, margin: u64, ppm in 0u32..500_001) {
        let drift = Drift::from_ppm(ppm).unwrap();
        let d = deadline(Moment::from_nanos(sent), Duration::from_nanos(ttl), drift, Duration::from_nanos(margin));
        prop_assert!(d.as_nanos() >= sent || d.as_nanos() == u64::MAX);
    }
}

#[test]
fn a_lease_passes_on_for_a_while_from_when_it_is_there() {
    use super::passes_until;
    let at = |millis: u64| Moment::from_nanos(millis * 1_000_000);
    let ttl = Duration::from_secs(30);
    assert_eq!(passes_until(at(1_000), at(1_002), ttl), at(1_052));
    // It was asked for long before it came.
    assert_eq!(passes_until(at(1_000), at(6_000), ttl), at(6_050));
    assert_eq!(passes_until(at(1_000), at(10_990), ttl), at(11_000), "a renewal is due");
    assert_eq!(passes_until(at(1_000), at(1_001), Duration::from_millis(90)), at(1_030), "a renewal is due");
}
