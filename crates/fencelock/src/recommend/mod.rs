//! From the need to the engine, before anything runs.

mod need;
mod places;
mod settings;

pub use need::{DoubleRun, Need, ResourceCheck, Service};

use fencelock_core::{Guarantees, Level};
use places::Place;
use settings::Settings;

/// What to do about a [`Need`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recommendation {
    lock: Option<Lock>,
    advice: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Lock {
    place: Place,
    level: Level,
    deployment: Guarantees,
    settings: Settings,
}

impl Recommendation {
    /// Whether a lock is recommended at all.
    #[must_use]
    pub fn needs_lock(&self) -> bool {
        self.lock.is_some()
    }

    /// The engine; `None` where no lock is needed.
    #[must_use]
    pub fn engine(&self) -> Option<&str> {
        self.lock.as_ref().map(|lock| lock.deployment.engine())
    }

    /// The level to require.
    #[must_use]
    pub fn level(&self) -> Option<Level> {
        self.lock.as_ref().map(|lock| lock.level)
    }

    /// How the engine has to be set up, one of [`deployments`](crate::deployments), which gives that level.
    #[must_use]
    pub fn deployment(&self) -> Option<&Guarantees> {
        self.lock.as_ref().map(|lock| &lock.deployment)
    }

    /// The reasons, and what else to do, most important first.
    #[must_use]
    pub fn advice(&self) -> &[String] {
        &self.advice
    }

    /// A configuration file, apart from names of hosts; empty where no lock is needed.
    ///
    /// A lock inside a transaction is configured in code; there the file is for the command line.
    #[must_use]
    pub fn toml(&self) -> String {
        self.lock.as_ref().map(|lock| lock.settings.toml(&lock.place, lock.level, &lock.deployment)).unwrap_or_default()
    }

    /// The lines for `Cargo.toml`; empty where no lock is needed.
    #[must_use]
    pub fn dependency(&self) -> String {
        self.lock.as_ref().map(|lock| lock.settings.dependencies(&lock.place)).unwrap_or_default()
    }

    /// The lines of code that use it; empty where no lock is needed.
    #[must_use]
    pub fn code(&self) -> String {
        self.lock.as_ref().map(|lock| lock.settings.code(&lock.place, lock.level, &lock.deployment)).unwrap_or_default()
    }
}

/// What to do about a need: an engine with its level and settings, or no lock at all.
///
/// What it says of levels is what engines said of themselves in [`deployments`](crate::deployments).
/// It asks no server; `require` in what it recommends does, at connect.
///
/// ```
/// use fencelock::{DoubleRun, Level, Need, ResourceCheck, Service, recommend};
/// let ledger = Need::new(DoubleRun::Wrong).with_check(ResourceCheck::Token).with_service(Service::Postgres);
/// let advised = recommend(&ledger);
/// assert_eq!((advised.engine(), advised.level()), (Some("postgres"), Some(Level::Fenced)));
/// assert!(advised.toml().contains("require = \"fenced\""));
/// assert!(!recommend(&Need::new(DoubleRun::Harmless)).needs_lock());
/// ```
#[must_use]
pub fn recommend(need: &Need) -> Recommendation {
    if let Some(advice) = without_lock(need) {
        return Recommendation { lock: None, advice };
    }
    let level = level(need);
    let mut advice = Vec::new();
    let Some((place, deployment)) = places::choose(need, level, &mut advice) else {
        return Recommendation { lock: None, advice };
    };
    for id in places::attested(&deployment) {
        advice.push(format!(
            "`{id}`, attested below, is your word for what no server can tell. Make it so first: see the rule's \
             reason in `fencelock check`. Without it, `require` refuses."
        ));
    }
    if need.double_run == DoubleRun::Wrong {
        advice.extend(at_the_resource(need));
    }
    let settings = Settings::of(need);
    advice.extend(settings.advice(&place));
    Recommendation { lock: Some(Lock { place, level, deployment, settings }), advice }
}

fn level(need: &Need) -> Level {
    match need.double_run {
        DoubleRun::Harmless | DoubleRun::Waste => Level::Advisory,
        DoubleRun::Wrong if need.stays_up && !places::is_one_file(need) => Level::Replicated,
        DoubleRun::Wrong => Level::Fenced,
    }
}

/// The honest answer, where it is one.
fn without_lock(need: &Need) -> Option<Vec<String>> {
    match (need.double_run, need.check) {
        (DoubleRun::Harmless, _) => Some(vec![
            "You need no lock: the work may be done twice, so let it be. A lock would save the second run and cost a \
             service that can be away."
                .to_owned(),
        ]),
        (DoubleRun::Wrong, ResourceCheck::UniqueKey) => Some(vec![
            "You need no lock: make the work idempotent. Put the unique key on the id of the request or run, in the \
             same transaction as the result; the second run then fails at the key, whatever clocks and networks do."
                .to_owned(),
            "If runs are costly too, an advisory lock beside the key saves the second one: ask again with `waste`."
                .to_owned(),
        ]),
        _ => None,
    }
}

fn at_the_resource(need: &Need) -> Vec<String> {
    match need.check {
        ResourceCheck::Token => vec![
            "Let the resource refuse small tokens, twice: enter (`UPDATE … SET fence = $token WHERE id = $id AND fence \
             <= $token`) before the first read, and write with `AND fence = $token`. A gate of the engine does both."
                .to_owned(),
        ],
        ResourceCheck::Transaction => vec![
            "Where the lock table is in the same database as the data, `acquire_in` takes the lock inside your own \
             transaction: it commits with the data and needs no token. If one row is all that changes, `WHERE version = \
             …` needs no lock at all."
                .to_owned(),
        ],
        ResourceCheck::UniqueKey => Vec::new(),
        ResourceCheck::Nothing => vec![
            "No lock can promise this alone: a holder that is paused or cut off past its lease may still write, and \
             nothing refuses it. Give the resource something to check: a token, a unique key, a transaction. Until \
             then a lock makes it rare, and `lock_delay` rarer."
                .to_owned(),
        ],
    }
}

#[cfg(test)]
mod tests;
