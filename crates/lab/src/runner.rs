//! Runs one experiment: starts the deployment and the workers, does the faults by
//! the seed, and gives back the history.

use crate::experiment::{Deployment, Experiment, Victim};
use crate::fault::Fault;
use crate::store::Store;
use crate::worker::Terms;
use fencelock::Guarantees;
use fencelock_lab::Failure;
use fencelock_testkit::history::{Event, Recorder, What, read};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Set when the run is to end early, as by Ctrl-C.
pub(crate) static ENDED: AtomicBool = AtomicBool::new(false);

/// What came of it.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) events: Vec<Event>,
    /// What the deployment said of itself when it was connected to.
    pub(crate) found: Arc<Guarantees>,
    /// What was attested.
    pub(crate) attested: Vec<String>,
    /// How long the workers worked in all, until the last was ended.
    pub(crate) lasted: Duration,
}

struct Worker {
    child: Child,
    number: u32,
    history: PathBuf,
}

impl Worker {
    fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            let _ = kill_process(pid, signal);
        }
    }

    /// The last that it wrote.
    fn last_line(&self) -> String {
        let mut tail = Vec::new();
        if let Ok(mut file) = std::fs::File::open(&self.history) {
            let end = file.metadata().map_or(0, |metadata| metadata.len());
            let _ = file.seek(SeekFrom::Start(end.saturating_sub(512)));
            let _ = file.read_to_end(&mut tail);
        }
        String::from_utf8_lossy(&tail).trim_end().lines().last().unwrap_or_default().to_owned()
    }

    /// Which of its holds that was of.
    fn last_hold(&self) -> Option<u32> {
        let line = self.last_line();
        serde_json::from_str::<Event>(&line).ok().map(|event| event.hold)
    }

    /// Whether it has asked and not been answered.
    fn is_waiting(&self) -> bool {
        self.last_line().contains("\"acquire\"")
    }

    /// Whether it is under a lock, and where `aim` is given, between its look and its write there.
    fn is_target(&self, aim: Option<&str>) -> bool {
        let last = self.last_line();
        let outside = ["\"acquire\"", "\"not_granted\"", "\"release\"", "\"released\"", "\"doubted\"", "\"lost\""];
        match aim {
            Some(resource) => last.contains("\"decided\"") && last.contains(&format!("\"{resource}\"")),
            None => !last.is_empty() && !outside.iter().any(|what| last.contains(what)),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Run<'a> {
    experiment: &'a Experiment,
    /// Before the servers, so that they end first.
    workers: Vec<Worker>,
    deployment: Box<dyn Deployment>,
    store: Store,
    folder: &'a Path,
    started: u32,
    seed: u64,
    recorder: Recorder,
}

/// Runs it in `folder`, for as many rounds as it says or for `lasting`.
pub(crate) fn run(
    experiment: &Experiment,
    seed: u64,
    lasting: Option<Duration>,
    folder: &Path,
) -> Result<Ran, Failure> {
    let deployment = (experiment.start)()?;
    let recorder = Recorder::create(&folder.join("lab.jsonl"), 0)?;
    let mut run =
        Run { experiment, deployment, store: Store::start()?, folder, workers: Vec::new(), started: 0, seed, recorder };
    let (found, attested) = run.probe()?;
    let begin = Instant::now();
    for _ in 0..experiment.workers {
        run.start_worker()?;
    }
    run.await_workers()?;
    run.rest(experiment.ttl.max(Duration::from_secs(2)));
    let end = lasting.map(|lasting| Instant::now() + lasting);
    for fault in 1.. {
        let over = end.map_or(fault > experiment.rounds, |end| Instant::now() > end);
        if over || ENDED.load(Ordering::Relaxed) {
            break;
        }
        run.round(fault)?;
    }
    run.rest(run.long_rest());
    let lasted = begin.elapsed();
    let (folder, final_values) = run.finish()?;
    let files = std::fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path()));
    let mut events = read(files.filter(|path| path.extension().is_some_and(|e| e == "jsonl")))?;
    let at = events.last().map_or(0, |last| last.at + 1);
    events.extend(final_values.into_iter().map(|what| Event { at, worker: 0, hold: 0, what }));
    Ok(Ran { events, found, attested, lasted })
}

impl<'a> Run<'a> {
    /// Connects once, as a program would, to see what is promised.
    fn probe(&mut self) -> Result<(Arc<Guarantees>, Vec<String>), Failure> {
        let (url, attest) = (self.deployment.url(u32::MAX)?, self.deployment.attest());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let connected = runtime.block_on(async {
            let builder = attest.iter().fold(fencelock::builder(&url), |builder, rule| builder.attest(rule));
            let client = builder.connect().await?;
            let found = client.guarantees();
            client.close().await;
            Ok::<_, fencelock::Error>(found)
        });
        let found = connected.map_err(|e| Failure::new(format!("{}: {e}", self.experiment.id())))?;
        Ok((found, attest))
    }

    fn start_worker(&mut self) -> Result<(), Failure> {
        self.started += 1;
        let number = self.started;
        let history = self.folder.join(format!("{number}.jsonl"));
        let terms = Terms {
            url: self.deployment.url(number)?,
            attest: self.deployment.attest(),
            number,
            history: history.clone(),
            store: self.store.port(),
            ttl: self.experiment.ttl,
            work: self.experiment.work,
            seed: self.seed,
        };
        let file = self.folder.join(format!("{number}.terms"));
        std::fs::write(&file, serde_json::to_vec(&terms).map_err(std::io::Error::from)?)?;
        let log = std::fs::File::create(self.folder.join(format!("{number}.log")))?;
        let child = Command::new(std::env::current_exe()?)
            .arg("worker")
            .arg(&file)
            // It ends when this end of the pipe does, also if we are killed.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()?;
        self.workers.push(Worker { child, number, history });
        Ok(())
    }

    /// Until each has asked for a lock: of one that never does, no fault shows anything.
    fn await_workers(&mut self) -> Result<(), Failure> {
        let end = Instant::now() + Duration::from_secs(60);
        while let Some(idle) = self.workers.iter().find(|worker| worker.last_line().is_empty()) {
            if Instant::now() > end {
                let log = std::fs::read_to_string(idle.history.with_extension("log")).unwrap_or_default();
                let last = log.lines().last().unwrap_or_default();
                return Err(Failure::new(format!("worker {} has not asked for a lock: {last}", idle.number)));
            }
            if ENDED.load(Ordering::Relaxed) {
                break;
            }
            self.all_alive()?;
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Long enough for it to show if nobody is served any more.
    fn long_rest(&self) -> Duration {
        self.experiment.served_within + Duration::from_secs(1)
    }

    /// One fault, from the rest before it to its end.
    fn round(&mut self, number: u32) -> Result<(), Failure> {
        let spread = u64::try_from(self.experiment.rest.as_millis()).unwrap_or(u64::MAX);
        // Of the seed and the round alone, so that no chance of timing changes what comes later.
        let mut random = fastrand::Rng::with_seed(self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(number));
        let more = Duration::from_millis(random.u64(0..=spread / 2));
        let rest = self.experiment.rest + more;
        self.rest(if number.is_multiple_of(3) { rest.max(self.long_rest()) } else { rest });
        let faults = self.experiment.faults();
        let Some(fault) = random.choice(faults).filter(|fault| *fault != Fault::None) else { return Ok(()) };
        let aim = self.experiment.aim.iter().cycle().nth(number as usize).copied();
        let victim = self.victim(&mut random, aim);
        let Some(worker) = self.workers.get(victim) else { return Ok(()) };
        let at_worker = worker.number;
        let kind = format!("{fault} {at_worker}").into();
        self.recorder.record(0, What::Fault { fault: number, kind })?;
        match fault {
            Fault::HolderKilled => drop(self.workers.remove(victim)),
            Fault::HolderStoppedShort | Fault::HolderStoppedLong => worker.signal(Signal::STOP),
            Fault::RepliesLate => {
                self.deployment.hurt(fault, at_worker)?;
                self.await_proof(number, victim);
                self.deployment.hurt(fault, at_worker)?;
            }
            _ => self.deployment.hurt(fault, at_worker)?,
        }
        self.rest(self.experiment.lasting(fault));
        self.all_alive()?;
        match fault {
            Fault::HolderKilled => self.start_worker()?,
            Fault::HolderStoppedShort | Fault::HolderStoppedLong => {
                self.workers.iter().for_each(|worker| worker.signal(Signal::CONT));
            }
            _ => self.deployment.mend(fault, at_worker)?,
        }
        self.recorder.record(0, What::Healed { fault: number })?;
        Ok(())
    }

    /// The one that the seed says, as soon as it can be hit; another, in an order that
    /// the seed says too, where that does not come to pass.
    fn victim(&self, random: &mut fastrand::Rng, aim: Option<&str>) -> usize {
        let mut order: Vec<_> = (0..self.workers.len()).collect();
        random.shuffle(&mut order);
        let (begin, patience) = (Instant::now(), self.experiment.ttl.max(Duration::from_secs(3)));
        let is_target = |at: &usize, aim| {
            let worker = self.workers.get(*at);
            worker.is_some_and(|worker| match self.experiment.victim {
                Victim::Holder => worker.is_target(aim),
                Victim::Waiter => worker.is_waiting(),
            })
        };
        // First the one chosen, then whoever it is, and at last without looking where it is at.
        while begin.elapsed() < patience * 3 && !ENDED.load(Ordering::Relaxed) {
            let tries = if begin.elapsed() < patience { 1 } else { order.len() };
            let aim = aim.filter(|_| begin.elapsed() < patience * 2);
            if let Some(at) = order.iter().take(tries).find(|at| is_target(at, aim)) {
                return *at;
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        order.first().copied().unwrap_or_default()
    }

    /// Until a worker has been told that it holds: by an acquire, and each third time by a renewal.
    fn await_proof(&self, number: u32, worker: usize) {
        let Some(worker) = self.workers.get(worker) else { return };
        if number.is_multiple_of(3) {
            // It is renewed after a third.
            return self.rest(self.experiment.ttl * 2 / 5);
        }
        let (before, end) = (worker.last_hold(), Instant::now() + self.experiment.ttl * 12);
        while !(worker.is_target(None) && worker.last_hold() != before) && Instant::now() < end {
            if ENDED.load(Ordering::Relaxed) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn rest(&self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end && !ENDED.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(20).min(end.saturating_duration_since(Instant::now())));
        }
    }

    /// A worker that ended unasked has seen something that no history tells.
    fn all_alive(&mut self) -> Result<(), Failure> {
        for worker in &mut self.workers {
            if let Some(status) = worker.child.try_wait()? {
                let log = std::fs::read_to_string(worker.history.with_extension("log")).unwrap_or_default();
                return Err(Failure::new(format!("worker {} ended with {status}: {}", worker.number, log.trim())));
            }
        }
        Ok(())
    }

    /// Ends the workers, and tells what is in the store then.
    fn finish(mut self) -> Result<(&'a Path, Vec<What>), Failure> {
        self.all_alive()?;
        for worker in &mut self.workers {
            worker.signal(Signal::CONT);
            drop(worker.child.stdin.take());
        }
        let end = Instant::now() + Duration::from_secs(5);
        for worker in &mut self.workers {
            while worker.child.try_wait()?.is_none() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        self.workers.clear();
        let values = self.store.values().into_iter().map(|(resource, value)| {
            let resource: Arc<str> = resource.into();
            match value.as_slice() {
                elements if resource.starts_with("list") => What::FinalList { resource, elements: elements.to_vec() },
                [count] => What::FinalCount { resource, value: *count },
                _ => What::FinalCount { resource, value: 0 },
            }
        });
        Ok((self.folder, values.collect()))
    }
}
