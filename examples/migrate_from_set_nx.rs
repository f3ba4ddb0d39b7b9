//! From a hand-written Redis lock (`SET name value NX PX …`) to fencelock, with old and
//! new programs side by side while they are rolled out.
//!
//! `cargo run -p fencelock-examples --features redis --example migrate_from_set_nx -- 127.0.0.1:6379`
//!
//! 1. Deploy the new program, which takes both locks: its own, then the old key.
//! 2. When no old program runs any more, leave the old key out.
//! 3. Have the data check the tokens, which the old lock never had.

#![allow(clippy::print_stdout, reason = "it is for people to read")]

use fencelock::redis::redis::aio::MultiplexedConnection;
use fencelock::redis::redis::{AsyncCommands, Client, Script, cmd};
use fencelock::{LockClient, LockGuard};
use std::error::Error;
use std::time::Duration;

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

const KEY: &str = "lock:counter";
/// How long the old lock lasts; nobody renews it.
const OLD_TTL: Duration = Duration::from_secs(10);
/// A hold of the new program ends before the old key can: that is all that is asked of it.
const MAX_HOLD: Duration = Duration::from_secs(8);

/// What there was: one `SET` to take it, and compare-and-delete to give it back.
struct OldLock {
    redis: MultiplexedConnection,
    value: String,
}

impl OldLock {
    async fn try_acquire(mut redis: MultiplexedConnection, value: String) -> Outcome<Option<Self>> {
        let millis = u64::try_from(OLD_TTL.as_millis())?;
        let mut set = cmd("SET");
        let set = set.arg(KEY).arg(&value).arg("NX").arg("PX").arg(millis);
        let set: Option<String> = set.query_async(&mut redis).await?;
        Ok(set.map(|_| Self { redis, value }))
    }

    async fn acquire(redis: &MultiplexedConnection, value: String) -> Outcome<Self> {
        for _ in 0..2000 {
            if let Some(lock) = Self::try_acquire(redis.clone(), value.clone()).await? {
                return Ok(lock);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Err("the old lock was never free".into())
    }

    async fn release(mut self) -> Outcome {
        let script = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";
        let _: i64 = Script::new(script).key(KEY).arg(&self.value).invoke_async(&mut self.redis).await?;
        Ok(())
    }
}

/// Who takes which locks.
#[derive(Clone, Copy, PartialEq)]
enum Program {
    Old,
    /// New, and careless: old programs do not see its lock.
    NewAlone,
    NewBeside,
}

/// Both locks, ours first: then new programs wait in the client's queue, and one of them at a time asks for the old key.
struct Both {
    guard: Option<LockGuard>,
    old: Option<OldLock>,
}

async fn acquire(program: Program, locks: &LockClient, redis: &MultiplexedConnection, me: String) -> Outcome<Both> {
    let guard = match program {
        Program::Old => None,
        _ => Some(locks.named("counter").max_hold(MAX_HOLD).acquire().await?),
    };
    let old = match program {
        Program::NewAlone => None,
        _ => Some(OldLock::acquire(redis, me).await?),
    };
    Ok(Both { guard, old })
}

impl Both {
    async fn release(self) -> Outcome {
        if let Some(old) = self.old {
            old.release().await?;
        }
        if let Some(guard) = self.guard {
            guard.release().await?;
        }
        Ok(())
    }
}

/// Reads the counter, thinks, and writes it back plus one, ten times.
async fn count(address: String, program: Program, me: String) -> Outcome {
    let mut redis = Client::open(format!("redis://{address}"))?.get_multiplexed_async_connection().await?;
    let locks = fencelock::connect(format!("redis://{address}")).await?;
    for turn in 0..10 {
        let both = acquire(program, &locks, &redis, format!("{me}/{turn}")).await?;
        let work = async {
            let counter: u64 = redis.get("counter").await?;
            tokio::time::sleep(Duration::from_millis(2)).await;
            let () = redis.set("counter", counter + 1).await?;
            Outcome::Ok(())
        };
        match &both.guard {
            // Dropped when the hold is lost or has lasted too long; the old lock alone tells nobody.
            Some(guard) => guard.while_held(work).await??,
            None => work.await?,
        }
        both.release().await?;
    }
    locks.close().await;
    Ok(())
}

async fn together(address: &str, what: &str, programs: [Program; 4]) -> Outcome<bool> {
    let mut redis = Client::open(format!("redis://{address}"))?.get_multiplexed_async_connection().await?;
    let () = redis.set("counter", 0).await?;
    let workers = programs.into_iter().enumerate();
    let workers: Vec<_> =
        workers.map(|(at, program)| tokio::spawn(count(address.to_owned(), program, format!("worker {at}")))).collect();
    for worker in workers {
        worker.await??;
    }
    let counter: u64 = redis.get("counter").await?;
    let verdict = if counter == 40 { "nothing lost" } else { "UPDATES LOST" };
    println!("{what}: counted to {counter} of 40, {verdict}");
    Ok(counter == 40)
}

#[tokio::main]
async fn main() -> Outcome {
    use Program::{NewAlone, NewBeside, Old};
    let address = std::env::args().nth(1).ok_or("usage: migrate_from_set_nx HOST:PORT, of a Redis to play with")?;
    let before = together(&address, "four old programs            ", [Old; 4]).await?;
    together(&address, "two old, two new but careless", [Old, NewAlone, Old, NewAlone]).await?;
    let beside = together(&address, "two old, two new beside them ", [Old, NewBeside, Old, NewBeside]).await?;
    let last = together(&address, "four new, the old key dropped", [NewAlone; 4]).await?;
    if !(before && beside && last) {
        return Err("an update was lost where none should be".into());
    }
    println!(
        "New programs that take both locks exclude the old ones as well. What is gained: renewal, loss that is told,"
    );
    println!("waiting without polling, and a token, which the data can check.");
    Ok(())
}
