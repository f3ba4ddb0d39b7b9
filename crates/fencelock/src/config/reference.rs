//! The reference file is right: it parses, it has every key there is, and no value in it is the default.

use super::{Config, keys};
use crate::merge::{Common, Merged, merge};
use crate::{Registry, Target};
use fencelock_core::{Assumption, Capability, Error, ErrorKind, Level, OnDegraded, Wait};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use toml::de::{DeTable, DeValue};

const TEXT: &str = include_str!("../../reference.toml");

/// With the keys that are commented out, since no engine on a file takes them.
fn text() -> String {
    let with = |text: String, key: &&str| text.replace(&format!("\n#{key} ="), &format!("\n{key} ="));
    keys::names().filter(|key| keys::is_credential(key)).fold(TEXT.to_owned(), |text, key| with(text, &key))
}

/// The keys of `[lock]`, and of each engine's table.
fn written() -> (BTreeSet<String>, BTreeMap<String, BTreeSet<String>>) {
    let text = text();
    let root = DeTable::parse(&text).unwrap();
    let lock = root.get_ref().get("lock").unwrap().get_ref().as_table().unwrap();
    let (mut common, mut tables) = (BTreeSet::new(), BTreeMap::new());
    for (key, value) in lock {
        let key = key.get_ref().to_string();
        match value.get_ref() {
            DeValue::Table(table) => {
                tables.insert(key, table.keys().map(|key| key.get_ref().to_string()).collect());
            }
            _ => assert!(common.insert(key)),
        }
    }
    (common, tables)
}

/// URLs of which at least one is right for the scheme, apart from there being no server.
fn urls(scheme: &str) -> [String; 5] {
    ["locks.db", "", "//127.0.0.1:1", "//127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", "//127.0.0.1:1/service"]
        .map(|rest| format!("{scheme}:{rest}"))
}

/// The keys that an engine knows, which it tells when it meets one that is like none of them.
async fn known_to(scheme: &str) -> BTreeSet<String> {
    let odd = "z".repeat(64);
    for url in urls(scheme) {
        let e = crate::builder(url).set(&odd, "").connect().await.unwrap_err();
        if let Some((_, all)) = e.message().split_once("; there are: ").filter(|_| e.message().contains(&odd)) {
            return all.split(", ").filter(|key| keys::kind(key).is_none()).map(str::to_owned).collect();
        }
    }
    panic!("`{scheme}:` does not say that a setting is unknown, or `urls` has none for it")
}

#[test]
fn every_common_key_is_in_it() {
    assert_eq!(written().0, keys::names().map(str::to_owned).collect());
}

#[tokio::test]
async fn every_key_of_every_engine_is_in_it() {
    let (_, tables) = written();
    let mut known = BTreeMap::<String, BTreeSet<String>>::new();
    for scheme in Registry::builtin().schemes() {
        let table = crate::engines::table_of(scheme).to_owned();
        known.entry(table).or_default().extend(known_to(scheme).await);
    }
    for (engine, keys) in &known {
        assert_eq!(tables.get(engine).cloned().unwrap_or_default(), *keys, "[lock.{engine}] in reference.toml");
    }
    let engines = Registry::builtin().engines();
    assert!(tables.keys().all(|table| engines.contains(table)), "{tables:?}");
}

#[test]
fn every_key_has_its_default_in_the_comment_and_another_value() {
    let mut comment = String::new();
    for line in text().lines() {
        match (line.strip_prefix('#'), line.split_once(" = ")) {
            (Some(words), _) => comment.push_str(words),
            (None, Some((key, value))) => {
                let told = comment.split("Default ").nth(1);
                let default = told.and_then(|told| told.split(['.', ',']).next());
                let none = comment.to_lowercase().contains("no default") || comment.contains("by default");
                assert!(default.is_some() || none, "the comment on `{key}` does not tell the default: {comment}");
                assert_ne!(default, Some(value), "`{key}` has its default");
            }
            // One comment may be for several keys in a row.
            (None, None) => comment.clear(),
        }
    }
}

fn merged(text: &str) -> Merged {
    let config = Config::from_toml(text, "reference.toml").unwrap();
    let tables = config.tables.into_iter().map(|table| table.layer);
    merge(std::iter::once(config.common).chain(tables), Common::default()).unwrap()
}

#[test]
fn every_common_value_is_read() {
    let Merged { common, defaults, engine, .. } = merged(TEXT);
    let s = Duration::from_secs;
    assert_eq!(common.require, Some(Level::Fenced));
    assert_eq!(common.capabilities, [Capability::NotifiedWaiting, Capability::InStoreGuard]);
    assert_eq!(common.forbidden, [Assumption::ServerClock]);
    assert_eq!(common.attest, ["sqlite.local_file"]);
    assert_eq!((common.on_degraded, common.reprobe), (Some(OnDegraded::Refuse), Some(s(60))));
    assert_eq!((common.clock_drift, common.holder.as_deref()), (Some(20_000), Some("billing")));
    assert_eq!((defaults.ttl, defaults.wait), (s(20), Wait::AtMost(s(5))));
    assert_eq!((defaults.max_hold, defaults.lock_delay), (Some(s(3600)), s(2)));
    assert_eq!(defaults.cohort, 8);
    let mut engine = engine;
    assert_eq!(engine.text("url").as_deref(), Some("sqlite:/var/lib/app/locks.db"));
    let url = Config::from_toml(TEXT, "reference.toml").unwrap().take_url().0.unwrap();
    assert_eq!((url.scheme.as_str(), url.path.as_str()), ("sqlite", "/var/lib/app/locks.db"));
}

#[tokio::test]
async fn user_and_password_are_read() {
    let registry = Registry::builtin().with("mine", |target: Target| async move {
        let url = target.url;
        let password = url.password.as_ref().map(fencelock_core::Secret::reveal);
        assert_eq!((url.user.as_deref(), password), (Some("app"), Some("…")));
        Err(Error::new(ErrorKind::Denied, "it was asked"))
    });
    let without = text().replace("password_file = ", "#password_file = ");
    let both = Config::from_toml(text(), "r").unwrap().with_url("mine://host").builder().registry(registry.clone());
    assert!(both.connect().await.unwrap_err().message().contains("exclude each other"));
    let one = Config::from_toml(without, "r").unwrap().with_url("mine://host").builder().registry(registry);
    assert_eq!(one.connect().await.unwrap_err().kind(), ErrorKind::Denied);
}

#[cfg(feature = "sqlite")]
#[test]
fn every_value_for_sqlite_is_read() {
    use super::Layer;
    use fencelock_core::Settings;
    use fencelock_sql::sqlite::SqliteConfig;
    let config = Config::from_toml(TEXT, "reference.toml").unwrap();
    let table = config.tables.into_iter().find(|table| table.engine == "sqlite").unwrap().layer;
    let read = |settings: Settings| {
        let mut url = fencelock_core::EngineUrl::parse("sqlite:locks.db").unwrap();
        url.settings = settings;
        format!("{:?}", SqliteConfig::from_url(&url).unwrap())
    };
    let all = read(table.settings);
    for value in ["request_timeout: 4s", "busy_timeout: 200ms", "Extra", "token_base: 1000", "create: false"] {
        assert!(all.contains(value), "{value}: {all}");
    }
    let mut layer = Layer::default();
    let default = read(layer.settings.clone());
    let of_sqlite = TEXT.split("[lock.sqlite]").last().unwrap().split("\n[").next().unwrap();
    for line in of_sqlite.lines().filter(|line| !line.starts_with('#')) {
        let Some((key, value)) = line.split_once(" = ") else { continue };
        layer.settings = Settings::default();
        layer.set(key, value.trim_matches('"'), "reference.toml");
        assert_ne!(read(layer.settings.clone()), default, "`{key}` has its default");
    }
}

/// Every setting of `engine` as it stands in the file, and how many there are.
#[cfg(all(
    feature = "tls",
    any(
        feature = "postgres",
        feature = "mysql",
        feature = "redis",
        feature = "redlock",
        feature = "etcd",
        feature = "zookeeper"
    )
))]
fn whole(engine: &str, url: &str) -> (fencelock_core::EngineUrl, Vec<(String, String)>) {
    let config = Config::from_toml(TEXT, "reference.toml").unwrap();
    let table = config.tables.into_iter().find(|table| table.engine == engine).unwrap().layer;
    let mut url = fencelock_core::EngineUrl::parse(url).unwrap();
    let mut settings = table.settings.clone();
    let keys: Vec<_> = table.settings.keys().map(str::to_owned).collect();
    let values = keys.into_iter().map(|key| {
        let value = settings.text(String::leak(key.clone())).unwrap();
        (key, value)
    });
    let values = values.collect();
    url.settings = table.settings;
    (url, values)
}

/// What is read of the whole table, each value of which is seen in it.
#[cfg(all(feature = "tls", any(feature = "postgres", feature = "mysql")))]
fn every_value_is_seen(engine: &str, read: impl Fn(&fencelock_core::EngineUrl) -> String) {
    let (url, values) = whole(engine, "x://user@host/database");
    let all = read(&url);
    for (key, value) in values {
        // An enum's value is shown as its variant, and a flag as itself.
        let seen = value.replace('-', "");
        assert!(all.to_lowercase().contains(&seen) || all.contains(&value), "`{key}` = {value}: {all}");
    }
}

#[cfg(all(feature = "postgres", feature = "tls"))]
#[test]
fn every_value_for_postgres_is_read() {
    use fencelock_sql::postgres::PostgresConfig;
    every_value_is_seen("postgres", |url| format!("{:?}", PostgresConfig::from_url(url).unwrap()));
}

#[cfg(all(feature = "mysql", feature = "tls"))]
#[test]
fn every_value_for_mysql_is_read() {
    use fencelock_sql::mysql::MySqlConfig;
    every_value_is_seen("mysql", |url| format!("{:?}", MySqlConfig::from_url(url).unwrap()));
}

/// The whole table is a right configuration of its engine.
#[cfg(feature = "tls")]
#[test]
fn every_table_is_taken_whole() {
    #[cfg(feature = "etcd")]
    fencelock_etcd::EtcdConfig::from_url(&whole("etcd", "etcd://host").0).unwrap();
    #[cfg(feature = "redis")]
    fencelock_redis::RedisConfig::from_url(&whole("redis", "redis+sentinel://host/master").0).unwrap();
    #[cfg(feature = "redlock")]
    fencelock_redlock::RedlockConfig::from_url(&whole("redlock", "redlock://a,b,c").0).unwrap();
    #[cfg(feature = "zookeeper")]
    fencelock_zookeeper::ZooKeeperConfig::from_url(&whole("zookeeper", "zookeeper://host").0).unwrap();
}
