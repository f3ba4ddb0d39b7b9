//! Running cases: all of them, each on a runtime of its own, with a time limit.

use crate::failure::{Failure, Outcome};
use crate::harness::{Bench, Harness};
use crate::stage::{Stage, report};
use crate::{CASES, Case, child};
use fencelock_core::Result;
use libtest_mimic::{Arguments, Failed, Trial};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// The longest that one case may take, and starting or healing the service.
const LIMIT: Duration = Duration::from_secs(120);
/// Cases mostly wait, so more of them run at once than there are cores.
const AT_ONCE: usize = 8;
/// How often a case is tried that ends for want of an answer.
const TRIES: usize = 3;
/// What lies before such a try, and twice that before the next.
const PAUSE: Duration = Duration::from_secs(1);

/// The whole of an engine's `tests/contract.rs` (with `harness = false`): runs
/// every case, or those that the usual arguments of a test binary select.
///
/// In a child process of the suite it runs the child's part instead.
#[must_use]
pub fn main<H: Harness>() -> ExitCode {
    if let Some(exit) = child::run_if_child::<H>() {
        return exit;
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_ONCE);
    let suite = Arc::new(Suite::<H>::new());
    let trials = CASES.iter().map(|case| {
        let suite = Arc::clone(&suite);
        Trial::test(case.name(), move || suite.run(case).map_err(|failure| Failed::from(failure.to_string())))
            .with_kind(H::NAME)
    });
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    drop(suite);
    conclusion.exit_code()
}

/// One engine's run of the suite: a service, started when the first case needs it.
pub struct Suite<H> {
    keeper: OnceLock<Result<Keeper<H>, String>>,
    /// Cases share the service; those that do it harm take it alone.
    turn: RwLock<()>,
    limit: Duration,
}

/// The service, and the runtime that it was started on.
struct Keeper<H> {
    harness: Arc<H>,
    _runtime: Runtime,
}

impl<H: Harness> Suite<H> {
    /// A run that has not started its service yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { keeper: OnceLock::new(), turn: RwLock::new(()), limit: LIMIT }
    }

    /// Ends a case with a failure after `limit` instead of two minutes.
    #[must_use]
    pub fn with_limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Runs one case on a fresh runtime. Blocks its thread; not for use inside a runtime.
    ///
    /// # Errors
    /// What the case found, that it hung, or that it panicked.
    pub fn run(&self, case: &Case) -> Result<(), Failure> {
        let keeper = match self.keeper.get_or_init(|| start().map_err(|e| e.to_string())) {
            Ok(keeper) => keeper,
            Err(e) => return Err(Failure::new(format!("the service was not started: {e}"))),
        };
        if case.is_alone() {
            let _alone = self.turn.write().unwrap_or_else(PoisonError::into_inner);
            answered(case, &keeper.harness, || {
                let outcome = run_on_its_own(case, &keeper.harness, self.limit);
                let healed = on_a_runtime(async { keeper.harness.heal().await });
                outcome.and(healed).and_then(|()| settle(&keeper.harness))
            })
        } else {
            let _shared = self.turn.read().unwrap_or_else(PoisonError::into_inner);
            answered(case, &keeper.harness, || run_on_its_own(case, &keeper.harness, self.limit))
        }
    }
}

/// On a machine that stands still for longer than an engine waits for an answer there is none, which is no fault of
/// the engine's: such a case begins anew, under other names. An engine that never answers fails all the same.
fn answered<H: Harness>(case: &Case, harness: &Arc<H>, mut run: impl FnMut() -> Outcome) -> Outcome {
    for attempt in 1..TRIES {
        match run() {
            Err(failure) if failure.is_unanswered() => {
                let name = case.name();
                report(format_args!("{name}: no answer, begun anew after attempt {attempt}: {failure}"));
                // What stood still once may stand still again at once.
                std::thread::sleep(PAUSE * u32::try_from(attempt).unwrap_or(1));
                settle(harness)?;
            }
            outcome => return outcome,
        }
    }
    run()
}

impl<H: Harness> Default for Suite<H> {
    fn default() -> Self {
        Self::new()
    }
}

impl<H> std::fmt::Debug for Suite<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Suite").field("started", &self.keeper.get().is_some()).finish_non_exhaustive()
    }
}

fn runtime() -> Outcome<Runtime> {
    Ok(Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

fn start<H: Harness>() -> Outcome<Keeper<H>> {
    let runtime = runtime()?;
    let started = runtime.block_on(async { tokio::time::timeout(LIMIT, H::start()).await });
    let harness = started.map_err(|_| Failure::new(format!("it took longer than {LIMIT:?}")))??;
    Ok(Keeper { harness: Arc::new(harness), _runtime: runtime })
}

fn run_on_its_own<H: Harness>(case: &Case, harness: &Arc<H>, limit: Duration) -> Outcome {
    let runtime = runtime()?;
    let bench: Arc<dyn Bench> = Arc::<H>::clone(harness);
    let (name, run) = (case.name(), case.body());
    let task = runtime.spawn(async move { run(Stage::set(bench, name).await?).await });
    let stop = task.abort_handle();
    let outcome = runtime.block_on(async { tokio::time::timeout(limit, task).await });
    stop.abort();
    // Waits for nothing that hangs, but gives an aborted case the time to end its child processes.
    runtime.shutdown_timeout(Duration::from_millis(if outcome.is_err() { 500 } else { 20 }));
    match outcome {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(panicked)) => Err(Failure::new(panic_message(panicked))),
        Err(_) => Err(Failure::new(format!("hung: it had not ended after {limit:?}"))),
    }
}

fn panic_message(e: tokio::task::JoinError) -> String {
    let text = e.to_string();
    let Ok(payload) = e.try_into_panic() else { return text };
    let said = payload.downcast_ref::<&str>().map(|s| (*s).to_owned()).or(payload.downcast_ref::<String>().cloned());
    format!("panicked: {}", said.unwrap_or(text))
}

fn settle<H: Harness>(harness: &Arc<H>) -> Outcome {
    on_a_runtime(async { harness.settle().await })
}

/// What is done to the service, within the time that it may take.
fn on_a_runtime(done: impl Future<Output = Result<()>>) -> Outcome {
    let runtime = runtime()?;
    let done = runtime.block_on(async { tokio::time::timeout(LIMIT, done).await });
    runtime.shutdown_background();
    done.map_err(|_| Failure::new(format!("the service had not settled after {LIMIT:?}")))?.map_err(Failure::from)
}
