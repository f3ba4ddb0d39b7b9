//! Acquires and releases a free lock in memory as often as its argument says.
//!
//! `tests/instructions/count` has valgrind count the instructions of it.

#![allow(clippy::unwrap_used, reason = "a program for a test")]

use fencelock_core::LockClient;
use fencelock_core::memory::MemoryLock;
use std::sync::Arc;

fn main() {
    let times: u32 = std::env::args().nth(1).unwrap().parse().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let lock = LockClient::new(Arc::new(MemoryLock::new())).unwrap().named("orders/1001");
        for _ in 0..times {
            lock.acquire().await.unwrap().release().await.unwrap();
        }
    });
}
