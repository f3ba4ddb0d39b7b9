//! The bytes that a held lock costs its client, counted by the allocator.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test says what it expects by panicking")]

use fencelock_core::LockClient;
use fencelock_core::memory::{MemoryLock, MemoryServer};
use std::sync::Arc;
use std::time::Duration;

#[global_allocator]
static ALLOC: dhat::Alloc = dhat::Alloc;

#[test]
fn a_held_lock_costs_at_most_two_kibibytes() {
    const HOLDS: usize = 1_000;
    let _profiler = dhat::Profiler::builder().testing().build();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = LockClient::new(Arc::new(MemoryLock::on(&MemoryServer::new()))).unwrap();
        let warm = client.acquire("warm").await.unwrap();
        let mut guards = Vec::with_capacity(HOLDS);
        let before = dhat::HeapStats::get().curr_bytes;
        for n in 0..HOLDS {
            guards.push(client.named(&format!("orders/{n}")).ttl(Duration::from_millis(900)).acquire().await.unwrap());
        }
        let fresh = (dhat::HeapStats::get().curr_bytes - before) / HOLDS;
        // Past the first renewal each has its guardian, the largest a hold becomes.
        tokio::time::sleep(Duration::from_millis(700)).await;
        let renewed = (dhat::HeapStats::get().curr_bytes - before) / HOLDS;
        println!("bytes a held lock: {fresh} fresh, {renewed} while renewed (client and server in memory together)");
        assert!(guards.iter().all(fencelock_core::LockGuard::is_held));
        assert!(fresh <= 2_048 && renewed <= 2_048, "{fresh} fresh, {renewed} renewed");
        drop((warm, guards));
    });
}
