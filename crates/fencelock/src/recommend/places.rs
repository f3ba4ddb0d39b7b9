//! Where to lock: what runs already if it gives the level, and else the least that has to be run.

use super::{DoubleRun, Need, ResourceCheck, Service};
use crate::deployments;
use fencelock_core::{Guarantees, Level, Rule, RuleOutcome};

/// An engine, and what its configuration begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) engine: &'static str,
    pub(super) feature: &'static str,
    pub(super) url: &'static str,
    /// What the words of a fitting deployment hold.
    set_up: &'static [&'static str],
}

const fn place(
    engine: &'static str,
    feature: &'static str,
    url: &'static str,
    set_up: &'static [&'static str],
) -> Place {
    Place { engine, feature, url, set_up }
}

const SQLITE: Place = place("sqlite", "sqlite", "sqlite:/var/lib/app/locks.db", &[""]);
const POSTGRES: Place = place("postgres", "postgres", "postgres://app@db.internal/app", &[""]);
const MYSQL: Place = place("mysql", "mysql", "mysql://app@db.internal/app", &[""]);
const REDIS: Place = place("redis", "redis", "redis://redis.internal", &["one server"]);
const FAILOVER: Place =
    place("redis", "redis", "redis+sentinel://s1.internal,s2.internal,s3.internal/mymaster", &["Sentinel", "Cluster"]);
const REDLOCK: Place = place("redlock", "redlock", "redlock://r1.internal,r2.internal,r3.internal", &[""]);
const ETCD: Place = place("etcd", "etcd", "etcd://e1.internal,e2.internal,e3.internal/app", &["members"]);
const ZOOKEEPER: Place =
    place("zookeeper", "zookeeper", "zookeeper://z1.internal,z2.internal,z3.internal/app", &["voters"]);

fn of(service: Service) -> Place {
    match service {
        Service::Postgres => POSTGRES,
        Service::MySql => MYSQL,
        Service::Redis => REDIS,
        Service::RedisFailover => FAILOVER,
        Service::RedisNodes => REDLOCK,
        Service::Etcd => ETCD,
        Service::ZooKeeper => ZOOKEEPER,
    }
}

/// The order in which services are preferred where several give the level.
fn preferred(need: &Need) -> [Service; 7] {
    use Service::{Etcd, MySql, Postgres, Redis, RedisFailover, RedisNodes, ZooKeeper};
    if need.stays_up {
        return [Etcd, ZooKeeper, RedisNodes, RedisFailover, Postgres, MySql, Redis];
    }
    match need.double_run {
        // The quickest first, where that is all there is to choose by.
        DoubleRun::Waste | DoubleRun::Harmless => [Redis, RedisFailover, Postgres, MySql, Etcd, ZooKeeper, RedisNodes],
        DoubleRun::Wrong => [Postgres, MySql, Etcd, ZooKeeper, Redis, RedisNodes, RedisFailover],
    }
}

impl Place {
    /// Where a lock can be taken inside a transaction of one's own: the engine's
    /// settings, and how that transaction begins.
    pub(super) fn sql(&self) -> Option<(&'static str, &'static str)> {
        match self.engine {
            // Else it would read before it has the file to itself.
            "sqlite" => Some(("SqliteConfig", "begin_with(\"BEGIN IMMEDIATE\")")),
            "postgres" => Some(("PostgresConfig", "begin()")),
            "mysql" => Some(("MySqlConfig", "begin()")),
            _ => None,
        }
    }

    fn rows(&self) -> Vec<Guarantees> {
        let fits = |found: &Guarantees| {
            found.engine() == self.engine && self.set_up.iter().any(|words| found.deployment().contains(words))
        };
        deployments().into_iter().filter(fits).collect()
    }

    /// The deployment to set up for `level`: one that is proved before one that is attested.
    fn fitting(&self, level: Level) -> Option<Guarantees> {
        let mut rows = self.rows();
        rows.retain(|found| found.level() >= Some(level));
        let proved = rows.iter().position(|found| attested(found).next().is_none());
        rows.into_iter().nth(proved.unwrap_or_default())
    }

    /// The ways in which it gives no level at all.
    fn except(&self) -> String {
        let rows = self.rows();
        let none: Vec<_> = rows.iter().filter(|found| found.level().is_none()).map(Guarantees::deployment).collect();
        if none.is_empty() { String::new() } else { format!(", except: {}", none.join("; ")) }
    }

    /// The most that it gives, and why not more.
    fn most(&self) -> Option<String> {
        let most = self.rows().into_iter().max_by_key(Guarantees::level)?;
        let level = most.level().map_or("no level", Level::as_str);
        let why = most.next_obstacle().map_or("", Rule::reason);
        Some(format!("{} gives {level} at most ({why})", self.engine))
    }
}

/// The rules that give the level only where somebody says that they hold. Where
/// another deployment in the same words needs nobody's word, there are none.
pub(super) fn attested(found: &Guarantees) -> impl Iterator<Item = &'static str> + '_ {
    let alone = !found.deployment().contains(", or `");
    let said = found.rules().iter().filter(move |rule| alone && rule.outcome() == RuleOutcome::Attested);
    said.map(Rule::id)
}

/// Whether it is up without one of its servers.
fn survives(service: Service) -> bool {
    matches!(service, Service::Etcd | Service::ZooKeeper | Service::RedisNodes | Service::RedisFailover)
}

/// Whether a file on the host of all is the place: unless the data's own database is the better one.
pub(super) fn is_one_file(need: &Need) -> bool {
    let database = need.services.iter().any(|service| matches!(service, Service::Postgres | Service::MySql));
    need.one_host && !(need.check == ResourceCheck::Transaction && database)
}

/// A place that gives the level; what is said on the way goes to `advice`.
pub(super) fn choose(need: &Need, level: Level, advice: &mut Vec<String>) -> Option<(Place, Guarantees)> {
    if is_one_file(need) {
        let found = SQLITE.fitting(level)?;
        advice.push(
            "One file is enough for programs of one host: there is no server to run, and none to lose.".to_owned(),
        );
        return Some((SQLITE, found));
    }
    let runs = preferred(need).into_iter().filter(|service| need.services.contains(service));
    let mut too_weak = Vec::new();
    for service in runs {
        let place = of(service);
        let up = !need.stays_up || survives(service) || level == Level::Replicated;
        match place.fitting(level).filter(|_| up) {
            Some(found) => {
                let (name, deployment) = (service.as_str(), found.deployment());
                advice.push(match level {
                    Level::Advisory => {
                        format!("{name} runs already, and gives `{level}` in each way that it was tried{}.", place.except())
                    }
                    _ => format!(
                        "{name} runs already, and gives `{level}` set up as: {deployment}. `fencelock check` tells whether \
                         yours is."
                    ),
                });
                return Some((place, found));
            }
            None => too_weak.extend(place.most()),
        }
    }
    if !too_weak.is_empty() {
        advice.push(format!("What runs already gives too little for `{level}`: {}.", too_weak.join("; ")));
    }
    let place = least(need);
    let found = place.fitting(level)?;
    advice.push(match level {
        Level::Advisory => {
            format!(
                "The least to run for `{level}` is {}, in each way that it was tried{}.",
                place.engine,
                place.except()
            )
        }
        _ => format!("The least to run for `{level}` is {}: {}.", place.engine, found.deployment()),
    });
    Some((place, found))
}

fn least(need: &Need) -> Place {
    match (need.stays_up, need.double_run) {
        (true, _) => ETCD,
        (false, DoubleRun::Wrong) => POSTGRES,
        (false, _) => REDIS,
    }
}
