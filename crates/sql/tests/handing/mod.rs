//! What clients tell each other on PostgreSQL, overheard.

pub(crate) mod holds;

use crate::server::*;
use fencelock_core::LockClient;
use rustix::process::{Pid, Signal, kill_process};
use sqlx::postgres::PgListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Who has waited for less is not handed the lock: 5 ms, and some for the news of it.
pub(crate) const PATIENCE: Duration = Duration::from_millis(100);

/// The channel that only those know who may read the tables.
pub(crate) async fn channel(db: &Pg) -> String {
    db.client().await.close().await;
    let of = async |key| db.number(&format!("SELECT value FROM fencelock_locks_meta WHERE key = '{key}'")).await;
    format!("fencelock_{:016x}{:016x}", of("channel_1").await, of("channel_2").await)
}

/// The channel that everybody knows.
pub(crate) fn open_channel() -> String {
    let hash = "fencelock_locks"
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("fencelock_{hash:016x}")
}

/// What clients tell each other.
pub(crate) struct Overheard(pub(crate) PgListener);

impl Overheard {
    pub(crate) async fn of(db: &Pg) -> Self {
        let mut listener = PgListener::connect(&db.url()).await.unwrap();
        listener.listen(&channel(db).await).await.unwrap();
        Self(listener)
    }

    /// The words of the next notice that begins with `kind`, but for those of the lock `first`.
    pub(crate) async fn next(&mut self, kind: &str) -> Vec<String> {
        loop {
            let notice = tokio::time::timeout(ms(20_000), self.0.recv()).await.expect("a notice").unwrap();
            let words: Vec<_> = notice.payload().split(' ').map(str::to_owned).collect();
            if words[0] == kind && words[1] != "6669727374" {
                return words;
            }
        }
    }

    /// What one who waits tells who is none of these: each tells again every 5 s, and when it is woken.
    pub(crate) async fn next_but(&mut self, known: &[&Vec<String>]) -> Vec<String> {
        loop {
            let words = self.next("w").await;
            if known.iter().all(|known| known[2] != words[2]) {
                return words;
            }
        }
    }
}

/// A client that listens already.
pub(crate) async fn listening(db: &Pg) -> LockClient {
    let (holder, client) = (db.client().await, db.client().await);
    let guard = holder.acquire("first").await.unwrap();
    let waiting = tokio::spawn(client.acquire("first"));
    until("it waits", async || {
        db.number("SELECT count(*) FROM fencelock_locks WHERE waited AND name = 'first'").await == 1
    })
    .await;
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    holder.close().await;
    db.run("UPDATE fencelock_locks SET waited = false WHERE name = 'first'").await;
    client
}

/// A process that waits for the lock `a`, holds it for a moment, and ends.
pub(crate) struct Waiter(pub(crate) Child);

impl Waiter {
    pub(crate) fn start(db: &Pg, ttl: u64) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env("FENCELOCK_WAITS_AT", db.url()).env("FENCELOCK_TTL_MS", ttl.to_string());
        Self(command.stdout(Stdio::null()).spawn().unwrap())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.0.id().cast_signed()).unwrap(), signal).unwrap();
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) async fn wait_as_a_process(url: &str) {
    let ttl = std::env::var("FENCELOCK_TTL_MS").unwrap().parse().unwrap();
    let client = LockClient::new(Pg::connect(url).await.unwrap()).unwrap();
    client.named("a").ttl(ms(ttl)).wait_at_most(ms(60_000)).acquire().await.unwrap().release().await.unwrap();
    client.close().await;
}
