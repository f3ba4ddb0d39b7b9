#![allow(clippy::unwrap_used, reason = "a test says what it expects by panicking")]
//! A client advises a ttl by the holds it has had.

mod common;

use common::{World, ms};
use fencelock_core::AdviceWarning;

#[tokio::test(start_paused = true)]
async fn by_prefix_and_in_bounded_memory() {
    let w = World::new();
    let client = w.client("a");
    assert_eq!(client.advice("orders/").ttl(), None);
    for n in 0..20 {
        let guard = client.named(&format!("orders/{n}")).ttl(ms(3_000)).acquire().await.unwrap();
        tokio::time::sleep(ms(if n == 7 { 2_000 } else { 100 })).await;
        guard.release().await.unwrap();
    }
    let other = client.acquire("users:1").await.unwrap();
    tokio::time::sleep(ms(10)).await;
    drop(other);
    let advice = client.advice("orders/");
    assert_eq!((advice.holds(), advice.ttls()), (20, Some((ms(3_000), ms(3_000)))));
    assert!(advice.p50() >= ms(100) && advice.p50() <= ms(113), "{advice}");
    assert!(advice.p99() >= ms(2_000) && advice.max() < ms(2_010), "{advice}");
    let ttl = advice.ttl().unwrap();
    assert!(ttl >= ms(4_000) && ttl <= ms(6_100), "{advice}");
    assert!(matches!(advice.warnings()[..], [AdviceWarning::TtlTooShort { .. }]), "{:?}", advice.warnings());
    assert_eq!(client.advice("orders/7"), advice, "of a name, what is known of its prefix");
    assert_eq!(client.advice("nobody/").holds(), 0);
    for n in 0..500 {
        client.acquire(&format!("single-{n}")).await.unwrap().release().await.unwrap();
    }
    tokio::time::sleep(ms(1)).await;
    assert_eq!(client.advice("").holds(), 521);
}
