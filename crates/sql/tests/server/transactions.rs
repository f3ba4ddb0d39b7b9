//! Locks inside the caller's own transaction.

use super::*;
use fencelock_sql::AcquireIn;

pub(crate) async fn it_commits_with_the_data<D: Db>()
where
    SqlLock: AcquireIn<D::Sqlx>,
{
    let db = D::start();
    let (engine, pool) = (db.engine().await, db.pool().await);
    db.run("CREATE TABLE paid (id INT PRIMARY KEY, token BIGINT)").await;
    let mut transaction = pool.begin().await.unwrap();
    let first = engine.acquire_in(&mut transaction, "orders/1").await.unwrap().unwrap();
    D::run_in(&mut transaction, &format!("INSERT INTO paid VALUES (1, {})", first.token())).await;
    transaction.commit().await.unwrap();
    assert_eq!(db.number("SELECT token FROM paid").await, first.token().as_i64());

    let mut transaction = pool.begin().await.unwrap();
    let second = engine.acquire_in(&mut transaction, "orders/1").await.unwrap().unwrap();
    assert!(second.token() > first.token());
    transaction.rollback().await.unwrap();

    let lease = granted(&engine, &claim("orders/1", ms(60_000))).await;
    assert!(lease.token > first.token(), "freed by the commit and by the rollback");
    let mut transaction = pool.begin().await.unwrap();
    assert!(engine.acquire_in(&mut transaction, "orders/1").await.unwrap().is_none(), "somebody has it on a lease");
    transaction.rollback().await.unwrap();
    assert_eq!(engine.inspect(&LockName::new("orders/1").unwrap()).await.unwrap().unwrap().token, lease.token);
    lease.lease.release().await.unwrap();
    let mut transaction = pool.begin().await.unwrap();
    let third = engine.acquire_in(&mut transaction, "orders/1").await.unwrap().unwrap();
    assert!(third.token() > lease.token);
    transaction.commit().await.unwrap();
    let e = engine.acquire_in(&mut pool.begin().await.unwrap(), "").await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidName);
}

pub(crate) async fn leases_beside_an_open_one<D: Db>()
where
    SqlLock: AcquireIn<D::Sqlx>,
{
    let db = D::start();
    let (engine, pool) = (db.engine().await, db.pool().await);
    let client = LockClient::new(Arc::<SqlLock>::clone(&engine)).unwrap();
    let others = [client.named("other/1").ttl(ms(4_000)), client.named("zother/2").ttl(ms(4_500))];
    let others = [others[0].acquire().await.unwrap(), others[1].acquire().await.unwrap()];
    for name in ["known", "new"] {
        if name == "known" {
            client.acquire(name).await.unwrap().release().await.unwrap();
        }
        let mut transaction = pool.begin().await.unwrap();
        let hold = engine.acquire_in(&mut transaction, name).await.unwrap().unwrap();
        let started = Instant::now();
        let e = client.named(name).wait_at_most(ms(2_500)).acquire().await.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Timeout, "{name}: {e}");
        assert!(started.elapsed() >= ms(2_450) && started.elapsed() < ms(2_500) + SLACK);
        assert!(client.try_acquire(name).await.unwrap().is_none());
        // Other names are as free as ever, new ones too, and those that are held are renewed.
        renewed(&others).await;
        client.acquire(&format!("{name}/beside")).await.unwrap().release().await.unwrap();
        let waiting = client.clone();
        let waiting = tokio::spawn(async move { waiting.named(name).wait_at_most(ms(30_000)).acquire().await });
        tokio::time::sleep(ms(300)).await;
        assert!(!waiting.is_finished());
        let committed = Instant::now();
        transaction.commit().await.unwrap();
        let guard = waiting.await.unwrap().unwrap();
        println!("{name}: {:?} from commit to the lease", committed.elapsed());
        assert!(guard.token() > hold.token());
        guard.release().await.unwrap();
    }
    until("nothing pending", async || client.pending() == 0).await;
}

/// What the second reads is what the first wrote, since it waited for the first to commit.
pub(crate) async fn no_update_is_lost<D: Db>()
where
    SqlLock: AcquireIn<D::Sqlx>,
{
    let db = D::start();
    db.run("CREATE TABLE counter (n BIGINT)").await;
    db.run("INSERT INTO counter VALUES (0)").await;
    let (engine, pool) = (db.engine().await, db.pool().await);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let (engine, pool) = (Arc::clone(&engine), pool.clone());
        tasks.spawn(async move {
            for _ in 0..25 {
                let mut transaction = pool.begin().await.unwrap();
                let _hold = engine.acquire_in(&mut transaction, "counter").await.unwrap().unwrap();
                let read = D::number_in(&mut transaction, "SELECT n FROM counter").await;
                tokio::task::yield_now().await;
                D::run_in(&mut transaction, &format!("UPDATE counter SET n = {}", read + 1)).await;
                transaction.commit().await.unwrap();
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_eq!(db.number("SELECT n FROM counter").await, 150);
}

/// An open transaction of the caller's own, begun long ago, has nothing to do with our clock.
pub(crate) async fn an_outer_transaction_freezes_no_clock<D: Db>() {
    let db = D::start();
    let (engine, pool) = (db.engine().await, db.pool().await);
    let mut outer = pool.begin().await.unwrap();
    D::number_in(&mut outer, "SELECT count(*) FROM fencelock_locks").await;
    let crashed = granted(&engine, &claim("a", ms(2_500))).await;
    contended(&engine, &claim("a", ms(2_500))).await;
    tokio::time::sleep(ms(2_600)).await;
    let next = granted(&engine, &claim("a", ms(2_500))).await;
    assert!(next.token > crashed.token);
    outer.rollback().await.unwrap();
}

/// The documented two lines for a table of one's own: enter before the first read, and carry the token at each write.
pub(crate) async fn two_lines_guard_a_table_of_ones_own<D: Db>() {
    let db = D::start();
    db.run("CREATE TABLE r (id INT PRIMARY KEY, fence BIGINT NOT NULL, n BIGINT NOT NULL)").await;
    db.run("INSERT INTO r VALUES (1, 0, 0)").await;
    let fence = "SELECT fence FROM r";
    let enter = |token: i64| format!("UPDATE r SET fence = {token} WHERE id = 1 AND fence <= {token}");
    let write = |token: i64, n: i64| format!("UPDATE r SET n = {n} WHERE id = 1 AND fence = {token}");
    db.run(&enter(7)).await;
    db.run(&write(7, 1)).await;
    // The next holder enters between the first one's read and its write, which is then refused.
    db.run(&enter(8)).await;
    db.run(&write(7, 99)).await;
    assert_eq!(db.number("SELECT n FROM r").await, 1, "the stale write took no effect");
    db.run(&write(8, 2)).await;
    db.run(&enter(7)).await;
    assert_eq!((db.number(fence).await, db.number("SELECT n FROM r").await), (8, 2), "nor does who is stale enter");
}
