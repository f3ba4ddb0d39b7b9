//! A worker: a process of its own that takes locks, works under them, and writes down all it sees.

use crate::store::{Ask, Check, Told};
use fencelock::{LockClient, LockGuard, LossReason};
use fencelock_testkit::history::{GateAnswer, Recorder, ReleaseAnswer, What};
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::io::{self, Read as _};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

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
    /// How long an update takes between its read and its write at most, in ms.
    pub(crate) think: u64,
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
    /// One lock, held for some tens of milliseconds, waited for and never cancelled.
    fn default() -> Self {
        Self {
            locks: 1,
            hold: (0, 40),
            long: 30,
            rest: 20,
            wait: Duration::from_secs(20),
            cancelled: 5,
            think: 8,
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
    let mut store = StoreClient::connect(terms.store).await?;
    let client = connect(terms).await;
    let mut hold = 0;
    loop {
        hold += 1;
        let lock = format!("lock/{}", fastrand::u32(0..terms.work.locks));
        if let Some(guard) = acquire(terms, &client, &recorder, hold, &lock).await? {
            under(terms, guard, &recorder, &mut store, hold).await?;
        }
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..=terms.work.rest))).await;
    }
}

/// The deployment may be broken already when a worker starts.
async fn connect(terms: &Terms) -> LockClient {
    loop {
        let mut builder = fencelock::builder(&terms.url).holder(format!("worker {}", terms.number));
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
    lock: &str,
) -> io::Result<Option<LockGuard>> {
    recorder.record(hold, What::Acquire { lock: lock.into() })?;
    let asked = client.named(lock).ttl(terms.ttl).wait_at_most(terms.work.wait).acquire();
    let acquired = if fastrand::u8(0..100) < terms.work.cancelled {
        let patience = Duration::from_micros(fastrand::u64(0..200_000));
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
) -> Outcome {
    let looking = tokio::spawn(look(guard.monitor(), Arc::clone(recorder), hold));
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
    let update = Update { guard: &guard, recorder, hold, think: terms.work.think };
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
    let (least, most) = terms.work.hold;
    let kept = if fastrand::u8(0..100) < terms.work.long {
        terms.ttl * 2 + terms.ttl / 10 * fastrand::u32(0..10)
    } else {
        Duration::from_millis(fastrand::u64(least..=most))
    };
    tokio::time::sleep(kept).await;
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
    let answer = match guard.release().await {
        Ok(()) => ReleaseAnswer::Freed,
        Err(e) if e.kind() == fencelock::ErrorKind::Lost => ReleaseAnswer::Lost,
        Err(_) => ReleaseAnswer::Unknown,
    };
    recorder.record(hold, What::Released { answer })?;
    Ok(())
}

/// Asks again and again whether it is still held.
async fn look(monitor: fencelock::LockMonitor, recorder: Arc<Recorder>, hold: u32) -> io::Result<u64> {
    loop {
        let asked = recorder.now();
        if monitor.is_held() {
            let deadline = monitor.deadline().map_or(u64::MAX, |deadline| deadline.as_nanos());
            recorder.record(hold, What::Believed { asked, deadline })?;
        } else {
            // It looks on: a loss is final.
            recorder.record(hold, What::Doubted { asked })?;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// An update under a lock: read, think, look whether it is still held, write.
struct Update<'a> {
    guard: &'a LockGuard,
    recorder: &'a Recorder,
    hold: u32,
    think: u64,
}

impl Update<'_> {
    /// Raises a counter, the gate's way, nobody's way, or checked at the write alone.
    async fn count(&self, store: &mut StoreClient, resource: &str) -> Outcome {
        let token = self.guard.token().get();
        let check = match resource {
            "gated" => Check::Entered { token },
            "open" => Check::None,
            _ => Check::WriteOnly { token },
        };
        if resource == "gated" && !self.enter(store, resource).await? {
            return Ok(());
        }
        let value = store.read(resource).await?.first().copied().unwrap_or_default() + 1;
        self.recorder.record(self.hold, What::Read { resource: resource.into() })?;
        if !self.think(resource).await? {
            return Ok(());
        }
        let shared: Arc<str> = resource.into();
        self.recorder.record(self.hold, What::Write { resource: Arc::clone(&shared), value })?;
        let answer = store.write(resource, vec![value], check).await?;
        self.recorder.record(self.hold, What::Wrote { resource: shared, value, answer })?;
        Ok(())
    }

    async fn append(&self, store: &mut StoreClient, element: u64) -> Outcome {
        let resource: Arc<str> = "list".into();
        if !self.enter(store, &resource).await? {
            return Ok(());
        }
        let mut list = store.read(&resource).await?;
        list.push(element);
        if !self.think(&resource).await? {
            return Ok(());
        }
        self.recorder.record(self.hold, What::Append { resource: Arc::clone(&resource), element })?;
        let check = Check::Entered { token: self.guard.token().get() };
        let answer = store.write(&resource, list, check).await?;
        self.recorder.record(self.hold, What::Appended { resource, element, answer })?;
        Ok(())
    }

    async fn enter(&self, store: &mut StoreClient, resource: &str) -> Outcome<bool> {
        let token = self.guard.token().get();
        self.recorder.record(self.hold, What::Enter { resource: resource.into() })?;
        let told = store.ask(&Ask::Enter { resource: resource.to_owned(), token }).await?;
        let answer = if told.accepted { GateAnswer::Accepted } else { GateAnswer::Stale };
        self.recorder.record(self.hold, What::Entered { resource: resource.into(), answer })?;
        Ok(told.accepted)
    }

    /// Whether it still held when it looked, a moment before the write.
    async fn think(&self, resource: &str) -> io::Result<bool> {
        let think = || Duration::from_millis(fastrand::u64(0..=self.think));
        tokio::time::sleep(think()).await;
        if !self.guard.is_held() {
            return Ok(false);
        }
        self.recorder.record(self.hold, What::Decided { resource: resource.into() })?;
        // Between the look and the write there is always some time, and here some more.
        tokio::time::sleep(think()).await;
        Ok(true)
    }
}

struct StoreClient {
    connection: BufReader<TcpStream>,
}

impl StoreClient {
    async fn connect(port: u16) -> io::Result<Self> {
        let connection = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        connection.set_nodelay(true)?;
        Ok(Self { connection: BufReader::new(connection) })
    }

    async fn ask(&mut self, ask: &Ask) -> io::Result<Told> {
        let mut line = serde_json::to_string(ask)?;
        line.push('\n');
        self.connection.get_mut().write_all(line.as_bytes()).await?;
        line.clear();
        self.connection.read_line(&mut line).await?;
        Ok(serde_json::from_str(&line)?)
    }

    async fn read(&mut self, resource: &str) -> io::Result<Vec<u64>> {
        Ok(self.ask(&Ask::Read { resource: resource.to_owned() }).await?.value)
    }

    async fn write(&mut self, resource: &str, value: Vec<u64>, check: Check) -> io::Result<GateAnswer> {
        let told = self.ask(&Ask::Write { resource: resource.to_owned(), value, check }).await?;
        Ok(if told.accepted { GateAnswer::Accepted } else { GateAnswer::Stale })
    }
}

/// Reads what `start` wrote.
pub(crate) fn terms(file: &Path) -> io::Result<Terms> {
    Ok(serde_json::from_slice(&std::fs::read(file)?)?)
}
