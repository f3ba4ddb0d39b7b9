//! The bytes that a held lock costs its client, counted by the allocator.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test says what it expects by panicking")]

mod common;

use common::{World, ms};

#[global_allocator]
static ALLOC: dhat::Alloc = dhat::Alloc;

#[test]
fn a_held_lock_costs_at_most_two_kibibytes() {
    const HOLDS: usize = 1_000;
    let _profiler = dhat::Profiler::builder().testing().build();
    // On a clock that stands still while something runs, so that no lease runs out however slowly they come to be.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let client = World::new().client("a");
        let warm = client.acquire("warm").await.unwrap();
        let mut guards = Vec::with_capacity(HOLDS);
        let before = dhat::HeapStats::get().curr_bytes;
        for n in 0..HOLDS {
            guards.push(client.named(&format!("orders/{n}")).ttl(ms(900)).acquire().await.unwrap());
        }
        let fresh = (dhat::HeapStats::get().curr_bytes - before) / HOLDS;
        // Past the first renewal each has its guardian, the largest a hold becomes.
        tokio::time::sleep(ms(700)).await;
        let renewed = (dhat::HeapStats::get().curr_bytes - before) / HOLDS;
        println!("bytes a held lock: {fresh} fresh, {renewed} while renewed (client and server in memory together)");
        assert!(guards.iter().all(fencelock_core::LockGuard::is_held));
        assert!(fresh <= 2_048 && renewed <= 2_048, "{fresh} fresh, {renewed} renewed");
        drop((warm, guards));
    });
}
