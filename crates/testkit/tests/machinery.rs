//! The suite's own machinery: nothing is skipped, nothing hangs, no process survives.

mod own;

use async_trait::async_trait;
use fencelock_core::{DistributedLock, Error, ErrorKind, Result};
use fencelock_testkit::{CASES, Failure, Harness, HolderProcess, HolderTerms, Suite, run_if_child};
use libtest_mimic::{Arguments, Failed, Trial};
use own::Own;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A service that misbehaves before any lock is asked for.
struct Odd<const HOW: u8>;

const DOES_NOT_START: u8 = 0;
const HANGS: u8 = 1;
const PANICS: u8 = 2;

const LONG: Duration = Duration::from_secs(20);

#[async_trait]
impl<const HOW: u8> Harness for Odd<HOW> {
    const NAME: &'static str = "odd";

    async fn start() -> Result<Self> {
        if HOW == DOES_NOT_START { Err(Error::new(ErrorKind::Unavailable, "no server here")) } else { Ok(Self) }
    }

    fn address(&self) -> String {
        String::new()
    }

    async fn connect(_: &str) -> Result<Arc<dyn DistributedLock>> {
        assert!(HOW != PANICS, "told to panic");
        std::future::pending().await
    }

    async fn interrupt(&self) -> Result<()> {
        Ok(())
    }

    async fn heal(&self) -> Result<()> {
        Ok(())
    }
}

/// How often nobody answered.
static UNANSWERED: AtomicUsize = AtomicUsize::new(0);

/// A service that does not answer the first `TIMES` connections.
struct Late<const TIMES: usize>(Own<0>);

#[async_trait]
impl<const TIMES: usize> Harness for Late<TIMES> {
    const NAME: &'static str = "late";

    async fn start() -> Result<Self> {
        UNANSWERED.store(0, Ordering::SeqCst);
        Ok(Self(Own::start().await?))
    }

    fn address(&self) -> String {
        Harness::address(&self.0)
    }

    async fn connect(address: &str) -> Result<Arc<dyn DistributedLock>> {
        if UNANSWERED.fetch_add(1, Ordering::SeqCst) < TIMES {
            return Err(Error::new(ErrorKind::Unavailable, "no answer came"));
        }
        Own::<0>::connect(address).await
    }

    async fn interrupt(&self) -> Result<()> {
        Harness::interrupt(&self.0).await
    }

    async fn heal(&self) -> Result<()> {
        Harness::heal(&self.0).await
    }
}

fn unanswered_cases_begin_anew() -> Result<(), Failed> {
    let case = CASES.iter().find(|case| case.name() == "names_are_isolated").ok_or("no such case")?;
    Suite::<Late<2>>::new().run(case).map_err(|failure| failure.to_string())?;
    let failure = Suite::<Late<3>>::new().run(case).err().ok_or("it passed, and three times nobody answered")?;
    if !failure.is_unanswered() || UNANSWERED.load(Ordering::SeqCst) != 3 {
        return Err(format!("after {UNANSWERED:?} attempts: {failure}").into());
    }
    Ok(())
}

fn every_case_fails<const HOW: u8>(saying: &str, limit: Duration) -> Result<(), Failed> {
    let suite = Suite::<Odd<HOW>>::new().with_limit(limit);
    for case in CASES {
        let failure = suite.run(case).err().ok_or_else(|| format!("{} passed", case.name()))?.to_string();
        if !failure.contains(saying) {
            return Err(format!("{}: {failure}", case.name()).into());
        }
    }
    Ok(())
}

/// Whether a process of this id exists, ended but not waited for included.
fn exists(id: u32) -> bool {
    std::path::Path::new(&format!("/proc/{id}")).exists()
}

async fn processes_end() -> Result<(), Failure> {
    let own = <Own<0> as Harness>::start().await?;
    for stopped in [false, true] {
        let terms = HolderTerms::new(own.address(), format!("stopped: {stopped}"), Duration::from_secs(1));
        let mut process = HolderProcess::start(&terms)?;
        process.held().await?;
        let id = process.id();
        if stopped {
            process.stop()?;
        }
        assert!(exists(id), "the process should be running");
        drop(process);
        assert!(!exists(id), "stopped: {stopped}: the process lives on");
    }
    // What a holder cannot do is said, not waited for.
    let mut lost = HolderProcess::start(&HolderTerms::new(own.address(), "", Duration::from_secs(1)))?;
    let began = Instant::now();
    let said = lost.held().await.err().map(|e| e.to_string()).unwrap_or_default();
    assert!(said.contains("invalid name") && began.elapsed() < Duration::from_secs(20), "{said}");
    Ok(())
}

fn main() -> ExitCode {
    if let Some(exit) = run_if_child::<Own<0>>() {
        return exit;
    }
    // Panics are expected by the dozen, and what fails is shown all the same.
    std::panic::set_hook(Box::new(|_| {}));
    let trials = vec![
        Trial::test("a_service_that_does_not_start_fails_every_case", || {
            every_case_fails::<DOES_NOT_START>("no server here", LONG)
        }),
        Trial::test("a_service_that_hangs_fails_every_case", || {
            every_case_fails::<HANGS>("hung", Duration::from_millis(50))
        }),
        Trial::test("a_case_without_an_answer_begins_anew_twice_at_most", unanswered_cases_begin_anew),
        Trial::test("a_panic_fails_every_case", || every_case_fails::<PANICS>("told to panic", LONG)),
        Trial::test("processes_end_with_their_handle", || {
            let runtime = tokio::runtime::Runtime::new()?;
            runtime.block_on(processes_end()).map_err(|failure| Failed::from(failure.to_string()))
        }),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
