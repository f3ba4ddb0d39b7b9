//! What travels in one statement, at a server.

#[path = "../together/mod.rs"]
mod together;

use super::*;
use fencelock_lab::{Mood, Proxy};
use fencelock_sql::AcquireIn;
use std::collections::BTreeSet;
use tokio::task::JoinSet;

pub(crate) async fn each_is_answered_as_by_itself<D: Db>() {
    let db = D::start();
    together::each_is_answered_as_by_itself(db.engine().await, db.engine().await).await;
}

pub(crate) async fn of_two_for_one_name_one_is_granted<D: Db>() {
    let db = D::start();
    together::of_two_for_one_name_one_is_granted(db.engine().await).await;
}

pub(crate) async fn each_release_is_answered_as_by_itself<D: Db>() {
    let db = D::start();
    together::each_release_is_answered_as_by_itself(db.engine().await, db.engine().await).await;
}

/// Each name's try, all in the same moment; which were granted.
async fn all_at_once(client: &LockClient, names: impl IntoIterator<Item = String>) -> Vec<Result<Option<LockGuard>>> {
    let mut tries = JoinSet::new();
    for name in names {
        let client = client.clone();
        tries.spawn(async move { client.named(&name).ttl(ms(60_000)).try_acquire().await });
    }
    tries.join_all().await
}

/// As `count` tells how many statements there were, for which `watch` is run first.
pub(crate) async fn sixty_four_take_few_statements<D: Db>(watch: &[&str], count: &str) {
    let db = D::start();
    let client = db.client().await;
    for part in watch {
        db.run(part).await;
    }
    for times in ["new", "known"] {
        let before = db.number(count).await;
        let guards = all_at_once(&client, (0..64).map(|n| n.to_string())).await;
        let guards: Vec<_> = guards.into_iter().map(|guard| guard.unwrap().unwrap()).collect();
        let taken = db.number(count).await;
        let mut releases = JoinSet::new();
        guards.into_iter().for_each(|guard| drop(releases.spawn(guard.release())));
        assert!(releases.join_all().await.into_iter().all(|released| released.is_ok()));
        let freed = db.number(count).await;
        println!("64 {times} locks: taken in {} statements, freed in {}", taken - before, freed - taken);
        // On a loaded machine some come a little later than the others.
        assert!((taken - before) <= 24 && (freed - taken) <= 24, "{times}: {before}, {taken}, {freed}");
    }
}

/// A row that another transaction has to itself, asked for before all others or among them.
pub(crate) async fn a_locked_row_holds_up_no_other<D: Db>(lock_row: &str)
where
    SqlLock: AcquireIn<D::Sqlx>,
{
    let db = D::start();
    let (client, pool) = (db.client().await, db.pool().await);
    let names = || (0..40).map(|n| format!("row {n:02}"));
    for guard in all_at_once(&client, names()).await {
        guard.unwrap().unwrap().release().await.unwrap();
    }
    for locked in ["row 00", "row 20"] {
        let mut transaction = pool.begin().await.unwrap();
        D::run_in(&mut transaction, &lock_row.replace("{name}", locked)).await;
        let mut tries = JoinSet::new();
        for name in names() {
            let client = client.clone();
            tries.spawn(async move {
                let guard = client.named(&name).ttl(ms(60_000)).try_acquire().await.unwrap();
                (name, guard)
            });
            if locked == "row 00" {
                // It is under way by itself.
                tokio::task::yield_now().await;
            }
        }
        let mut order = Vec::new();
        while let Some(tried) = tries.join_next().await {
            let (name, guard) = tried.unwrap();
            assert_eq!(guard.is_none(), name == locked, "{name}");
            order.push(name.clone());
            if let Some(guard) = guard {
                guard.release().await.unwrap();
            }
        }
        let place = order.iter().position(|name| name == locked).unwrap();
        println!("{locked} was the {place}th to be answered");
        assert!(place >= 30, "the others did not wait for {locked}: {order:?}");
        transaction.rollback().await.unwrap();
    }
}

/// The answers of many are lost at once: what they took is undone, and the same names are free for all.
pub(crate) async fn what_is_cut_off_is_undone<D: Db>() {
    let db = D::start();
    let proxy = Proxy::before(db.address()).unwrap();
    let client = LockClient::new(db.through(&proxy).await).unwrap();
    let direct = db.client().await;
    let mut most = 0;
    for round in 0..20 {
        let mut tasks = JoinSet::new();
        for n in 0..40 {
            let lock = client.named(&format!("cut {n}")).ttl(ms(60_000));
            tasks.spawn(async move {
                loop {
                    match lock.try_acquire().await {
                        Ok(guard) => guard.unwrap().release().await?,
                        Err(e) => return Err::<(), _>(e),
                    }
                }
            });
        }
        // In the middle of whatever is under way.
        tokio::time::sleep(ms(60 + round * 7)).await;
        proxy.set(Mood::DropReplies);
        for ended in tasks.join_all().await {
            assert_eq!(ended.unwrap_err().kind(), ErrorKind::Unavailable);
        }
        let held = direct.list("").await.unwrap().len();
        println!("{held} of 40 were taken without an answer");
        most = most.max(held);
        proxy.set(Mood::Honest);
        proxy.cut();
        until("undone", async || direct.list("").await.unwrap().is_empty()).await;
        until("done", async || client.pending() == 0).await;
        if held > 1 {
            break;
        }
    }
    assert!(most > 1, "no statement for many was under way");
    for guard in all_at_once(&direct, (0..40).map(|n| format!("cut {n}"))).await {
        guard.unwrap().unwrap().release().await.unwrap();
    }
}

/// Many who find no server have asked for nothing, so that there is nothing to undo, and nobody waits for that.
pub(crate) async fn what_never_left_is_not_undone<D: Db>() {
    let mut db = D::start();
    let engine = db.engine().await;
    let client = LockClient::new(Arc::<SqlLock>::clone(&engine)).unwrap();
    let claims: Vec<_> = (0..40).map(|n| claim(&format!("gone {n}"), ms(60_000))).collect();
    granted(&engine, &claim("known", ms(60_000))).await.lease.release().await.unwrap();
    db.kill();
    // What served its connections may outlive the server for a moment.
    until("no server is there", async || {
        let tries = all_at_once(&client, (0..8).map(|n| format!("first {n}"))).await;
        tries.iter().all(Result::is_err)
    })
    .await;
    let mut tries = JoinSet::new();
    for claim in &claims {
        let (engine, claim) = (Arc::clone(&engine), claim.clone());
        tries.spawn(async move { engine.try_acquire(&claim).await.unwrap_err().kind() });
    }
    assert!(tries.join_all().await.into_iter().all(|kind| kind == ErrorKind::Unavailable));
    let sent = claims.iter().filter(|claim| claim.was_sent() || claim.is_unanswered()).count();
    assert_eq!(sent, 0, "of 40 that no server was there for");
    for claim in &claims {
        engine.abandon(claim).await.unwrap();
    }
}

/// A release among many whose row another transaction has to itself keeps no other waiting.
pub(crate) async fn a_locked_row_holds_up_no_other_release<D: Db>(lock_row: &str, settings: &str) {
    let db = D::start();
    let pool = db.pool().await;
    let engine = D::connect(&format!("{}{settings}", db.url())).await.unwrap();
    let mut grants = Vec::new();
    for n in 0..40 {
        grants.push((n, granted(&engine, &claim(&format!("row {n:02}"), ms(60_000))).await));
    }
    let mut transaction = pool.begin().await.unwrap();
    D::run_in(&mut transaction, &lock_row.replace("{name}", "row 20")).await;
    let mut releases = JoinSet::new();
    for (n, grant) in grants {
        releases.spawn(async move { (n, grant.lease.release().await) });
    }
    for (n, released) in releases.join_all().await {
        match released {
            Ok(()) => assert_ne!(n, 20, "another has that row"),
            Err(e) => assert!(n == 20 && e.kind() == ErrorKind::Unavailable, "{n}: {e}"),
        }
    }
    transaction.rollback().await.unwrap();
}
