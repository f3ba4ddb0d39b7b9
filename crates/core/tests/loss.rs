//! A holder is told of its loss before the server could grant to another.

mod common;

use common::{World, ms, real};
use fencelock_core::memory::{Delivery, Operation};
use fencelock_core::{Ended, ErrorKind, LockName, LossReason};
use std::time::{Duration, Instant};

#[tokio::test(start_paused = true)]
async fn down_means_lost_at_the_deadline() {
    let w = World::new();
    let guard = w.client("a").named("x").ttl(ms(900)).acquire().await.unwrap();
    w.server.set_down(true);
    let start = tokio::time::Instant::now();
    assert_eq!(guard.lost().await, LossReason::Expired);
    assert!(!guard.is_held());
    let told = start.elapsed();
    assert!(told <= ms(890 + 5) && told >= ms(880), "{told:?}: 900 ms less 1 % less 1 ms");
}

#[tokio::test(start_paused = true)]
async fn a_hung_renewal_does_not_outlive_the_deadline() {
    let w = World::new();
    let guard = w.client("a").named("x").ttl(ms(900)).acquire().await.unwrap();
    tokio::time::sleep(ms(2_000)).await;
    assert!(guard.is_held(), "renewed so far");
    w.server.set_hung(true);
    let left = guard.remaining();
    let start = tokio::time::Instant::now();
    assert_eq!(guard.lost().await, LossReason::Expired);
    assert!(start.elapsed() <= left + ms(5));
    let e = guard.release().await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Lost, "{e}");
}

#[tokio::test(start_paused = true)]
async fn one_lost_renewal_is_jeopardy_and_no_loss() {
    let w = World::new();
    let guard = w.client("a").named("x").ttl(ms(900)).acquire().await.unwrap();
    w.server.inject(Operation::Renew, Delivery::Lost);
    tokio::time::sleep(ms(300 + 190)).await;
    assert!(guard.is_held() && guard.in_jeopardy());
    tokio::time::sleep(ms(600)).await;
    assert!(guard.is_held() && !guard.in_jeopardy(), "the second renewal was acknowledged");
    tokio::time::sleep(ms(10_000)).await;
    assert!(guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn stolen_is_told_at_the_next_renewal_and_stays_the_thiefs() {
    let w = World::new();
    let (a, b) = (w.client("a"), w.client("b"));
    let guard = a.named("x").ttl(ms(900)).acquire().await.unwrap();
    let token = w.server.steal(&LockName::new("x").unwrap(), ms(60_000)).unwrap();
    assert!(token > guard.token());
    let stolen = tokio::time::Instant::now();
    assert_eq!(guard.lost().await, LossReason::Revoked);
    assert!(stolen.elapsed() <= ms(300 + 5), "{:?}: a third of the ttl", stolen.elapsed());
    assert_eq!(guard.monitor().ended().await, Ended::Lost(LossReason::Revoked));
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(b.try_acquire("x").await.unwrap().is_none());
    assert_eq!(&*b.inspect("x").await.unwrap().unwrap().holder, "thief");
}

#[tokio::test(start_paused = true)]
async fn releasing_a_stolen_lock_is_lost_and_frees_nothing() {
    let w = World::new();
    let guard = w.client("a").acquire("x").await.unwrap();
    w.server.steal(&LockName::new("x").unwrap(), ms(60_000)).unwrap();
    let monitor = guard.monitor();
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(monitor.lost().await, LossReason::Revoked);
    assert!(w.client("b").try_acquire("x").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_suspend_is_noticed_by_the_first_question_and_by_the_ticker() {
    let w = World::new();
    let client = w.client("a");
    let guard = client.named("x").ttl(ms(20_000)).acquire().await.unwrap();
    w.clock.suspend(ms(20_000));
    assert!(!guard.is_held(), "the first question after waking");
    let second = client.named("y").ttl(ms(20_000)).acquire().await.unwrap();
    let monitor = second.monitor();
    let told = tokio::spawn(async move { (monitor.lost().await, tokio::time::Instant::now()) });
    tokio::task::yield_now().await;
    w.clock.suspend(ms(20_000));
    let woke = tokio::time::Instant::now();
    let (reason, when) = told.await.unwrap();
    assert_eq!(reason, LossReason::Expired);
    assert!(when - woke <= ms(255), "{:?}", when - woke);
}

#[tokio::test(start_paused = true)]
async fn max_hold_ends_a_hung_job() {
    let w = World::new();
    let (a, b) = (w.client("a"), w.client("b"));
    let guard = a.named("x").ttl(ms(900)).max_hold(ms(5_000)).acquire().await.unwrap();
    let start = tokio::time::Instant::now();
    assert_eq!(guard.lost().await, LossReason::MaxHold);
    assert!(start.elapsed() >= ms(5_000) && start.elapsed() <= ms(5_005));
    let next = b.named("x").wait_at_most(ms(1_000)).acquire().await.unwrap();
    assert!(next.token() > guard.token(), "renewal has stopped, so the lease ran out");
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test(start_paused = true)]
async fn a_lock_delay_counts_after_failure_only() {
    let w = World::new();
    let (a, b) = (w.client("a"), w.client("b"));
    let guard = a.named("x").ttl(ms(900)).lock_delay(ms(3_000)).auto_renew(false).acquire().await.unwrap();
    let start = tokio::time::Instant::now();
    guard.lost().await;
    assert!(start.elapsed() < ms(900));
    let next = b.acquire("x").await.unwrap();
    assert!(start.elapsed() >= ms(3_900), "{:?}", start.elapsed());
    next.release().await.unwrap();
    let guard = a.named("x").ttl(ms(900)).lock_delay(ms(3_000)).acquire().await.unwrap();
    guard.release().await.unwrap();
    assert!(b.try_acquire("x").await.unwrap().is_some(), "freed by release, at once");
}

#[tokio::test(start_paused = true)]
async fn a_fixed_lease_ends_unless_extended() {
    let w = World::new();
    let guard = w.client("a").named("x").ttl(ms(1_000)).auto_renew(false).acquire().await.unwrap();
    tokio::time::sleep(ms(800)).await;
    guard.extend(ms(5_000)).await.unwrap();
    tokio::time::sleep(ms(4_800)).await;
    assert!(guard.is_held());
    guard.extend(ms(100)).await.unwrap();
    assert!(guard.remaining() > ms(100), "an extension takes nothing away");
    assert_eq!(guard.lost().await, LossReason::Expired);
    assert_eq!(guard.extend(ms(5_000)).await.unwrap_err().kind(), ErrorKind::Lost);
    let renewing = w.client("a").acquire("y").await.unwrap();
    assert_eq!(renewing.extend(ms(5_000)).await.unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(renewing.extend(ms(1)).await.unwrap_err().kind(), ErrorKind::InvalidConfig);
}

#[tokio::test(start_paused = true)]
async fn what_arrives_late_or_twice_shortens_nothing() {
    let w = World::new();
    let (a, b) = (w.client("a"), w.client("b"));
    let fixed = |name: &str| a.named(name).ttl(ms(1_000)).auto_renew(false).acquire();
    w.server.inject(Operation::Acquire, Delivery::Twice(ms(500)));
    let twice = fixed("twice").await.unwrap();
    twice.extend(ms(60_000)).await.unwrap();
    let late = fixed("late").await.unwrap();
    w.server.inject(Operation::Renew, Delivery::Late(ms(500)));
    assert!(tokio::time::timeout(ms(1), late.extend(ms(1_000))).await.is_err());
    late.extend(ms(60_000)).await.unwrap();
    tokio::time::sleep(ms(10_000)).await;
    assert!(twice.is_held() && late.is_held());
    assert!(b.try_acquire("twice").await.unwrap().is_none());
    assert!(b.try_acquire("late").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_suspend_shorter_than_the_deadline_is_made_up_for() {
    let w = World::new();
    let guard = w.client("a").named("x").ttl(ms(30_000)).acquire().await.unwrap();
    tokio::time::sleep(ms(11_000)).await;
    w.clock.suspend(ms(20_000));
    tokio::time::sleep(ms(500)).await;
    assert!(guard.remaining() > ms(25_000), "renewed as soon as it woke: {:?}", guard.remaining());
    tokio::time::sleep(ms(60_000)).await;
    assert!(guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn the_longest_hold_counts_while_suspended_too() {
    let w = World::new();
    let guard = w.client("a").named("x").ttl(ms(30_000)).max_hold(ms(5_000)).acquire().await.unwrap();
    w.clock.suspend(ms(10_000));
    assert!(!guard.is_held());
    assert_eq!(guard.while_held(async {}).await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(guard.lost().await, LossReason::MaxHold);
}

#[tokio::test(start_paused = true)]
async fn work_is_cut_when_the_lock_is_lost() {
    let w = World::new();
    let guard = w.client("a").named("x").ttl(ms(900)).acquire().await.unwrap();
    assert_eq!(guard.while_held(async { 7 }).await.unwrap(), 7);
    w.server.set_down(true);
    let mut rounds = 0;
    let work = async {
        loop {
            tokio::time::sleep(ms(100)).await;
            rounds += 1;
        }
    };
    let e = guard.while_held::<std::pin::Pin<Box<dyn Future<Output = ()> + Send>>>(Box::pin(work)).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Lost);
    assert!(rounds <= 8, "{rounds}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_the_real_clock_nobody_believes_after_the_server_has_granted_again() {
    for fault in ["down", "hung", "stolen"] {
        let (server, client) = real();
        let guard = client().named("x").ttl(ms(300)).acquire().await.unwrap();
        let monitor = guard.monitor();
        match fault {
            "down" => server.set_down(true),
            "hung" => server.set_hung(true),
            _ => {}
        }
        let start = Instant::now();
        let watcher = std::thread::spawn(move || {
            let mut last = Instant::now();
            while start.elapsed() < Duration::from_millis(900) {
                let asked = Instant::now();
                if monitor.is_held() {
                    last = asked;
                }
                std::thread::yield_now();
            }
            last
        });
        tokio::time::sleep(ms(20)).await;
        let expiry = if fault == "stolen" {
            // The thief has it at once; nothing that was sent later is acknowledged to the holder.
            server.steal(&LockName::new("x").unwrap(), ms(60_000)).unwrap();
            Instant::now() + ms(300)
        } else {
            start + ms(300)
        };
        let last = watcher.join().unwrap();
        assert!(last < expiry, "{fault}: believed {:?} after", last - expiry);
        server.set_down(false);
        server.set_hung(false);
        drop(guard);
    }
}
