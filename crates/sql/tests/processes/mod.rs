//! Eight processes that add one to a row, again and again, while they are killed and stopped at random:
//! behind a gate nothing is lost, without it something is, and inside one transaction nothing is.

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
pub(crate) const LIMIT: Duration = Duration::from_secs(240);
pub(crate) const TTL: Duration = Duration::from_millis(600);

/// Ends the process when it is dropped.
struct Contender(Child);

impl Contender {
    fn start(role: &str, url: &str, log: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env("FENCELOCK_ROLE", role).env("FENCELOCK_URL", url).env("FENCELOCK_LOG", log);
        Self(command.stdout(Stdio::null()).spawn().unwrap())
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

/// One line a thing that happened, in one write each: `+` an increment that was acknowledged, `s` a stale one refused.
pub(crate) fn note(log: &Path, what: &str) {
    let mut file = std::fs::OpenOptions::new().append(true).create(true).open(log).unwrap();
    file.write_all(format!("{what}\n").as_bytes()).unwrap();
}

fn count(log: &Path, what: &str) -> usize {
    std::fs::read_to_string(log).unwrap_or_default().lines().filter(|line| *line == what).count()
}

/// What one process does: the same code on either database and its gate.
macro_rules! contend {
    ($db:ty, $gate:ty) => {{
        async fn contend(role: &str, url: &str, log: &std::path::Path) {
            use fencelock_core::{Admission, LockClient};
            use fencelock_sql::{AcquireIn as _, SqlLock};
            use std::sync::Arc;
            use std::time::Duration;
            use $crate::processes::{LIMIT, TTL, note};
            use $crate::server::Db;

            let engine = <$db>::connect(url).await.unwrap();
            let client = LockClient::new(Arc::<SqlLock>::clone(&engine)).unwrap();
            let pool = sqlx::pool::PoolOptions::<<$db as Db>::Sqlx>::new().max_connections(2);
            let pool = pool.connect(url.split('?').next().unwrap()).await.unwrap();
            let gate = <$gate>::open(pool.clone()).await.unwrap();
            let lock = client.named("counter").ttl(TTL).wait_at_most(LIMIT);
            loop {
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
                        }
                        "gate" => {
                            let Ok(guard) = lock.acquire().await else { return Ok(()) };
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
                                    }
                                }
                                Ok(Admission::Stale(_)) => note(log, "s"),
                                Err(_) => {}
                            }
                            let _ = guard.release().await;
                        }
                        _ => {
                            let Ok(guard) = lock.acquire().await else { return Ok(()) };
                            let n: i64 = sqlx::query_scalar("SELECT n FROM counter").fetch_one(&pool).await?;
                            tokio::time::sleep(Duration::from_millis(fastrand::u64(0..3))).await;
                            let sql = format!("UPDATE counter SET n = {}", n + 1);
                            sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&pool).await?;
                            note(log, "+");
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

/// Lets them work until so many increments were acknowledged and, behind a gate, a stale one was refused.
fn run<D: Db>(role: &'static str, until: impl Fn(usize, usize, usize) -> bool) -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let log: PathBuf = directory.path().join("log");
    let db = D::start();
    runtime.block_on(async {
        db.run("CREATE TABLE counter (n BIGINT)").await;
        db.run("INSERT INTO counter VALUES (0)").await;
        db.client().await;
    });
    let mut contenders: Vec<_> = (0..PROCESSES).map(|_| Contender::start(role, &db.url(), &log)).collect();
    let (started, mut kills, mut stops) = (Instant::now(), 0, 0);
    let each = std::env::var("FENCELOCK_INCREMENTS").ok().and_then(|n| n.parse::<usize>().ok());
    let wanted = if role == "none" { 100 } else { each.map_or(INCREMENTS, |each| each * PROCESSES) };
    let counted = || usize::try_from(runtime.block_on(db.number("SELECT n FROM counter"))).unwrap();
    // What was acknowledged is asked first, so that more may have been counted and never less.
    while {
        let all = count(&log, "+");
        all < wanted || !until(all, counted(), count(&log, "s"))
    } {
        let limit = if each.is_some() { LIMIT * 5 } else { LIMIT };
        assert!(started.elapsed() < limit, "{} of {wanted} in {limit:?}", count(&log, "+"));
        std::thread::sleep(ms(60));
        let victim = fastrand::usize(..PROCESSES);
        match fastrand::u8(..8) {
            0 => {
                contenders[victim] = Contender::start(role, &db.url(), &log);
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
    let acknowledged = count(&log, "+");
    let counted = counted();
    let stale = count(&log, "s");
    println!(
        "{role}: {acknowledged} acknowledged, {counted} counted, {stale} stale refused, {kills} killed, {stops} stopped, {:?}",
        started.elapsed()
    );
    Outcome { counted, acknowledged, stale, kills, stops }
}

fn gate<D: Db>() -> Result<(), Failed> {
    let outcome = run::<D>("gate", |_, _, stale| stale > 0);
    assert!(outcome.stale > 0 && outcome.stops > 0, "a stale write was really attempted");
    assert!(outcome.counted >= outcome.acknowledged, "no acknowledged update is lost");
    assert!(outcome.counted <= outcome.acknowledged + outcome.kills + PROCESSES, "and none was made twice");
    Ok(())
}

/// The negative control: what the test looks for does happen where there is no gate.
fn without_the_gate_updates_are_lost<D: Db>() -> Result<(), Failed> {
    let outcome = run::<D>("none", |acknowledged, counted, _| counted + 4 * PROCESSES < acknowledged);
    assert!(outcome.counted < outcome.acknowledged, "no update was lost: the test shows nothing");
    Ok(())
}

fn transaction<D: Db>() -> Result<(), Failed> {
    let outcome = run::<D>("transaction", |_, _, _| true);
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
