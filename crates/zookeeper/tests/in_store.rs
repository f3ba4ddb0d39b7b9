//! The hold as a condition of the caller's own `multi`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs, reason = "a test")]

mod common;

use common::{SLACK, client, raw, within};
use fencelock_core::{ErrorKind, Evidence};
use fencelock_lab::{Mood, Proxy, ZooKeeper};
use fencelock_zookeeper::InStore;
use fencelock_zookeeper::zookeeper_client::{Acls, Client, CreateMode};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_goes_through_only_while_the_lock_is_held() {
    let server = ZooKeeper::start().unwrap();
    let proxy = Proxy::before(server.address()).unwrap();
    let raw = raw(&server.address().to_string()).await;
    raw.create("/data", b"", &CreateMode::Persistent.with_acls(Acls::anyone_all())).await.unwrap();
    let cut = client(&format!("zookeeper://127.0.0.1:{}?session=5s", proxy.port())).await;
    let other = client(&format!("zookeeper://{}?session=10s", server.address())).await;

    let old = cut.acquire("a/b").await.unwrap();
    let mut write = old.check_in(&raw).unwrap();
    write.add_set_data("/data", b"held", None).unwrap();
    write.commit().await.unwrap();

    proxy.set(Mood::Hold);
    let new = within("the next holder", SLACK, other.acquire("a/b")).await.unwrap();
    let mut late = old.check_in(&raw).unwrap();
    late.add_set_data("/data", b"late", None).unwrap();
    late.commit().await.unwrap_err();
    assert_eq!(raw.get_data("/data").await.unwrap().0, b"held", "a stale write went through");
    let mut write = new.check_in(&raw).unwrap();
    write.add_set_data("/data", b"next", None).unwrap();
    write.commit().await.unwrap();
    assert_eq!(raw.get_data("/data").await.unwrap().0, b"next");
    assert_eq!(new.evidence().get("czxid").unwrap(), new.token().get().to_string());
    proxy.set(Mood::Honest);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_with_a_chroot_sees_what_is_under_it() {
    let server = ZooKeeper::start().unwrap();
    let client = client(&format!("zookeeper://{}/app/locks?session=4s", server.address())).await;
    let guard = client.acquire("a").await.unwrap();
    let within = Client::connect(&format!("{}/app", server.address())).await.unwrap();
    let mut write = guard.check_in(&within).unwrap();
    write.add_create("/x", b"", &CreateMode::Persistent.with_acls(Acls::anyone_all())).unwrap();
    write.commit().await.unwrap();
    for beside in ["/ap", "/elsewhere"] {
        let beside = Client::connect(&format!("{}{beside}", server.address())).await.unwrap();
        assert_eq!(guard.check_in(&beside).err().unwrap().kind(), ErrorKind::InvalidConfig);
    }
    assert_eq!(Evidence::none().check_in(&within).err().unwrap().kind(), ErrorKind::InvalidConfig);
}
