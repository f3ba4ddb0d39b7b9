//! Called where no runtime is: an error, never a panic.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a test")]

mod common;

use common::{claim, config, engine, initialised};
use fencelock_core::{Attempt, DistributedLock as _, ErrorKind, Result};
use fencelock_lab::RedisNodes;
use fencelock_redlock::{RedlockLock, RedlockOperator};
use std::fmt::Debug;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// What a future comes to at once, on this thread, which belongs to no runtime.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => panic!("it waits for what never comes here"),
    }
}

fn refused<T: Debug>(outcome: Result<T>) {
    let e = outcome.unwrap_err();
    assert!(e.kind() == ErrorKind::Unavailable && e.to_string().contains("runtime"), "{e}");
}

#[test]
fn nothing_is_made_outside_a_runtime() {
    let nodes = || config("127.0.0.1:1,127.0.0.1:2,127.0.0.1:3").unwrap();
    refused(RedlockOperator::new(nodes()));
    refused(now(RedlockLock::connect(nodes())));
    let without_timers = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let _entered = without_timers.enter();
    assert_eq!(RedlockOperator::new(nodes()).unwrap_err().kind(), ErrorKind::InvalidConfig);
}

#[test]
fn what_was_made_in_a_runtime_says_so_outside() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let ttl = Duration::from_secs(10);
    let (nodes, engine, grant) = runtime.block_on(async {
        let nodes = initialised(RedisNodes::start(3).unwrap()).await;
        let engine = engine(&nodes.addresses()).await.unwrap();
        let Attempt::Granted(grant) = engine.try_acquire(&claim("a", ttl)).await.unwrap() else {
            unreachable!("contended")
        };
        (nodes, engine, grant)
    });
    let operator = {
        let _entered = runtime.enter();
        RedlockOperator::new(config(&nodes.addresses()).unwrap()).unwrap()
    };
    refused(now(operator.init(0)));
    refused(now(operator.status()));
    refused(now(operator.reseed("127.0.0.1:1", Duration::from_secs(4))));
    let other = claim("c", ttl);
    refused(now(engine.probe()));
    refused(now(engine.try_acquire(&other)));
    refused(now(engine.acquire(&other)));
    refused(now(engine.inspect(other.name())));
    refused(now(engine.admin().unwrap().list("")));
    refused(now(engine.admin().unwrap().force_release(other.name())));
    refused(now(engine.abandon(&grant.claim)));
    refused(now(grant.lease.release()));
    drop((engine, operator));
}
