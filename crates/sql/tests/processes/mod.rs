//! Eight processes that add one to a row, again and again, while they are killed and stopped: behind a gate nothing
//! is lost, without it something is, and inside one transaction nothing is.
//!
//! Most are killed and stopped at random. One is not: the victim is stopped where a holder does harm, past its ttl and
//! until the others have written, so that a late write is attempted each time.

use crate::server::{Db, ms};
use libtest_mimic::{Arguments, Failed, Trial};
use rustix::process::{Pid, Signal, kill_process};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

const PROCESSES: usize = 8;
/// In all; with `FENCELOCK_INCREMENTS=500` for each of the processes.
const INCREMENTS: usize = 1_000;
/// What each of the others adds while the victim is stopped.
const MEANWHILE: usize = 15;
pub(crate) const LIMIT: Duration = Duration::from_secs(240);
pub(crate) const TTL: Duration = Duration::from_millis(600);

/// Ends the process when it is dropped.
struct Contender(Child);

impl Contender {
    /// One that goes on until it is killed.
    fn start(role: &str, url: &str, log: &Path) -> Self {
        Self::spawn(role, url, log, &[])
    }

    /// One that ends after so many increments or refusals.
    fn start_for(times: usize, role: &str, url: &str, log: &Path) -> Self {
        Self::spawn(role, url, log, &[("FENCELOCK_TIMES", &times.to_string())])
    }

    /// One that ends after one, and stands still in the middle of it until it is [let go](let_go).
    fn start_victim(role: &str, url: &str, log: &Path) -> Self {
        Self::spawn(role, url, log, &[("FENCELOCK_TIMES", "1"), ("FENCELOCK_VICTIM", "1")])
    }

    fn spawn(role: &str, url: &str, log: &Path, more: &[(&str, &str)]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env("FENCELOCK_ROLE", role).env("FENCELOCK_URL", url).env("FENCELOCK_LOG", log);
        command.envs(more.iter().copied());
        Self(command.stdout(Stdio::null()).spawn().unwrap())
    }

    /// Returns when it has ended by itself.
    fn ended(&mut self, by: Instant) {
        while self.0.try_wait().unwrap().is_none() {
            assert!(Instant::now() < by, "it did not end within {LIMIT:?}");
            std::thread::sleep(ms(10));
        }
    }

    fn signal(&self, signal: Signal) {
        let _ = kill_process(Pid::from_raw(self.0.id().cast_signed()).unwrap(), signal);
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One line a thing that happened, in one write each: `+` an increment that was acknowledged, `s` a stale one refused,
/// `h` the victim holds the lock and has not written.
pub(crate) fn note(log: &Path, what: &str) {
    let mut file = std::fs::OpenOptions::new().append(true).create(true).open(log).unwrap();
    file.write_all(format!("{what}\n").as_bytes()).unwrap();
}

fn count(log: &Path, what: &str) -> usize {
    std::fs::read_to_string(log).unwrap_or_default().lines().filter(|line| *line == what).count()
}

fn permission(log: &Path) -> PathBuf {
    log.with_extension("go")
}

/// The victim may go on.
fn let_go(log: &Path) {
    std::fs::write(permission(log), []).unwrap();
}

/// Where the victim is to be stopped: it says so, and does not go on before it was seen, however slow whoever looks.
pub(crate) async fn stand_still(log: &Path) {
    if std::env::var_os("FENCELOCK_VICTIM").is_some() {
        note(log, "h");
        while !permission(log).exists() {
            tokio::time::sleep(ms(5)).await;
        }
    }
}

/// Stops one that holds the lock, until the seven others have written; returns when it has ended as well.
fn stop_a_holder(role: &str, url: &str, log: &Path) {
    let by = Instant::now() + LIMIT;
    let mut victim = Contender::start_victim(role, url, log);
    while count(log, "h") == 0 {
        assert!(Instant::now() < by, "the victim did not get the lock within {LIMIT:?}");
        std::thread::sleep(ms(5));
    }
    victim.signal(Signal::STOP);
    let others: Vec<_> = (1..PROCESSES).map(|_| Contender::start_for(MEANWHILE, role, url, log)).collect();
    // They end by themselves, so that nothing of theirs is under way when the victim writes.
    others.into_iter().for_each(|mut other| other.ended(by));
    let_go(log);
    victim.signal(Signal::CONT);
    victim.ended(by);
}

/// What one process does: the same code on either database and its gate.
macro_rules! contend {
    ($db:ty, $gate:ty) => {{
        async fn contend(role: &str, url: &str, log: &std::path::Path) {
            use fencelock_core::{Admission, LockClient};
            use fencelock_sql::{AcquireIn as _, SqlLock};
            use std::sync::Arc;
            use std::time::Duration;
            use $crate::processes::{LIMIT, TTL, note, stand_still};
            use $crate::server::Db;

            let engine = <$db>::connect(url).await.unwrap();
            let client = LockClient::new(Arc::<SqlLock>::clone(&engine)).unwrap();
            let pool = sqlx::pool::PoolOptions::<<$db as Db>::Sqlx>::new().max_connections(2);
            let pool = pool.connect(url.split('?').next().unwrap()).await.unwrap();
            let gate = <$gate>::open(pool.clone()).await.unwrap();
            let lock = client.named("counter").ttl(TTL).wait_at_most(LIMIT);
            let times = std::env::var("FENCELOCK_TIMES").map_or(usize::MAX, |times| times.parse().unwrap());
            let mut answered = 0;
            while answered < times {
                let done: sqlx::Result<()> = async {
                    match role {
                        "transaction" => {
                            let mut transaction = pool.begin().await?;
                            let Ok(Some(_hold)) = engine.acquire_in(&mut transaction, "counter").await else {
                                return Ok(());
                            };
                            let n: i64 =
                                sqlx::query_scalar("SELECT n FROM counter").fetch_one(&mut *transaction).await?;
                            let sql = format!("UPDATE counter SET n = {}", n + 1);
                            sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&mut *transaction).await?;
                            transaction.commit().await?;
                            note(log, "+");
                            answered += 1;
                        }
                        "gate" => {
                            let Ok(guard) = lock.acquire().await else { return Ok(()) };
                            stand_still(log).await;
                            // It does not look whether it still holds: the gate must.
                            tokio::time::sleep(Duration::from_millis(fastrand::u64(0..3))).await;
                            match gate.transaction("counter", guard.token()).await {
                                Ok(Admission::Admitted(mut pass)) => {
                                    let n: i64 =
                                        sqlx::query_scalar("SELECT n FROM counter").fetch_one(&mut *pass).await?;
                                    let sql = format!("UPDATE counter SET n = {}", n + 1);
                                    sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&mut *pass).await?;
                                    if pass.commit().await.is_ok() {
                                        note(log, "+");
                                        answered += 1;
                                    }
                                }
                                Ok(Admission::Stale(_)) => {
                                    note(log, "s");
                                    answered += 1;
                                }
                                Err(_) => {}
                            }
                            let _ = guard.release().await;
                        }
                        _ => {
                            let Ok(guard) = lock.acquire().await else { return Ok(()) };
                            let n: i64 = sqlx::query_scalar("SELECT n FROM counter").fetch_one(&pool).await?;
                            stand_still(log).await;
                            tokio::time::sleep(Duration::from_millis(fastrand::u64(0..3))).await;
                            let sql = format!("UPDATE counter SET n = {}", n + 1);
                            sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&pool).await?;
                            note(log, "+");
                            answered += 1;
                            let _ = guard.release().await;
                        }
                    }
                    Ok(())
                }
                .await;
                drop(done);
            }
        }
        |role: &str, url: &str, log: &std::path::Path| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(contend(role, url, log));
        }
    }};
}

pub(crate) use contend;

struct Outcome {
    counted: usize,
    acknowledged: usize,
    stale: usize,
    kills: usize,
    stops: usize,
}

/// Stops a holder if asked, then lets them work until so many increments were acknowledged.
fn run<D: Db>(role: &'static str, stop_one: bool, at_random: bool) -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let log: PathBuf = directory.path().join("log");
    let db = D::start();
    runtime.block_on(async {
        db.run("CREATE TABLE counter (n BIGINT)").await;
        db.run("INSERT INTO counter VALUES (0)").await;
        db.client().await;
    });
    let started = Instant::now();
    if stop_one {
        stop_a_holder(role, &db.url(), &log);
    }
    let (kills, stops) = if at_random { disturb(role, &db.url(), &log) } else { (0, 0) };
    let acknowledged = count(&log, "+");
    let counted = usize::try_from(runtime.block_on(db.number("SELECT n FROM counter"))).unwrap();
    let stale = count(&log, "s");
    println!(
        "{role}: {acknowledged} acknowledged, {counted} counted, {stale} stale refused, {kills} killed, {stops} stopped, {:?}",
        started.elapsed()
    );
    Outcome { counted, acknowledged, stale, kills, stops }
}

/// Eight that are killed and stopped at random until enough was acknowledged: how many were killed, how many stopped.
fn disturb(role: &str, url: &str, log: &Path) -> (usize, usize) {
    let mut contenders: Vec<_> = (0..PROCESSES).map(|_| Contender::start(role, url, log)).collect();
    let (started, mut kills, mut stops) = (Instant::now(), 0, 0);
    let each = std::env::var("FENCELOCK_INCREMENTS").ok().and_then(|n| n.parse::<usize>().ok());
    let wanted = each.map_or(INCREMENTS, |each| each * PROCESSES);
    while count(log, "+") < wanted || stops == 0 {
        let limit = if each.is_some() { LIMIT * 5 } else { LIMIT };
        assert!(started.elapsed() < limit, "{} of {wanted} in {limit:?}", count(log, "+"));
        std::thread::sleep(ms(60));
        let victim = fastrand::usize(..PROCESSES);
        match fastrand::u8(..8) {
            0 => {
                contenders[victim] = Contender::start(role, url, log);
                kills += 1;
            }
            1..=3 => {
                // Several, so that the holder is among them now and then.
                let some: Vec<_> = contenders.iter().filter(|_| fastrand::bool()).collect();
                some.iter().for_each(|contender| contender.signal(Signal::STOP));
                std::thread::sleep(TTL + ms(300));
                some.iter().for_each(|contender| contender.signal(Signal::CONT));
                stops += some.len();
            }
            _ => {}
        }
    }
    // Nobody is in the middle of anything any more when it is counted: their connections end with them.
    drop(contenders);
    std::thread::sleep(ms(500));
    (kills, stops)
}

fn gate<D: Db>() -> Result<(), Failed> {
    let outcome = run::<D>("gate", true, true);
    assert!(outcome.stale > 0 && outcome.stops > 0, "a stale write was really attempted");
    assert!(outcome.counted >= outcome.acknowledged, "no acknowledged update is lost");
    assert!(outcome.counted <= outcome.acknowledged + outcome.kills + PROCESSES, "and none was made twice");
    Ok(())
}

/// The negative control: what the test looks for does happen where there is no gate.
fn without_the_gate_updates_are_lost<D: Db>() -> Result<(), Failed> {
    // Nothing else disturbs them: a second late write can put back what a first one undid.
    let outcome = run::<D>("none", true, false);
    assert_eq!(outcome.acknowledged, (PROCESSES - 1) * MEANWHILE + 1, "all were told that theirs is written");
    assert_eq!(outcome.counted, 1, "the victim had read 0, and its late write undid all that the others wrote");
    Ok(())
}

fn transaction<D: Db>() -> Result<(), Failed> {
    let outcome = run::<D>("transaction", false, true);
    assert!(outcome.counted >= outcome.acknowledged, "no acknowledged update is lost");
    assert!(outcome.counted <= outcome.acknowledged + outcome.kills + PROCESSES, "and none was made twice");
    Ok(())
}

/// One of the processes, or the tests of one database.
pub(crate) fn main<D: Db>(name: &str, contend: impl Fn(&str, &str, &Path)) -> ExitCode {
    if let (Ok(role), Ok(url), Ok(log)) =
        (std::env::var("FENCELOCK_ROLE"), std::env::var("FENCELOCK_URL"), std::env::var("FENCELOCK_LOG"))
    {
        contend(&role, &url, Path::new(&log));
        return ExitCode::FAILURE;
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(1);
    let trials = vec![
        Trial::test(format!("{name}_behind_the_gate_none_is_lost"), gate::<D>),
        Trial::test(format!("{name}_without_the_gate_updates_are_lost"), without_the_gate_updates_are_lost::<D>),
        Trial::test(format!("{name}_inside_the_transaction_none_is_lost"), transaction::<D>),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}
