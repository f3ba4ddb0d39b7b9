//! What an operator does to a lock whose holder is at work.

use crate::failure::{Expect, Outcome, ensure};
use crate::fenced_file::FencedFile;
use crate::stage::{SLACK, Stage, is_free, is_taken, take, within};
use fencelock_core::{Admission, Capability, ErrorKind, FencingToken, LockGuard, LossReason};
use std::time::{Duration, Instant};

/// What a loaded machine may add until somebody is told: far under the renewal interval of these holds, so that
/// what was told with the second renewal, and not with the first, is late.
const PROMPT: Duration = Duration::from_secs(1);
/// The ttl of a hold that is renewed: a third of it is well over [`PROMPT`].
const LONG: Duration = Duration::from_millis(4_500);
/// How often a forced release meets a lock that changes hands.
const HANDOVERS: u32 = 25;

pub(crate) async fn a_forced_release_stops_a_working_holder(stage: Stage) -> Outcome {
    let name = stage.name("lock");
    let (worker, next) = (stage.client().await?, stage.client().await?);
    let dir = tempfile::tempdir()?;
    let file = FencedFile::at(dir.path().join("value"));
    let push = stage.promises(Capability::PushLoss, "the holder is told at once", "it is told with the next renewal");
    // In a session the service sets the time.
    let ttl = if stage.is_session() { stage.ttl() } else { LONG };
    let asked = Instant::now();
    let guard = worker.named(&name).ttl(ttl).acquire().await?;
    let full = guard.remaining();
    let pass = file.enter(guard.token())?.admitted()?;
    let monitor = guard.monitor();
    let work = tokio::spawn(async move {
        let mut written = 0_u32;
        loop {
            if pass.write(&written.to_string())?.is_stale() {
                return Ok::<_, std::io::Error>(written);
            }
            written += 1;
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    tokio::time::sleep(Duration::from_millis(30)).await;
    let mut told = seized(&stage, &guard, (asked, full), ttl, push).await?;
    let kind = guard.release().await.err().map(|e| e.kind());
    ensure!(kind == Some(ErrorKind::Lost), "releasing what was taken away: {kind:?}");

    // The worker has not stopped: only the gate stops it, when the next holder has entered.
    let new = within("the next holder", stage.ttl() * 2 + SLACK, next.acquire(&name)).await??;
    ensure!(!work.is_finished(), "its writes were refused before the next holder had entered");
    let newer = file.enter(new.token())?.admitted()?;
    let written = within("the late write is refused", SLACK, work).await???;
    ensure!(written > 0, "the holder had not written anything");
    ensure!(file.enter(monitor.token())?.is_stale(), "the old holder could enter again");
    newer.write("new")?.admitted()?;
    let Admission::Admitted(found) = newer.read()? else {
        return Err(crate::Failure::new("the new holder was refused"));
    };
    ensure!(found == "new", "the value is {found:?} after the old holder's writes were refused");
    new.release().await.expect_that("releasing after a forced release")?;

    // A loaded machine may be late now and then, so one of three must be in time.
    for attempt in 2..=3 {
        if told.is_in_time() {
            break;
        }
        let asked = Instant::now();
        let again = worker.named(&stage.name(&format!("lock {attempt}"))).ttl(ttl).acquire().await?;
        let full = again.remaining();
        told = seized(&stage, &again, (asked, full), ttl, push).await?;
    }
    ensure!(
        told.is_in_time(),
        "three holders were told late, the last after {:?} and not {:?}",
        told.after,
        told.limit
    );
    Ok(())
}

/// How long it took until a holder was told, and how long it may.
struct Told {
    after: Duration,
    limit: Duration,
}

impl Told {
    fn is_in_time(&self) -> bool {
        self.after < self.limit
    }
}

async fn seized(
    stage: &Stage,
    guard: &LockGuard,
    (asked, full): (Instant, Duration),
    ttl: Duration,
    push: bool,
) -> Outcome<Told> {
    stage.seize(guard.name().as_str()).await?;
    let limit = match push {
        true if stage.is_session() => PROMPT,
        // Whoever learns it by renewing learns it a third of the ttl after the acquire, never sooner.
        true => (ttl / 3).saturating_sub(asked.elapsed()),
        false => next_renewal(guard, full, ttl).await + PROMPT,
    };
    let seized = Instant::now();
    let reason = within("the holder is told", ttl + SLACK, guard.lost()).await?;
    ensure!(reason == LossReason::Revoked, "the lock was taken away, and the holder was told {reason:?}");
    Ok(Told { after: seized.elapsed(), limit })
}

/// When the next renewal is due: the hold's own deadline says when the last one was sent.
async fn next_renewal(guard: &LockGuard, full: Duration, ttl: Duration) -> Duration {
    // An answer that was on its way has come by now.
    tokio::time::sleep(Duration::from_millis(50)).await;
    (guard.remaining() + ttl / 3).saturating_sub(full)
}

/// An operator has looked, thought and said yes: meanwhile another may hold the lock, and must keep it.
pub(crate) async fn a_forced_release_frees_the_hold_that_was_meant(stage: Stage) -> Outcome {
    let name = stage.name("lock");
    let (a, b, operator) = (stage.client().await?, stage.client().await?, stage.client().await?);
    if stage.engine().await?.admin().is_none() {
        let kind = operator.force_release_if(&name, FencingToken::new(1)).await.err().map(|e| e.kind());
        ensure!(kind == Some(ErrorKind::Unsupported), "there is no Admin, and a forced release is {kind:?}");
        stage.chose("there is no Admin", "a forced release is unsupported");
        return Ok(());
    }
    let free = operator.force_release_if(&name, FencingToken::new(1)).await?;
    ensure!(!free, "nobody holds it, and a hold was ended");
    let first = take(&a, &name).await?;
    let seen = operator.inspect(&name).await?.expect_that("held, and inspect shows nobody")?.token;
    for other in [seen.get() - 1, seen.get() + 1, u64::MAX] {
        let freed = operator.force_release_if(&name, FencingToken::new(other)).await?;
        ensure!(!freed, "the hold has token {seen}, and was ended for token {other}");
    }
    is_taken(&b, &name).await?;
    first.release().await.expect_that("releasing what was meant by no forced release")?;
    let second = take(&b, &name).await?;
    ensure!(!operator.force_release_if(&name, seen).await?, "that hold was over, and its successor's was ended for it");
    ensure!(operator.force_release_if(&name, second.token()).await?, "held under that token, and not freed");
    ensure!(!operator.force_release_if(&name, second.token()).await?, "freed once, and once more");
    let reason = within("the holder is told", stage.ttl() + SLACK, second.lost()).await?;
    // Whom the machine keeps from renewing until the deadline can only be told that it expired.
    let told = matches!(reason, LossReason::Revoked | LossReason::Expired);
    ensure!(told, "the lock was taken away, and the holder was told {reason:?}");
    let mut decided = 0;
    for round in 0..HANDOVERS {
        let old = take(&a, &name).await?;
        let token = old.token();
        let next = tokio::spawn(a.acquire(&name));
        let forced = operator.clone();
        let (to, pause) = (name.clone(), Duration::from_micros(fastrand::u64(..4_000)));
        let forced = tokio::spawn(async move { forced.force_release_if(&to, token).await });
        tokio::time::sleep(pause).await;
        let released = old.release().await;
        let freed = match forced.await? {
            Ok(freed) => Some(freed),
            // Where a majority decides and some are silent, neither of the two that met may know.
            Err(e) if e.kind() == ErrorKind::Unavailable => None,
            Err(e) => return Err(e.into()),
        };
        let released = released.map_err(|e| e.kind());
        decided += u32::from(freed.is_some() && released != Err(ErrorKind::Unavailable));
        match released {
            Ok(()) => ensure!(freed != Some(true), "released by its holder, and freed by force too"),
            Err(ErrorKind::Lost) => {
                ensure!(freed != Some(false), "the hold of token {token} was lost, and not to the operator");
            }
            Err(ErrorKind::Unavailable) => {}
            Err(other) => return Err(crate::Failure::new(format!("releasing came to {other}"))),
        }
        let next = within("the next holder", stage.ttl() * 2 + SLACK, next).await???;
        let kept = next.release().await;
        ensure!(kept.is_ok(), "round {round}: the hold after the one that was meant came to {kept:?}");
    }
    ensure!(decided >= HANDOVERS / 2, "{decided} of {HANDOVERS} forced releases and releases had an answer");
    is_free(&b, &name).await
}
