#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::panic,
    reason = "test helpers; each test file uses its own part"
)]

use fencelock_core::memory::{MemoryLock, MemoryServer};
use fencelock_core::{FakeClock, LockClient};
use std::sync::Arc;
use std::time::Duration;

pub fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A server on a faked clock, and clients of it.
pub struct World {
    pub clock: FakeClock,
    pub server: MemoryServer,
}

impl World {
    pub fn new() -> Self {
        let clock = FakeClock::new();
        let server = MemoryServer::with_clock(clock.clock());
        Self { clock, server }
    }

    pub fn client(&self, holder: &str) -> LockClient {
        let engine = Arc::new(MemoryLock::on(&self.server).with_request_limit(ms(200)));
        LockClient::builder(engine).clock(self.clock.clock()).holder(holder).build().unwrap()
    }
}

/// A server and clients on the machine's clock.
pub fn real() -> (MemoryServer, impl Fn() -> LockClient) {
    let server = MemoryServer::new();
    let clients = server.clone();
    (server, move || LockClient::new(Arc::new(MemoryLock::on(&clients).with_request_limit(ms(200)))).unwrap())
}

/// Waits, bounded, until the client has nothing left to undo.
pub async fn drained(client: &LockClient) {
    for _ in 0..2_000 {
        if client.pending() == 0 {
            return;
        }
        tokio::time::sleep(ms(5)).await;
    }
    panic!("{client:?} still has something to undo");
}
