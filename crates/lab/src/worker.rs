//! A worker: a process of its own that takes locks, works under them, and writes down all it sees.

mod choices;
mod store_client;
mod update;

use choices::Choices;
use fencelock::{LockClient, LockGuard, LossReason};
use fencelock_testkit::history::{Recorder, ReleaseAnswer, What};
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use store_client::StoreClient;
use update::Update;

/// All that a worker is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Terms {
    pub(crate) url: String,
    pub(crate) attest: Vec<String>,
    pub(crate) number: u32,
    pub(crate) history: PathBuf,
    /// The port of the store.
    pub(crate) store: u16,
    pub(crate) ttl: Duration,
    pub(crate) work: Work,
    /// What its choices follow from, with its number.
    pub(crate) seed: u64,
}

/// How a worker works.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Work {
    /// How many locks there are; each time one is taken at random.
    pub(crate) locks: u32,
    /// How long a lock is held at the least and at the most, in ms, beyond the updates made under it.
    pub(crate) hold: (u64, u64),
    /// Of a hundred holds, how many are kept by the watchdog for two to three ttls instead.
    pub(crate) long: u8,
    /// How long a worker rests after a hold at most, in ms.
    pub(crate) rest: u64,
    /// How long it waits for the lock.
    pub(crate) wait: Duration,
    /// Of a hundred waits, how many are cancelled at a random instant.
    pub(crate) cancelled: u8,
    /// Of a hundred waits, how many may last some tens of milliseconds only.
    pub(crate) hasty: u8,
    /// Of a hundred holds, how many are dropped instead of released.
    pub(crate) dropped: u8,
    /// How many tasks of one client take locks at the same time.
    pub(crate) tasks: u32,
    /// How long an update takes between its read and its write at most, in ms.
    pub(crate) think: u64,
    /// How often a lease passes on between the tasks of one client.
    pub(crate) cohort: u32,
    /// Only this is updated; everything unless set.
    pub(crate) only: Option<Guarded>,
}

/// What is updated under a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Guarded {
    /// A counter behind the gate.
    Gated,
    /// A counter that nothing guards but the lock.
    Open,
    /// A counter whose gate sees the token at the write alone.
    WriteOnly,
    /// A list behind the gate.
    List,
}

impl Default for Work {
    /// One lock, held for some tens of milliseconds or by the watchdog, waited for, and given up now and then.
    fn default() -> Self {
        Self {
            locks: 1,
            hold: (0, 40),
            long: 30,
            rest: 20,
            wait: Duration::from_secs(20),
            cancelled: 5,
            hasty: 5,
            dropped: 4,
            tasks: 1,
            think: 8,
            cohort: 0,
            only: None,
        }
    }
}

impl Work {
    /// Holds for this long, in ms, while the others ask again and again instead of
    /// waiting to be told: whoever is granted a lock that is held shows at once.
    pub(crate) fn beset(least: u64, most: u64) -> Self {
        Self { hold: (least, most), long: 0, wait: Duration::from_millis(100), ..Self::default() }
    }
}

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// Lives until its standard input ends, which ends the process at once, or until it cannot go on.
pub(crate) async fn live(terms: Terms) -> Outcome {
    std::thread::spawn(|| {
        let mut nothing = [0; 1];
        while io::stdin().read(&mut nothing).is_ok_and(|read| read > 0) {}
        std::process::exit(0);
    });
    work(&terms).await
}

async fn work(terms: &Terms) -> Outcome {
    let recorder = Arc::new(Recorder::create(&terms.history, terms.number)?);
    let client = connect(terms).await;
    let tasks = tokio::task::LocalSet::new();
    let mut all = tokio::task::JoinSet::new();
    for task in 0..terms.work.tasks.max(1) {
        all.spawn_local_on(take_locks(terms.clone(), client.clone(), Arc::clone(&recorder), task), &tasks);
    }
    // Each goes on for ever, unless something is wrong.
    tasks.run_until(async move { all.join_next().await.map_or(Ok(()), |ended| ended?) }).await
}

async fn take_locks(terms: Terms, client: LockClient, recorder: Arc<Recorder>, task: u32) -> Outcome {
    let mut store = StoreClient::connect(terms.store).await?;
    for round in 0.. {
        // No two tasks have the same, and which follows does not depend on the others.
        let hold = round * terms.work.tasks.max(1) + task + 1;
        let choices = Choices::of(&terms, hold);
        let rest = choices.rest;
        if let Some(guard) = acquire(&terms, &client, &recorder, hold, &choices).await? {
            under(&terms, guard, &recorder, &mut store, hold, choices).await?;
        }
        tokio::time::sleep(rest).await;
    }
    Ok(())
}

/// The deployment may be broken already when a worker starts.
async fn connect(terms: &Terms) -> LockClient {
    loop {
        let mut builder = fencelock::builder(&terms.url).holder(format!("worker {}", terms.number));
        if terms.work.cohort > 0 {
            builder = builder.cohort(terms.work.cohort);
        }
        for rule in &terms.attest {
            builder = builder.attest(rule);
        }
        match builder.connect().await {
            Ok(client) => return client,
            Err(e) => eprintln!("worker {}: {e}", terms.number),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn acquire(
    terms: &Terms,
    client: &LockClient,
    recorder: &Recorder,
    hold: u32,
    choices: &Choices,
) -> io::Result<Option<LockGuard>> {
    let lock = choices.lock();
    recorder.record(hold, What::Acquire { lock: lock.as_str().into() })?;
    let asked = client.named(&lock).ttl(terms.ttl).wait_at_most(choices.wait).acquire();
    let acquired = if let Some(patience) = choices.cancelled_after {
        tokio::time::timeout(patience, asked).await.map_err(|_| "cancelled".to_owned())
    } else {
        Ok(asked.await)
    };
    let why = match acquired {
        Ok(Ok(guard)) => {
            recorder.record(hold, What::Granted { token: guard.token().get() })?;
            return Ok(Some(guard));
        }
        Ok(Err(e)) => format!("{:?}: {e}", e.kind()),
        Err(why) => why,
    };
    recorder.record(hold, What::NotGranted { why: why.into() })?;
    // Where nothing is reached there is no use in asking as fast as one can.
    tokio::time::sleep(Duration::from_millis(20)).await;
    Ok(None)
}

/// Works under the lock and gives it back.
async fn under(
    terms: &Terms,
    guard: LockGuard,
    recorder: &Arc<Recorder>,
    store: &mut StoreClient,
    hold: u32,
    choices: Choices,
) -> Outcome {
    let looking = tokio::spawn(look(guard.monitor(), Arc::clone(recorder), hold, terms.work.tasks));
    let monitor = guard.monitor();
    let told = Arc::clone(recorder);
    let listening = tokio::spawn(async move {
        let reason = match monitor.lost().await {
            LossReason::Expired => "expired",
            LossReason::Revoked => "revoked",
            LossReason::SessionEnded => "session_ended",
            LossReason::MaxHold => "max_hold",
            _ => "other",
        };
        told.record(hold, What::Lost { reason: reason.into() })
    });
    let suffix = choices.suffix(terms.work.locks);
    let mut update = Update { guard: &guard, recorder, hold, think: terms.work.think, random: choices.random, suffix };
    for guarded in [Guarded::Gated, Guarded::Open, Guarded::WriteOnly, Guarded::List] {
        if terms.work.only.is_some_and(|only| only != guarded) {
            continue;
        }
        match guarded {
            Guarded::Gated => update.count(store, "gated").await?,
            Guarded::Open => update.count(store, "open").await?,
            Guarded::WriteOnly => update.count(store, "write only").await?,
            Guarded::List => update.append(store, u64::from(terms.number) << 32 | u64::from(hold)).await?,
        }
    }
    tokio::time::sleep(choices.kept).await;
    if guard.is_held() && terms.work.only.is_none() {
        // Whoever has lost it without knowing finds the gate closed.
        update.count(store, "gated").await?;
    }
    looking.abort();
    listening.abort();
    for ended in [looking.await, listening.await] {
        match ended {
            Ok(written) => written.map(drop)?,
            Err(cut) if cut.is_cancelled() => {}
            Err(panicked) => return Err(panicked.into()),
        }
    }
    recorder.record(hold, What::Release)?;
    if choices.dropped {
        return Ok(());
    }
    let answer = match guard.release().await {
        Ok(()) => ReleaseAnswer::Freed,
        Err(e) if e.kind() == fencelock::ErrorKind::Lost => ReleaseAnswer::Lost,
        Err(_) => ReleaseAnswer::Unknown,
    };
    recorder.record(hold, What::Released { answer })?;
    Ok(())
}

/// Asks again and again whether it is still held.
async fn look(monitor: fencelock::LockMonitor, recorder: Arc<Recorder>, hold: u32, tasks: u32) -> io::Result<u64> {
    loop {
        let asked = recorder.now();
        if monitor.is_held() {
            let deadline = monitor.deadline().map_or(u64::MAX, |deadline| deadline.as_nanos());
            recorder.record(hold, What::Believed { asked, deadline })?;
        } else {
            // It looks on: a loss is final.
            recorder.record(hold, What::Doubted { asked })?;
        }
        tokio::time::sleep(Duration::from_millis(2) * tasks.max(1)).await;
    }
}

/// Reads what `start` wrote.
pub(crate) fn terms(file: &Path) -> io::Result<Terms> {
    Ok(serde_json::from_slice(&std::fs::read(file)?)?)
}
