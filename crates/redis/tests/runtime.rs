//! Called where no runtime is: an error, never a panic.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a test")]

use fencelock_core::{ErrorKind, FencingToken, Gate as _, Result};
use fencelock_lab::Redis;
use fencelock_redis::{Effect, RedisConfig, RedisGate, RedisLock};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// What a future comes to at once, on this thread, which belongs to no runtime.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => panic!("it waits for what never comes here"),
    }
}

fn refused<T>(outcome: Result<T>) {
    let e = outcome.err().unwrap();
    assert!(e.kind() == ErrorKind::Unavailable && e.to_string().contains("runtime"), "{e}");
}

#[test]
fn nothing_is_connected_outside_a_runtime() {
    refused(now(RedisLock::connect(RedisConfig::standalone("127.0.0.1", 1))));
    refused(now(RedisGate::connect(RedisConfig::standalone("127.0.0.1", 1))));
}

#[test]
fn a_gate_says_so_where_its_runtime_is_not() {
    let redis = Redis::start().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let token = FencingToken::new(1);
    let gate =
        runtime.block_on(RedisGate::connect(RedisConfig::standalone("127.0.0.1", redis.address().port()))).unwrap();
    let pass = runtime.block_on(gate.enter((), "r", token)).unwrap().admitted().unwrap();
    refused(now(gate.enter((), "r", token)));
    refused(now(pass.run::<i64>(&Effect::new("return 1"), &[], &[])));
}
