//! Services of several servers that agree.

use crate::{Rows, found};
use fencelock_core::Level;
use fencelock_lab::{Ensemble, Etcd, ZooKeeper, ZooKeeperSettings};

fn url(members: &Etcd, attested: &str) -> String {
    format!("etcd://{}?attest={attested}", members.endpoints().join(","))
}

/// What Debian 12 brings is older than the fixes; attested, it counts as a version that has them.
#[tokio::test]
async fn etcd() {
    let mut rows = Rows::of("etcd");
    let (member, members) = (Etcd::start().unwrap(), Etcd::start_members(3).unwrap());
    let three = found(url(&members, "etcd.lease_fixes")).await;
    rows.add(
        "3 members, 3.4.38, 3.5.23, 3.6.5 or later, or `etcd.lease_fixes` attested",
        &three,
        Level::Replicated,
        None,
    );
    let one = found(url(&member, "etcd.lease_fixes")).await;
    rows.add(
        "1 member, 3.4.38, 3.5.23, 3.6.5 or later, or `etcd.lease_fixes` attested",
        &one,
        Level::Fenced,
        Some("etcd.members"),
    );
    let old = found(url(&members, "")).await;
    rows.add(
        "any number of members of an older version, as in Debian 12",
        &old,
        Level::Advisory,
        Some("etcd.lease_fixes"),
    );
    rows.compare(|text| text);
}

#[tokio::test]
async fn zookeeper() {
    let mut rows = Rows::of("zookeeper");
    // The times of servers as they come.
    let settings = ZooKeeperSettings::default().with_tick(2_000).with_sync_limit(5);
    let (alone, ensemble) = (ZooKeeper::start_with(&settings).unwrap(), Ensemble::start_with(3, &settings).unwrap());
    let url = |session: &str| format!("zookeeper://{}{session}", ensemble.addresses());
    let long = found(url("")).await;
    rows.add("3 voters, `tickTime` 2 s, `syncLimit` 5, session 30 s", &long, Level::Replicated, None);
    let session = Some("zookeeper.session");
    rows.add(
        "3 voters, `tickTime` 2 s, `syncLimit` 5, session 10 s",
        &*found(url("?session=10s")).await,
        Level::Advisory,
        session,
    );
    rows.add(
        "3 voters, `tickTime` 2 s, `syncLimit` 5, session 4 s",
        &*found(url("?session=4s")).await,
        Level::Advisory,
        session,
    );
    let one = found(format!("zookeeper://{}", alone.address())).await;
    rows.add("one server", &one, Level::Fenced, Some("zookeeper.voters"));
    rows.compare(|text| text);
}
