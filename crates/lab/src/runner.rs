//! Runs one experiment: starts the deployment and the workers, does the faults by
//! the seed, and gives back the history.

use crate::experiment::{Deployment, Experiment};
use crate::fault::Fault;
use crate::store::Store;
use crate::worker::Terms;
use fencelock_lab::Failure;
use fencelock_testkit::history::{Event, Recorder, What, read};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Set when the run is to end early, as by Ctrl-C.
pub(crate) static ENDED: AtomicBool = AtomicBool::new(false);

/// What came of it.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) events: Vec<Event>,
    /// The level that the deployment gave when it was connected to.
    pub(crate) level: String,
    /// What it said it is, with its version, and what was attested.
    pub(crate) server: String,
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
    random: fastrand::Rng,
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
    let mut run = Run {
        experiment,
        deployment,
        store: Store::start()?,
        folder,
        workers: Vec::new(),
        started: 0,
        random: fastrand::Rng::with_seed(seed),
        recorder,
    };
    let (level, server) = run.level()?;
    for _ in 0..experiment.workers {
        run.start_worker()?;
    }
    run.rest(experiment.ttl.max(Duration::from_secs(2)));
    let end = lasting.map(|lasting| Instant::now() + lasting);
    for fault in 1.. {
        let over = end.map_or(fault > experiment.rounds, |end| Instant::now() > end);
        if over || ENDED.load(Ordering::Relaxed) {
            break;
        }
        run.round(fault)?;
    }
    run.rest(experiment.ttl * 2);
    let (folder, final_values) = run.finish()?;
    let files = std::fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path()));
    let mut events = read(files.filter(|path| path.extension().is_some_and(|e| e == "jsonl")))?;
    let at = events.last().map_or(0, |last| last.at + 1);
    events.extend(final_values.into_iter().map(|what| Event { at, worker: 0, hold: 0, what }));
    Ok(Ran { events, level, server })
}

impl<'a> Run<'a> {
    /// Connects once, as a program would, to see what is promised.
    fn level(&mut self) -> Result<(String, String), Failure> {
        let (url, attest) = (self.deployment.url(u32::MAX)?, self.deployment.attest());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let connected = runtime.block_on(async {
            let builder = attest.iter().fold(fencelock::builder(&url), |builder, rule| builder.attest(rule));
            let client = builder.connect().await?;
            let found = client.guarantees();
            client.close().await;
            let level = found.level().map_or_else(|| "none".to_owned(), |level| level.to_string());
            let attested = attest.iter().map(|rule| format!(", {rule} attested"));
            Ok::<_, fencelock::Error>((level, [found.deployment().to_owned()].into_iter().chain(attested).collect()))
        });
        connected.map_err(|e| Failure::new(format!("{}: {e}", self.experiment.id())))
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

    /// One fault, from the rest before it to its end.
    fn round(&mut self, number: u32) -> Result<(), Failure> {
        let spread = u64::try_from(self.experiment.rest.as_millis()).unwrap_or(u64::MAX);
        let more = Duration::from_millis(self.random.u64(0..=spread / 2));
        self.rest(self.experiment.rest + more);
        let fault = self.experiment.fault;
        if fault == Fault::None {
            return Ok(());
        }
        let aim = self.experiment.aim.iter().cycle().nth(number as usize).copied();
        let victim = self.victim(aim);
        let Some(worker) = self.workers.get(victim) else { return Ok(()) };
        let at_worker = worker.number;
        let kind = format!("{fault} {at_worker}").into();
        self.recorder.record(0, What::Fault { fault: number, kind })?;
        match fault {
            Fault::HolderKilled => drop(self.workers.remove(victim)),
            Fault::HolderStoppedShort | Fault::HolderStoppedLong => worker.signal(Signal::STOP),
            _ => self.deployment.hurt(fault, at_worker)?,
        }
        self.rest(self.experiment.lasts);
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

    /// One that can be hit just now, if one is found soon.
    fn victim(&mut self, aim: Option<&str>) -> usize {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(3) {
            let aim = aim.filter(|_| begin.elapsed() < Duration::from_secs(2));
            let at = self.random.usize(0..self.workers.len().max(1));
            if self.workers.get(at).is_some_and(|worker| worker.is_target(aim)) {
                return at;
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        0
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
            let resource: std::sync::Arc<str> = resource.into();
            match value.as_slice() {
                elements if &*resource == "list" => What::FinalList { resource, elements: elements.to_vec() },
                [count] => What::FinalCount { resource, value: *count },
                _ => What::FinalCount { resource, value: 0 },
            }
        });
        Ok((self.folder, values.collect()))
    }
}
