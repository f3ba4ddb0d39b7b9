//! A counter in etcd that only the holder of its lock can change, however late it writes.
//!
//! `cargo run -p fencelock-examples --features etcd --example etcd_owned -- 127.0.0.1:2379`
//!
//! Start it several times at once: no visit is lost.

#![allow(clippy::print_stdout, reason = "a program for the terminal")]

use fencelock::etcd::OwnedInEtcd;
use fencelock::etcd::etcd_client::{Client, Txn, TxnOp};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let members = std::env::args().nth(1).ok_or("usage: etcd_owned HOST:PORT[,HOST:PORT…]")?;
    let locks = fencelock::connect(format!("etcd://{members}/example?ttl=10s")).await?;
    let mut store = Client::connect(members.split(',').collect::<Vec<_>>(), None).await?;
    for _ in 0..10 {
        let guard = locks.acquire("counters/visits").await?;
        let visits = match store.get("visits", None).await?.kvs().first() {
            Some(kv) => kv.value_str()?.parse::<u64>()? + 1,
            None => 1,
        };
        // The members test that the hold is there and write, or do neither.
        let write = Txn::new().when([guard.owned()?]).and_then([TxnOp::put("visits", visits.to_string(), None)]);
        if !store.txn(write).await?.succeeded() {
            return Err("the lock was lost, and nothing was written".into());
        }
        println!("visit {visits} under token {}", guard.token());
        guard.release().await?;
    }
    locks.close().await;
    Ok(())
}
