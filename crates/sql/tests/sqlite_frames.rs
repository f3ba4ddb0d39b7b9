//! Rows whose expiry is on another clock: a reboot, or a container.
#![cfg(feature = "sqlite")]
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, reason = "tests")]

mod sqlite;

use fencelock_core::{DistributedLock, Lease, LossReason};
use sqlite::*;
use std::time::Instant;

/// As if the row had been written before a reboot, an hour into that boot.
const REBOOT: &str = "UPDATE fencelock_locks SET boot_id = 'another boot', expires_at = 3600000000";

#[tokio::test]
async fn a_foreign_hold_is_waited_out_by_programs_that_live_shortly() {
    let file = File::new();
    let before = granted(&*file.engine().await, &claim("a", ms(600))).await;
    file.run(REBOOT).await;
    let started = Instant::now();
    let mut grant = None;
    for _ in 0..1_000 {
        // Each is a program of its own, that only tries once.
        let engine = file.engine().await;
        match engine.try_acquire(&claim("a", ms(600))).await.unwrap() {
            fencelock_core::Attempt::Granted(granted) => {
                grant = Some(granted);
                break;
            }
            _ => tokio::time::sleep(ms(20)).await,
        }
    }
    let (waited, grant) = (started.elapsed(), grant.unwrap());
    assert!(waited >= ms(600) && waited < ms(10_000), "{waited:?}");
    assert!(grant.token > before.token);
}

#[tokio::test]
async fn only_the_first_look_starts_the_clock() {
    let file = File::new();
    let _before = granted(&*file.engine().await, &claim("a", ms(6000))).await;
    file.run(REBOOT).await;
    let engine = file.engine().await;
    assert!(contended(&engine, &claim("a", ms(6000))).await.unwrap() > ms(6000));
    // Of 6,060 ms, which is the ttl and 1 %.
    tokio::time::sleep(ms(400)).await;
    let left = contended(&*file.engine().await, &claim("a", ms(6000))).await.unwrap();
    assert!(left <= ms(5900), "{left:?}");
}

#[tokio::test]
async fn a_holder_that_lives_in_the_other_frame_pushes_it_back() {
    let file = File::new();
    let engine = file.engine().await;
    let mine = claim("a", ms(2500));
    let grant = granted(&engine, &mine).await;
    // To the holder's renewals, our frame is the foreign one, until it writes its own back.
    for _ in 0..5 {
        file.run("UPDATE fencelock_locks SET boot_id = 'observer', expires_at = 1").await;
        tokio::time::sleep(ms(600)).await;
        let other = claim("a", ms(2500));
        contended(&engine, &other).await;
        assert!(granted(&engine, &mine).await.token == grant.token, "its renewal is not refused");
    }
    tokio::time::sleep(ms(2600)).await;
    let next = granted(&engine, &claim("a", ms(2500))).await;
    assert!(next.token > grant.token, "once it stops renewing it runs out");
}

#[tokio::test]
async fn renewal_goes_on_across_a_restamp_and_ends_with_a_thief() {
    let file = File::new();
    let client = file.client().await;
    let guard = client.named("a").ttl(ms(4000)).acquire().await.unwrap();
    file.run("UPDATE fencelock_locks SET boot_id = 'observer', expires_at = 9223372036854775807").await;
    until("the renewal wrote the holder's frame back", async || {
        let frame = sqlx::query_scalar("SELECT boot_id FROM fencelock_locks");
        let frame: String = frame.fetch_one(&mut file.raw().await).await.unwrap();
        frame != "observer"
    })
    .await;
    renewed([&guard]).await;
    file.run("UPDATE fencelock_locks SET boot_id = 'observer', claim_id = x'00', token = token + 1").await;
    assert_eq!(tokio::time::timeout(ms(20_000), guard.lost()).await.unwrap(), LossReason::Revoked);
}

#[tokio::test]
async fn a_freed_row_is_free_after_a_reboot_at_once() {
    let file = File::new();
    let before = granted(&*file.engine().await, &claim("a", ms(60_000))).await;
    let token = before.token;
    before.lease.release().await.unwrap();
    file.run("UPDATE fencelock_locks SET boot_id = 'another boot'").await;
    assert!(granted(&*file.engine().await, &claim("a", ms(1000))).await.token > token);
}

#[tokio::test]
async fn inspect_names_a_foreign_holder_without_its_time() {
    let file = File::new();
    let engine = file.engine().await;
    let mine = claim("a", ms(60_000));
    let _grant: Box<dyn Lease> = granted(&engine, &mine).await.lease;
    file.run(REBOOT).await;
    let info = engine.inspect(mine.name()).await.unwrap().unwrap();
    assert_eq!((&*info.holder, info.remaining), ("tester", None));
    assert_eq!(engine.admin().unwrap().list("").await.unwrap().len(), 1);
    assert!(engine.admin().unwrap().force_release(mine.name()).await.unwrap());
    assert!(engine.inspect(mine.name()).await.unwrap().is_none());
}
