//! The settings that fit the work.

use super::places::{Place, attested};
use super::{DoubleRun, Need, ResourceCheck};
use fencelock_core::{Guarantees, Level};
use std::fmt::Write;
use std::time::Duration;

/// What is written down for the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    ttl: Duration,
    wait: Duration,
    max_hold: Duration,
    lock_delay: Option<Duration>,
    strict: bool,
    /// The lock is taken inside a transaction, where the place allows it.
    in_transaction: bool,
}

const MINUTE: Duration = Duration::from_secs(60);

/// In whole seconds up to two minutes, in whole minutes above.
fn round(duration: Duration) -> Duration {
    let seconds = duration.as_secs().max(1);
    Duration::from_secs(if seconds <= 120 { seconds } else { seconds.div_ceil(60).saturating_mul(60) })
}

fn words(duration: Duration) -> String {
    match duration.as_secs() {
        seconds if seconds >= 3_600 => format!("{}h", seconds.div_ceil(3_600)),
        seconds if seconds > 120 => format!("{}m", seconds.div_ceil(60)),
        seconds => format!("{seconds}s"),
    }
}

impl Settings {
    pub(super) fn of(need: &Need) -> Self {
        // Renewed for as long as the work takes, so the ttl is only what a crash costs the next one.
        let ttl = if need.work < Duration::from_secs(5) { 10 } else { 30 };
        let wrong = need.double_run == DoubleRun::Wrong;
        Self {
            ttl: Duration::from_secs(ttl),
            wait: round(need.work.saturating_mul(2).clamp(Duration::from_secs(5), MINUTE * 10)),
            max_hold: round(need.work.saturating_mul(3).clamp(MINUTE, MINUTE * 60 * 24 * 7)),
            lock_delay: (wrong && need.check == ResourceCheck::Nothing).then_some(Duration::from_secs(5)),
            strict: wrong,
            in_transaction: wrong && need.check == ResourceCheck::Transaction,
        }
    }

    /// The engine's settings, and how the transaction begins, if the lock is taken inside one.
    fn inside(&self, place: &Place) -> Option<(&'static str, &'static str)> {
        place.sql().filter(|_| self.in_transaction)
    }

    pub(super) fn advice(&self, place: &Place) -> Vec<String> {
        if self.inside(place).is_some() {
            return vec![
                "The lock lasts exactly as long as the transaction: nothing is renewed and nothing expires, so keep it \
                 short, and let the database end one whose program hangs."
                    .to_owned(),
                "The code asks for the level once, when it connects; the file is for the command line alone."
                    .to_owned(),
            ];
        }
        let mut advice = vec![format!(
            "The lock is renewed while the work lasts; `max_hold` ({}) ends a hold that hangs, and `ttl` ({}) is what a \
             crash makes others wait.",
            words(self.max_hold),
            words(self.ttl)
        )];
        if self.strict {
            advice.push(
                "`on_degraded = \"refuse\"` stops the work when the deployment changes below it: a replica added, a sync \
                 turned off."
                    .to_owned(),
            );
        }
        advice
    }

    pub(super) fn toml(&self, place: &Place, level: Level, set_up: &Guarantees) -> String {
        let inside = self.inside(place).is_some();
        let mut text = String::new();
        if inside {
            text.push_str("# For `fencelock check`, `status` and `purge`; the code does not read it.\n");
        }
        text.push_str("[lock]\n");
        let mut line = |key: &str, value: &str| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{key} = \"{value}\"");
        };
        line("url", place.url);
        line("require", level.as_str());
        if inside {
            attest(&mut text, set_up);
            return text;
        }
        // A session has to hold both, and theirs is 30 s unless it was set.
        let delay = self.lock_delay.filter(|_| place.engine == "zookeeper").unwrap_or_default();
        line("ttl", &words(self.ttl.saturating_sub(delay)));
        line("wait_at_most", &words(self.wait));
        line("max_hold", &words(self.max_hold));
        if let Some(delay) = self.lock_delay {
            line("lock_delay", &words(delay));
        }
        if self.strict {
            line("on_degraded", "refuse");
            line("reprobe", "60s");
        }
        attest(&mut text, set_up);
        text
    }

    /// The lines for `Cargo.toml`.
    pub(super) fn dependencies(&self, place: &Place) -> String {
        let (version, feature) = (env!("CARGO_PKG_VERSION"), place.feature);
        let ours =
            format!("fencelock = {{ version = \"{version}\", default-features = false, features = [\"{feature}\"] }}");
        if self.inside(place).is_none() {
            return ours;
        }
        // The transaction is of this major version's type.
        let theirs = format!("sqlx = {{ version = \"0.9\", features = [\"runtime-tokio\", \"{feature}\"] }}");
        format!("{ours}\n{theirs}")
    }

    pub(super) fn code(&self, place: &Place, level: Level, set_up: &Guarantees) -> String {
        if let Some((config, begin)) = self.inside(place) {
            let (engine, url, said) = (place.engine, place.url, ids(set_up));
            let attested = if said.is_empty() { String::new() } else { format!(".with_attested([{said}])") };
            format!(
                "use fencelock::DistributedLock as _;\n\
                 use fencelock::sql::{{AcquireIn as _, SqlLock, {engine}::{config}}};\n\
                 let url = fencelock::EngineUrl::parse(\"{url}\")?; // the database of the data\n\
                 let locks = SqlLock::{engine}({config}::from_url(&url)?{attested}).await?;\n\
                 locks.guarantees().require(fencelock::Level::{level:?})?;\n\
                 let mut transaction = pool.{begin}.await?;\n\
                 let Some(hold) = locks.acquire_in(&mut transaction, \"orders/1001\").await? else {{\n    \
                 return Ok(()); // somebody else has it\n\
                 }};\n\
                 work(&mut transaction, hold.token()).await?;\n\
                 transaction.commit().await?; // the lock ends with it\n"
            )
        } else {
            "let locks = fencelock::Config::load()?.connect().await?; // reads fencelock.toml\n\
             let guard = locks.acquire(\"orders/1001\").await?;\n\
             guard.while_held(work(guard.token())).await?; // give the token to what you write to\n\
             guard.release().await?;\n"
                .to_owned()
        }
    }
}

/// The rules that somebody has to vouch for, between quotes.
fn ids(set_up: &Guarantees) -> String {
    attested(set_up).map(|id| format!("\"{id}\"")).collect::<Vec<_>>().join(", ")
}

fn attest(text: &mut String, set_up: &Guarantees) {
    let said = ids(set_up);
    if !said.is_empty() {
        let _ = writeln!(text, "attest = [{said}]");
    }
}
