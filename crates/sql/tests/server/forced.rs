//! Forced releases, and the lock delay that they keep.

use super::*;
use fencelock_core::{Admin as _, LossReason};
use fencelock_sql::AcquireIn;

/// When to try again, of a lock that nobody holds and that is closed.
async fn closed_for(engine: &SqlLock, name: &str) -> Duration {
    match engine.try_acquire(&claim(name, ms(1_000))).await.unwrap() {
        Attempt::Contended { retry_after: Some(left), holder: None, .. } => left,
        other => panic!("not closed: {other:?}"),
    }
}

pub(crate) async fn a_forced_release_keeps_the_lock_delay<D: Db>()
where
    SqlLock: AcquireIn<D::Sqlx>,
{
    let db = D::start();
    let (one, other, engine) = (db.client().await, db.client().await, db.engine().await);
    let guard = one.named("a").ttl(ms(8_000)).lock_delay(ms(4_000)).acquire().await.unwrap();
    let waiting = other.clone();
    let waiting = tokio::spawn(async move { waiting.named("a").wait_at_most(ms(30_000)).acquire().await.unwrap() });
    tokio::time::sleep(ms(300)).await;
    let forced = Instant::now();
    assert!(other.force_release("a").await.unwrap());
    assert!(forced.elapsed() < ms(3_900), "it does not wait itself: {:?}", forced.elapsed());
    assert!(!other.force_release("a").await.unwrap(), "nobody holds it");
    assert!(other.inspect("a").await.unwrap().is_none() && other.list("").await.unwrap().is_empty());
    let left = closed_for(&engine, "a").await;
    assert!(left <= ms(4_000), "{left:?}");
    let mut transaction = db.pool().await.begin().await.unwrap();
    assert!(engine.acquire_in(&mut transaction, "a").await.unwrap().is_none());
    transaction.rollback().await.unwrap();
    assert_eq!(guard.lost().await, LossReason::Revoked);
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost, "which opens nothing");
    let next = waiting.await.unwrap();
    println!("closed for 4 s: granted after {:?}", forced.elapsed());
    assert!(forced.elapsed() >= ms(3_990), "{:?}", forced.elapsed());
    assert!(forced.elapsed() < ms(4_000) + SLACK, "{:?}", forced.elapsed());
    next.release().await.unwrap();
}

/// Whoever forces and whoever held may be gone; the id that was ended stays so.
pub(crate) async fn what_a_forced_release_leaves<D: Db>() {
    let db = D::start();
    let engine = db.engine().await;
    // Less is left than the delay.
    let terms = |name: &str| Terms::new(LockName::new(name).unwrap(), ms(3_000)).with_holder("tester");
    let short = terms("short").with_lock_delay(ms(60_000)).mint().unwrap();
    let grant = granted(&engine, &short).await;
    db.run("UPDATE fencelock_locks SET expires_at = expires_at - 60000000 WHERE holder = 'tester'").await;
    assert!(engine.force_release(short.name()).await.unwrap());
    assert!(closed_for(&engine, "short").await <= ms(3_000));
    dead(&engine, &short).await;
    tokio::time::sleep(ms(3_050)).await;
    dead(&engine, &short).await;
    let next = granted(&engine, &claim("short", ms(60_000))).await;
    assert!(next.token > grant.token);
    assert_eq!(grant.lease.release().await.unwrap_err().kind(), ErrorKind::Lost);
    next.lease.release().await.unwrap();
    // One that a transaction or a plain hold had since asks for no delay.
    granted(&engine, &claim("short", ms(60_000))).await;
    assert!(engine.force_release(short.name()).await.unwrap());
    granted(&engine, &claim("short", ms(1_000))).await;
    // An abandon of the ended claim opens nothing.
    let mine = terms("b").with_lock_delay(ms(60_000)).mint().unwrap();
    granted(&engine, &mine).await;
    assert!(engine.force_release(mine.name()).await.unwrap());
    engine.abandon(&mine).await.unwrap();
    assert!(closed_for(&engine, "b").await > ms(50_000));
}
