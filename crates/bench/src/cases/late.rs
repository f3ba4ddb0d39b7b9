//! How late a loss is told: from a hold's deadline until the task that awaits `lost()` runs.
//!
//! The holds are fixed leases, which nothing keeps alive, so that each ends at a deadline known from its first
//! instant. They are taken one after the other, so that they do not end all at one instant. Half of them are awaited.
//! The others are asked instead, just before the deadline and at it, since the first question after a deadline is
//! itself what tells of the loss. The floor is a timer of the runtime for the same instant as each hold that is awaited:
//! on a machine that does other work both are late alike.

use super::bench::Bench;
use crate::contender::client;
use crate::engine::Engine;
use crate::failure::Result;
use crate::measure::stats::median;
use crate::row::Row;
use fencelock::{LockGuard, LossReason, NamedLock};
use fencelock_core::{Clock, Moment};
use std::time::Duration;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

pub(crate) const CASE: &str = "lateness of a loss";
pub(crate) const ASKED: &str = "lateness of a loss, is_held()";

/// Between two holds that are awaited, about.
const APART: Duration = Duration::from_millis(6);
/// So many nanoseconds before the deadline it is asked for the answer that has to be yes.
const BEFORE: u64 = 1_000_000;

pub(super) async fn losses(bench: &mut Bench) {
    if let Err(why) = measure(bench).await {
        bench.not_measured(CASE, "ours", &why);
    }
}

/// The shortest that leaves time to take them all first.
fn ttl(engine: Engine, pairs: u32) -> Duration {
    let least = match engine {
        // Whole seconds, and no less than this.
        Engine::Etcd => Duration::from_secs(2),
        // Short, and long enough for its heartbeats.
        Engine::Zookeeper => Duration::from_secs(1),
        _ => Duration::from_millis(100),
    };
    least.max(APART * pairs + Duration::from_millis(100))
}

async fn measure(bench: &mut Bench) -> Result<()> {
    // Where they need clients of their own, which take their time, 250 would be over before the last is there.
    let pairs = if bench.engine.has_sessions() { 50 } else { bench.plan.either(50, 250) };
    let ttl = ttl(bench.engine, pairs);
    // What one client holds ends together, where its leases are those of its session.
    let of_a_client = if bench.engine.has_sessions() { 5 } else { pairs };
    let (mut clients, mut told, mut asked) = (Vec::new(), JoinSet::new(), JoinSet::new());
    let mut pace = interval(APART);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for at in 0..pairs {
        pace.tick().await;
        if at % of_a_client == 0 {
            clients.push(client(&bench.place, ttl).await?);
        }
        let locks = clients.last().ok_or("no client")?;
        let fixed = |kind| locks.named(&format!("late/{kind}/{at}")).auto_renew(false);
        told.spawn(until_told(fixed("told")));
        asked.spawn(taken(fixed("asked")));
    }
    let asked = asked.join_all().await.into_iter().collect::<Result<Vec<_>>>()?;
    let answers = spawn_blocking(|| ask(asked)).await?;
    // Of two for each. Where several end at one instant, only the first is asked before it; of either kind there must be some.
    let of_kind = |kind: bool| answers.iter().filter(|(is_yes_due, _)| *is_yes_due == kind).count();
    if of_kind(true).min(of_kind(false)) < pairs as usize / 10 {
        return Err("too few were asked in time".into());
    }
    let answers: Vec<_> = answers.into_iter().map(|(_, is_right)| is_right).collect();
    let late = timeout(ttl * 10, told.join_all()).await.map_err(|_| "a loss was never told")?;
    let late = late.into_iter().collect::<Result<Vec<_>>>()?;
    for client in clients {
        client.close().await;
    }
    tell(bench, &late, &answers);
    Ok(())
}

/// A hold and its deadline.
async fn taken(lock: NamedLock) -> Result<(Moment, LockGuard)> {
    let guard = lock.acquire().await?;
    let until = guard.monitor().deadline().ok_or("it was lost before it was had")?;
    Ok((until, guard))
}

/// How many microseconds after its deadline it is told of the loss, and how many a timer was late for the same moment.
async fn until_told(lock: NamedLock) -> Result<(f64, f64)> {
    let (until, guard) = taken(lock).await?;
    let timer = tokio::spawn(async move {
        sleep(until.since(Clock::system().now())).await;
        Clock::system().now()
    });
    let (reason, now) = (guard.lost().await, Clock::system().now());
    if reason != LossReason::Expired || now < until {
        return Err(format!("{reason}, {:?} before the deadline", until.since(now)).into());
    }
    let late = |now: Moment| now.since(until).as_secs_f64() * 1e6;
    Ok((late(now), late(timer.await?)))
}

/// Asks each just before its deadline and at it, and says of each answer whether it was right. On a thread of its own,
/// which sleeps more exactly than the runtime's timers. Says for each whether yes was due, and whether it was right.
fn ask(mut guards: Vec<(Moment, LockGuard)>) -> Vec<(bool, bool)> {
    let clock = Clock::system();
    let sleep_until = |moment: Moment| std::thread::sleep(moment.since(clock.now()));
    guards.sort_by_key(|(until, _)| *until);
    let mut answers = Vec::new();
    for (until, guard) in &guards {
        let before = Moment::from_nanos(until.as_nanos().saturating_sub(BEFORE));
        for moment in [before, *until] {
            sleep_until(moment);
            let (from, is_held, to) = (clock.now(), guard.is_held(), clock.now());
            answers.extend(is_right(from, is_held, to, *until).map(|is_right| (is_held == is_right, is_right)));
        }
    }
    answers
}

/// Whether the answer that was given between two moments was right; none if the deadline lay between them.
fn is_right(from: Moment, is_held: bool, to: Moment, until: Moment) -> Option<bool> {
    match (from >= until, to < until) {
        (true, _) => Some(!is_held),
        (_, true) => Some(is_held),
        _ => None,
    }
}

fn tell(bench: &mut Bench, late: &[(f64, f64)], answers: &[bool]) {
    let (ours, floor): (Vec<_>, Vec<_>) = late.iter().copied().unzip();
    for (who, late) in [("ours", ours), ("floor", floor)] {
        let most = late.iter().copied().fold(0.0, f64::max);
        let row = Row {
            rounds: late.len(),
            p50_us: median(late),
            p99_us: Some(most),
            value: Some(most / 1e3),
            unit: Some("ms after the deadline, at the most".to_owned()),
            ..bench.row(CASE, who)
        };
        (bench.tell)(row);
    }
    let row = Row {
        rounds: answers.len(),
        value: Some(answers.iter().filter(|is_right| !**is_right).count() as f64),
        unit: Some("wrong answers".to_owned()),
        ..bench.row(ASKED, "ours")
    };
    (bench.tell)(row);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_right_or_wrong_or_could_be_either() {
        let at = Moment::from_nanos;
        assert_eq!(is_right(at(8), true, at(9), at(10)), Some(true));
        assert_eq!(is_right(at(8), false, at(9), at(10)), Some(false), "lost too soon");
        assert_eq!(is_right(at(10), true, at(11), at(10)), Some(false), "believed too long");
        assert_eq!(is_right(at(10), false, at(11), at(10)), Some(true));
        assert_eq!(is_right(at(9), true, at(10), at(10)), None);
    }
}
