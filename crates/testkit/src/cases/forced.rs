//! What an operator does to a lock whose holder is at work.

use crate::failure::{Expect, Outcome, ensure};
use crate::fenced_file::FencedFile;
use crate::stage::{SLACK, Stage, within};
use fencelock_core::{Admission, Capability, ErrorKind, LossReason};
use std::time::{Duration, Instant};

pub(crate) async fn a_forced_release_stops_a_working_holder(stage: Stage) -> Outcome {
    let name = stage.name("lock");
    let (worker, next) = (stage.client().await?, stage.client().await?);
    let dir = tempfile::tempdir()?;
    let file = FencedFile::at(dir.path().join("value"));
    let guard = worker.acquire(&name).await?;
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
    let seized = Instant::now();
    stage.seize(&name).await?;
    let reason = within("the holder is told", stage.ttl() + SLACK, monitor.lost()).await?;
    ensure!(reason == LossReason::Revoked, "the lock was taken away, and the holder was told {reason:?}");
    let renewal = stage.ttl() / 3;
    if stage.promises(Capability::PushLoss, "the holder is told at once", "it is told with the next renewal") {
        ensure!(seized.elapsed() < renewal + SLACK / 2, "told at once, and after {:?}", seized.elapsed());
    }
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
    new.release().await.expect_that("releasing after a forced release")
}
