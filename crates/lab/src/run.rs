//! A whole run: experiments side by side, and what came of all of them.

use crate::claim::{Claim, claims};
use crate::experiment::{Asked, Experiment};
use crate::guarded::Guarded;
use crate::report::{self, Found, Report};
use crate::verdict::{Came, Expected, Row, judge};
use crate::{Run, cleanup, plan, runner};
use fencelock_lab::Failure;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often a witness is looked for. One is enough, and it is a matter of chance
/// where a fault meets a holder; what must hold has to hold each time.
const TRIES: u64 = 3;

/// What is tried, and what is expected of it beyond what the deployment will say of itself.
pub(crate) fn described(experiment: &Experiment) -> String {
    let named = |all: &[Asked]| match all {
        [] => "nothing more".to_owned(),
        all => all.iter().map(|asked| asked.id()).collect::<Vec<_>>().join(", "),
    };
    let marks = [(experiment.quick, " (quick)"), (experiment.wrong, " (wrong on purpose, by --self-test only)")];
    let marks: String = marks.iter().filter(|(is, _)| *is).map(|(_, mark)| *mark).collect();
    let faults = experiment.mixed.iter().map(|fault| fault.id()).collect::<Vec<_>>().join(", ");
    let of = if faults.is_empty() { faults } else { format!(" of {faults}") };
    format!(
        "{}{marks}{of}: {} workers, ttl {:?}, {} rounds; has to hold what its level promises and {}, and to break {}",
        experiment.id(),
        experiment.workers,
        experiment.ttl,
        experiment.rounds,
        named(&experiment.holds),
        named(&experiment.breaks)
    )
}

fn chosen(run: &Run) -> Result<Vec<Experiment>, Failure> {
    let is = |wanted: &[String], it: &str| wanted.is_empty() || wanted.iter().any(|wanted| wanted == it);
    let all = if run.self_test { plan::self_test() } else { plan::experiments() };
    let experiments: Vec<_> = all
        .into_iter()
        .filter(|e| is(&run.engine, e.engine) && is(&run.deployment, e.deployment) && is(&run.fault, &e.fault_id()))
        .filter(|e| !run.quick || e.quick)
        .filter(|e| run.minutes.is_none() || !run.fault.is_empty() || !e.mixed.is_empty())
        .collect();
    if experiments.is_empty() {
        return Err(Failure::new("nothing of that kind can be tried; see `list`"));
    }
    Ok(experiments)
}

/// Whether all of it was asked for, so that every claim can be judged.
fn is_whole(run: &Run) -> bool {
    let picked = [&run.engine, &run.deployment, &run.fault].into_iter().any(|picked| !picked.is_empty());
    !picked && !run.quick && !run.self_test && run.minutes.is_none()
}

pub(crate) fn try_all(run: &Run) -> Result<ExitCode, Failure> {
    let place = cleanup::Place::make()?;
    cleanup::end_on_signals(place.path());
    let experiments = chosen(run)?;
    let seed = run.seed.unwrap_or_else(|| fastrand::u64(0..1_000_000));
    let count = u32::try_from(experiments.len()).unwrap_or(u32::MAX);
    let share = run.minutes.map(|minutes| Duration::from_secs_f64((minutes * 60.0).max(1.0)) / count);
    let jobs = run.jobs.unwrap_or(if run.quick { 3 } else { 1 }).clamp(1, 8);
    let begin = Instant::now();
    let (reports, failed) = side_by_side(run, &experiments, jobs, seed, share);
    let ended = runner::ENDED.load(Ordering::Relaxed);
    let found =
        Found { claims: claims(&reports), guarded: Guarded::of(&reports), took: begin.elapsed(), seed, reports };
    if let Some(file) = &run.json {
        report::write_json(file, &found)?;
    }
    if let Some(file) = &run.html {
        std::fs::write(file, report::page(&found))?;
    }
    let wrong = found.rows().filter(|row| !row.is_as_expected()).count();
    let unconfirmed = found.claims.iter().filter(|claim| !claim.confirmed).count();
    let whole = is_whole(run);
    report::tell_claims(&found, whole);
    let asked = found.rows().filter(|row| row.expected != Expected::Nothing).count();
    println!(
        "{} experiments in {:.1} minutes, {jobs} at a time, seed {seed}: {asked} verdicts expected, {wrong} not as \
         expected, {failed} could not be tried{}",
        found.reports.len(),
        found.took.as_secs_f64() / 60.0,
        if ended { "; ended early" } else { "" }
    );
    drop(place);
    let good = wrong == 0 && failed == 0 && !ended && !(whole && unconfirmed > 0);
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The reports in the order of the experiments, and how many could not be made.
fn side_by_side(
    run: &Run,
    experiments: &[Experiment],
    jobs: usize,
    seed: u64,
    share: Option<Duration>,
) -> (Vec<Report>, usize) {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let mut order: Vec<_> = experiments.iter().enumerate().collect();
    if run.quick {
        // Those that take long are not left for the end, when nobody is beside them.
        order.sort_by_key(|(_, experiment)| std::cmp::Reverse(experiment.about()));
    }
    std::thread::scope(|threads| {
        for _ in 0..jobs {
            threads.spawn(|| {
                while !runner::ENDED.load(Ordering::Relaxed) {
                    let begun = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&(at, experiment)) = order.get(begun) else { break };
                    eprintln!("[{}/{}] {} (seed {seed})", begun + 1, experiments.len(), experiment.id());
                    let outcome = try_one(run, experiment, seed, share);
                    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                    match &outcome {
                        Ok(report) => report::tell(&report.rows),
                        Err(e) => eprintln!("{} could not be tried: {e}", experiment.id()),
                    }
                    done.push((at, outcome));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(at, _)| *at);
    let (tried, failed): (Vec<_>, Vec<_>) = done.into_iter().map(|(_, outcome)| outcome).partition(Result::is_ok);
    (tried.into_iter().flatten().collect(), failed.len())
}

fn try_one(run: &Run, experiment: &Experiment, seed: u64, share: Option<Duration>) -> Result<Report, Failure> {
    let first = seed;
    for seed in first.. {
        let folder = folder(run, experiment, seed)?;
        let ended = || runner::ENDED.load(Ordering::Relaxed);
        let last = seed >= first + TRIES - 1 || ended();
        let ran = match runner::run(experiment, seed, share, folder.path()) {
            Ok(ran) => ran,
            // A worker that ended has seen something; servers that did not come up may the next time.
            Err(e) if last || ended() || e.to_string().starts_with("worker ") => return Err(e),
            Err(e) => {
                eprintln!("{}: {e}; again with seed {}", experiment.id(), seed + 1);
                continue;
            }
        };
        let rows = judge(experiment, seed, &ran);
        let broken = rows.iter().any(|row| row.expected == Expected::Holds && row.verdict == Came::Broken);
        let done = rows.iter().all(Row::is_as_expected);
        if broken || done || last || ended() || share.is_some() {
            return Ok(Report { experiment: experiment.clone(), found: ran.found, rows, events: ran.events });
        }
        eprintln!(
            "{}: nothing broken, and not all shown that was looked for; again with seed {}",
            experiment.id(),
            seed + 1
        );
    }
    Err(Failure::new("no seed is left"))
}

enum Folder {
    Kept(PathBuf),
    Passing(tempfile::TempDir),
}

impl Folder {
    fn path(&self) -> &std::path::Path {
        match self {
            Self::Kept(path) => path,
            Self::Passing(folder) => folder.path(),
        }
    }
}

fn folder(run: &Run, experiment: &Experiment, seed: u64) -> Result<Folder, Failure> {
    let Some(keep) = &run.keep else {
        return Ok(Folder::Passing(tempfile::Builder::new().prefix("fencelock-lab-").tempdir()?));
    };
    let folder = keep.join(format!("{}-{seed}", experiment.id().replace(['/', ' '], "-")));
    std::fs::create_dir_all(keep)?;
    std::fs::create_dir(&folder).map_err(|e| Failure::new(format!("{}: {e}", folder.display())))?;
    Ok(Folder::Kept(folder))
}

impl Found {
    pub(crate) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.reports.iter().flat_map(|report| &report.rows)
    }

    /// The claim that an experiment speaks of.
    pub(crate) fn claim_of(&self, row: &Row) -> Option<&Claim> {
        let same =
            |claim: &&Claim| claim.engine == row.engine && claim.server == row.server && claim.level == row.level;
        self.claims.iter().find(same)
    }
}
