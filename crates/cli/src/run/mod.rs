//! `fencelock run`: a command under a lock.
//!
//! Three processes take part, all of this program: the *supervisor*, which
//! holds the lock; the *command*, which sets itself up in a process group of its
//! own and then becomes what the user asked for; and the *watchdog*, in a
//! session of its own, which stops the group at the lock's deadline even if the
//! supervisor is stopped, and at once if the supervisor is killed.

mod child;
mod death;
mod ending;
mod group;
mod jobs;
mod lookout;
mod parts;
mod signals;
mod strays;
mod supervise;
mod terminal;
mod wait;
mod watchdog;
mod watching;

use crate::args::{Options, Patience, Run};
use crate::connect::{Wanted, client};
use crate::exit::{self, Failure, Outcome};
use crate::output::{clean, say, tell};
use crate::{commands, progress};
use fencelock::{AcquireOptions, ErrorKind, LockClient, LockGuard, MIN_TTL, NamedLock};
use signals::Signals;
use std::time::{Duration, Instant};
use supervise::{End, Supervisor};
use wait::Exit;

pub(crate) use parts::played_a_part;

/// The longest that leaving nothing behind may take at the end.
const TIDY_UP: Duration = Duration::from_secs(2);

/// `fencelock run NAME -- COMMAND`
pub(crate) fn run(options: &Options, args: &Run) -> Outcome {
    // Before any thread is made: a supervisor in the background must be able to
    // take its terminal back and to write to it.
    terminal::outlive_background();
    let mut signal = None;
    let outcome = commands::block_on(async {
        let over = supervised(options, args).await?;
        signal = over.signal;
        Ok(over.code)
    });
    if let Some(signal) = signal {
        death::follow(signal);
    }
    outcome
}

fn exited(code: u8) -> Exit {
    Exit { code, signal: None }
}

fn signalled(number: i32) -> Exit {
    Exit { code: exit::signalled(number), signal: Some(number) }
}

async fn supervised(options: &Options, args: &Run) -> Result<Exit, Failure> {
    let mut signals = Signals::new()?;
    let wanted = Wanted { require: args.require, holder: args.holder.as_deref() };
    let client = tokio::select! {
        number = signals.ending() => return Ok(signalled(number)),
        client = client(options, wanted) => client?,
    };
    let outcome = with_client(&client, args, &mut signals).await;
    // Only a wait that was given up, or an unanswered release, leaves anything to do.
    let _ = tokio::time::timeout(TIDY_UP, client.close()).await;
    outcome
}

async fn with_client(client: &LockClient, args: &Run, signals: &mut Signals) -> Result<Exit, Failure> {
    let lock = lock(client, args);
    let acquired = tokio::select! {
        biased;
        number = signals.ending() => return Ok(signalled(number)),
        acquired = acquire(client, &lock, args) => acquired?,
    };
    match acquired {
        Some(guard) => under(client, guard, lock.options().ttl, args, signals).await,
        None => Ok(exited(args.conflict_exit_code)),
    }
}

fn lock(client: &LockClient, args: &Run) -> NamedLock {
    let mut lock = client.named(&args.name);
    if let Some(ttl) = args.ttl {
        lock = lock.ttl(ttl);
    }
    let AcquireOptions { ttl, lock_delay: configured, .. } = *lock.options();
    // At the deadline the command has the grace, and a forced release has to be heard of.
    let need = args.kill_after.max(lookout::notice(client, ttl));
    let delay = group::lock_delay(need, client.clock_drift()).max(configured);
    lock = lock.lock_delay(delay);
    if client.guarantees().engine() == "zookeeper" {
        // A hold there lasts as long as the session, whatever it asks for, and the delay is part of that.
        // Both are rounded up.
        lock = lock.ttl(ttl.saturating_sub(delay + Duration::from_millis(2)).max(MIN_TTL));
    }
    match args.wait {
        Some(Patience::AtMost(limit)) => lock = lock.wait_at_most(limit),
        Some(Patience::Forever) => lock = lock.wait_forever(),
        None => {}
    }
    if let Some(longest) = args.max_hold {
        lock = lock.max_hold(longest);
    }
    if let Some(note) = &args.note {
        lock = lock.note(note.as_str());
    }
    lock
}

/// `None` if it is not to be had, and the user has been told.
async fn acquire(client: &LockClient, lock: &NamedLock, args: &Run) -> Result<Option<LockGuard>, Failure> {
    if args.no_wait {
        let acquired = lock.try_acquire().await?;
        if acquired.is_none() {
            let why = lookout::without_holder(client, &args.name).await.unwrap_or("somebody else holds it");
            say(format_args!("{}: {why}", clean(&args.name)));
        }
        return Ok(acquired);
    }
    let acquired = tokio::select! {
        biased;
        acquired = lock.acquire() => acquired,
        never = progress::show(client, &args.name) => match never {},
    };
    match acquired {
        Ok(guard) => Ok(Some(guard)),
        Err(e) if e.kind() == ErrorKind::Timeout => {
            say(e);
            if let Some(why) = lookout::without_holder(client, &args.name).await {
                say(format_args!("{}: {why}", clean(&args.name)));
            }
            Ok(None)
        }
        Err(e) => Err(e.into()),
    }
}

/// Runs the command under the lock and gives the lock back.
async fn under(
    client: &LockClient,
    guard: LockGuard,
    ttl: Duration,
    args: &Run,
    signals: &mut Signals,
) -> Result<Exit, Failure> {
    let granted = Instant::now();
    let end = match Supervisor::start(&guard, ttl, args, signals).await {
        Ok(supervisor) => {
            // If the start was slow, what has happened since comes before the command begins.
            let is_taken = granted.elapsed() > lookout::pace(ttl) && lookout::is_taken(client, &guard).await;
            supervisor.watch(is_taken, lookout::taken_away(client, &guard, ttl)).await
        }
        Err(failure) => Err(failure),
    };
    let end = match end {
        Ok(end) => end,
        Err(failure) => {
            // No process of the command is left, so the lock can go.
            let _ = guard.release().await;
            return Err(failure);
        }
    };
    match end {
        End::Lost => Ok(exited(exit::LOST)),
        End::Command(exit) => match guard.release().await {
            Ok(()) => Ok(exit),
            Err(e) if e.kind() == ErrorKind::Lost => Err(e.into()),
            Err(e) => {
                tell(e);
                Ok(exit)
            }
        },
    }
}
