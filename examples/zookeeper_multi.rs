//! A counter in ZooKeeper that only the holder of its lock can change, however late it writes.
//!
//! `cargo run -p fencelock-examples --features zookeeper --example zookeeper_multi -- 127.0.0.1:2181`
//!
//! Start it several times at once: no visit is lost.

#![allow(clippy::print_stdout, reason = "a program for the terminal")]

use fencelock::zookeeper::InStore;
use fencelock::zookeeper::zookeeper_client::{Acls, Client, CreateMode, Error};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let servers = std::env::args().nth(1).ok_or("usage: zookeeper_multi HOST:PORT[,HOST:PORT…]")?;
    let locks = fencelock::connect(format!("zookeeper://{servers}/example?session=10s&ttl=10s")).await?;
    let client = Client::connect(&servers).await?;
    match client.create("/visits", b"0", &CreateMode::Persistent.with_acls(Acls::anyone_all())).await {
        Ok(_) | Err(Error::NodeExists) => {}
        Err(e) => return Err(e.into()),
    }
    for _ in 0..10 {
        let guard = locks.acquire("counters/visits").await?;
        // Another client's writes are seen here only after this.
        client.sync("/visits").await?;
        let (data, _) = client.get_data("/visits").await?;
        let visits = String::from_utf8(data)?.parse::<u64>()? + 1;
        let mut write = guard.check_in(&client)?;
        write.add_set_data("/visits", visits.to_string().as_bytes(), None)?;
        // The servers test that the hold is there and write, or do neither.
        write.commit().await?;
        println!("visit {visits} under token {}", guard.token());
        guard.release().await?;
    }
    locks.close().await;
    Ok(())
}
