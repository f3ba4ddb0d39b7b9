//! What a scheme leads to, and what is said when it leads nowhere.
#![allow(clippy::expect_used)] // in helpers, which clippy does not take for tests

use fencelock::{Error, ErrorKind, Registry};

async fn refused(url: &str) -> Error {
    fencelock::connect(url).await.expect_err(url)
}

#[tokio::test]
async fn every_scheme_that_is_compiled_in_connects() {
    let dir = tempfile::tempdir().unwrap();
    for scheme in Registry::builtin().schemes() {
        // The server lives until the next one.
        let (url, _server): (String, Box<dyn std::any::Any>) = match scheme {
            "memory" => ("memory:".to_owned(), Box::new(())),
            "sqlite" => (format!("sqlite:{}", dir.path().join("locks.db").display()), Box::new(())),
            "etcd" => {
                let etcd = fencelock_lab::Etcd::start().unwrap();
                (format!("etcd://{}/app", etcd.endpoints().join(",")), Box::new(etcd))
            }
            "postgres" | "postgresql" => {
                let server = fencelock_lab::Postgres::start().unwrap();
                (server.url().replace("postgres:", &format!("{scheme}:")), Box::new(server))
            }
            "mysql" | "mariadb" => {
                let server = fencelock_lab::MariaDb::start().unwrap();
                (server.url().replace("mysql:", &format!("{scheme}:")), Box::new(server))
            }
            "redis" => {
                let redis = fencelock_lab::Redis::start().unwrap();
                (format!("redis://{}", redis.address()), Box::new(redis))
            }
            "rediss" if cfg!(feature = "tls") => redis_with_tls(),
            "rediss" => continue,
            "redis+sentinel" => {
                let set = fencelock_lab::RedisSentinel::start().unwrap();
                let hosts: Vec<_> = set.sentinels().iter().map(ToString::to_string).collect();
                (format!("redis+sentinel://{}/{}", hosts.join(","), set.name()), Box::new(set))
            }
            "redis+cluster" => {
                let cluster = fencelock_lab::RedisCluster::start().unwrap();
                (format!("redis+cluster://{}", cluster.addresses()[0]), Box::new(cluster))
            }
            "redlock" => {
                let nodes = fencelock_lab::RedisNodes::start(3).unwrap();
                let url = format!("redlock://{}", nodes.addresses());
                init_redlock(&url).await;
                (url, Box::new(nodes))
            }
            "zookeeper" | "zk" => {
                let server = fencelock_lab::ZooKeeper::start().unwrap();
                (format!("{scheme}://{}/app", server.address()), Box::new(server))
            }
            other => panic!("no server is known for `{other}:`"),
        };
        let locks = fencelock::connect(&url).await.unwrap();
        let guard = locks.acquire("a").await.unwrap();
        assert!(locks.try_acquire("a").await.unwrap().is_none(), "{url}");
        guard.release().await.unwrap();
    }
}

#[cfg(feature = "redlock")]
async fn init_redlock(url: &str) {
    use fencelock::redlock::{RedlockConfig, RedlockOperator};
    let refused = fencelock::connect(url).await.expect_err("no counters yet");
    assert!(
        refused.kind() == ErrorKind::Refused && refused.to_string().contains("fencelock redlock init"),
        "{refused}"
    );
    let url = fencelock::EngineUrl::parse(url).expect("a URL");
    let config = RedlockConfig::from_url(&url).expect("a configuration");
    RedlockOperator::new(config).expect("an operator").init(0).await.expect("counters");
}

#[cfg(not(feature = "redlock"))]
fn init_redlock(_: &str) -> std::future::Ready<()> {
    std::future::ready(())
}

fn redis_with_tls() -> (String, Box<dyn std::any::Any>) {
    let files = fencelock_lab::Certificates::make().expect("certificates");
    let path = |file: &str| files.path(file).display().to_string();
    let port = fencelock_lab::free_port().to_string();
    let (cert, key, ca) = (path("server.crt"), path("server.key"), path("ca.pem"));
    let settings = ["--tls-port", &port, "--tls-cert-file", &cert, "--tls-key-file", &key, "--tls-ca-cert-file", &ca];
    let settings = settings.into_iter().chain(["--tls-auth-clients", "no", "--save", ""]);
    let redis = fencelock_lab::Redis::start_with(settings).expect("a Redis with TLS");
    (format!("rediss://localhost:{port}?ca_file={ca}"), Box::new((redis, files)))
}

#[tokio::test]
async fn case_does_not_matter() {
    assert!(fencelock::connect("MEMORY:").await.is_ok());
    let registry = Registry::empty().with("Mine+TLS", |_| async {
        Err::<std::sync::Arc<dyn fencelock::DistributedLock>, _>(Error::new(ErrorKind::Denied, "it was asked"))
    });
    assert_eq!(registry.schemes().collect::<Vec<_>>(), ["mine+tls"]);
    let e = fencelock::builder("MINE+tls://h").registry(registry).connect().await.unwrap_err();
    assert_eq!((e.kind(), e.operation()), (ErrorKind::Denied, Some("connect")));
}

#[tokio::test]
async fn an_unknown_scheme_names_the_nearest() {
    for (url, hint) in [
        ("memry:", "did you mean `memory`?"),
        ("sqllite:locks.db", "did you mean `sqlite`?"),
        ("carrierpigeon://h", "; there are: "),
    ] {
        let e = refused(url).await;
        assert_eq!(e.kind(), ErrorKind::InvalidConfig);
        assert!(e.message().contains(hint), "{e}");
    }
}

#[cfg(not(feature = "sqlite"))]
#[tokio::test]
async fn an_engine_that_was_left_out_names_its_feature() {
    let e = refused("sqlite:locks.db").await;
    assert_eq!(e.kind(), ErrorKind::InvalidConfig);
    assert!(e.message().contains("cargo feature `sqlite`"), "{e}");
}

#[tokio::test]
async fn an_empty_registry_has_no_engine() {
    let e = fencelock::builder("memory:").registry(Registry::empty()).connect().await.unwrap_err();
    assert!(e.message().starts_with("`memory:` leads to no engine"), "{e}");
}

#[tokio::test]
async fn each_memory_connect_is_a_server_of_its_own() {
    let (one, two) = (fencelock::connect("memory:").await.unwrap(), fencelock::connect("memory:").await.unwrap());
    let _held = one.acquire("a").await.unwrap();
    assert!(two.try_acquire("a").await.unwrap().is_some());
    for shared in ["memory:shared", "memory://host", "memory://user@", "memory:/"] {
        assert_eq!(refused(shared).await.kind(), ErrorKind::InvalidConfig, "{shared}");
    }
}

#[tokio::test]
async fn what_is_no_url_is_refused_at_connect() {
    for url in ["", "locks.db", ":", "memory:?ttl=%"] {
        assert_eq!(refused(url).await.kind(), ErrorKind::InvalidConfig, "{url}");
    }
}

#[test]
fn outside_a_runtime_connect_says_so() {
    use std::future::Future;
    use std::task::{Context, Poll, Waker};
    for url in ["memory:", "sqlite:locks.db"] {
        let connecting = fencelock::connect(url);
        let answer = std::pin::pin!(connecting).poll(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(Err(e)) = answer else { panic!("{url}: {answer:?}") };
        assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    }
}
