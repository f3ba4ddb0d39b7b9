//! The bytes that a held lock costs its client, counted by the allocator.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs, reason = "a test says what it expects by panicking")]

mod common;

use common::client;
use fencelock_core::LockGuard;
use fencelock_lab::ZooKeeper;
use std::time::Duration;

#[global_allocator]
static ALLOC: dhat::Alloc = dhat::Alloc;

const MOST: usize = 2_048;

#[test]
fn a_held_lock_costs_at_most_two_kibibytes() {
    const HOLDS: usize = 1_000;
    let server = ZooKeeper::start().unwrap();
    let _profiler = dhat::Profiler::builder().testing().build();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = client(&format!("zookeeper://{}?session=12s", server.address())).await;
        let warm = client.acquire("warm").await.unwrap();
        let ttl = Duration::from_secs(12);
        let mut guards = Vec::with_capacity(HOLDS);
        let before = dhat::HeapStats::get().curr_bytes;
        for n in 0..HOLDS {
            guards.push(client.named(&format!("orders/{n}")).ttl(ttl).acquire().await.unwrap());
        }
        let fresh = (dhat::HeapStats::get().curr_bytes - before) / HOLDS;
        tokio::time::sleep(ttl * 3 / 4).await;
        let renewed = (dhat::HeapStats::get().curr_bytes - before) / HOLDS;
        println!("bytes a held lock: {fresh} fresh, {renewed} while renewed");
        assert!(guards.iter().all(LockGuard::is_held));
        assert!(fresh <= MOST && renewed <= MOST, "{fresh} fresh, {renewed} renewed");
        drop((warm, guards));
    });
}
