//! What the client itself costs: acquire and release of a free lock in memory,
//! printed beside tokio's own mutex in the same run.
//!
//! `cargo bench -p fencelock-core`

#![allow(missing_docs, clippy::unwrap_used, reason = "a benchmark says what it expects by panicking")]

use criterion::{Criterion, criterion_group, criterion_main};
use fencelock_core::LockClient;
use fencelock_core::memory::MemoryLock;
use std::sync::Arc;

fn uncontended(c: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = runtime.block_on(async { LockClient::new(Arc::new(MemoryLock::new())).unwrap() });
    let named = client.named("orders/1001");
    let mutex = Arc::new(tokio::sync::Mutex::new(()));
    let mut group = c.benchmark_group("acquire and release, uncontended");
    group.bench_function("fencelock, memory engine", |b| {
        b.iter(|| {
            runtime.block_on(async {
                named.acquire().await.unwrap().release().await.unwrap();
            });
        });
    });
    // The times of holds are kept for as many prefixes as are told apart: what advice costs at the most.
    let many: Vec<_> = (0..128).map(|at| client.named(&format!("tenant-{at:03}/orders/1001"))).collect();
    let mut turn = many.iter().cycle();
    group.bench_function("fencelock, memory engine, 128 prefixes", |b| {
        b.iter(|| {
            let named = turn.next().unwrap();
            runtime.block_on(async {
                named.acquire().await.unwrap().release().await.unwrap();
            });
        });
    });
    group.bench_function("tokio::sync::Mutex", |b| {
        b.iter(|| {
            runtime.block_on(async {
                drop(Arc::clone(&mutex).lock_owned().await);
            });
        });
    });
    group.finish();
}

criterion_group!(benches, uncontended);
criterion_main!(benches);
