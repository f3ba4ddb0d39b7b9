//! The settings that mean the same for every engine, and how each is written in a file.

/// How a value is written in TOML.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Duration,
    Number,
    List,
    /// An engine's own: the engine knows.
    Any,
}

/// Every key of `[lock]`.
pub(super) const COMMON: [(&str, Kind); 17] = [
    ("url", Kind::Text),
    ("require", Kind::Text),
    ("require_capability", Kind::List),
    ("forbid", Kind::List),
    ("attest", Kind::List),
    ("on_degraded", Kind::Text),
    ("reprobe", Kind::Duration),
    ("ttl", Kind::Duration),
    ("wait_at_most", Kind::Duration),
    ("max_hold", Kind::Duration),
    ("lock_delay", Kind::Duration),
    ("cohort", Kind::Number),
    ("clock_drift", Kind::Number),
    ("holder", Kind::Text),
    ("username", Kind::Text),
    ("password", Kind::Text),
    ("password_file", Kind::Text),
];

/// Those that an engine's table may have too, where they count over those of `[lock]`.
pub(super) const CREDENTIALS: [&str; 3] = ["username", "password", "password_file"];

/// Variables that are no settings: where the file is, the command line's log, and
/// what `fencelock run` tells its command.
pub(super) const OTHER_VARIABLES: [&str; 5] =
    ["FENCELOCK_CONFIG", "FENCELOCK_LOG", "FENCELOCK_NAME", "FENCELOCK_TOKEN", "FENCELOCK_CLAIM"];

pub(super) fn names() -> impl Iterator<Item = &'static str> {
    COMMON.iter().map(|(name, _)| *name)
}

pub(super) fn kind(key: &str) -> Option<Kind> {
    COMMON.iter().find(|(name, _)| *name == key).map(|(_, kind)| *kind)
}

pub(super) fn is_credential(key: &str) -> bool {
    CREDENTIALS.contains(&key)
}

/// The variable that says the same as `key`, of `[lock]` or of an engine's table.
pub(super) fn variable(engine: Option<&str>, key: &str) -> String {
    let upper = |text: &str| text.replace(|c: char| !c.is_ascii_alphanumeric(), "_").to_ascii_uppercase();
    match engine {
        Some(engine) => format!("FENCELOCK_{}_{}", upper(engine), upper(key)),
        None => format!("FENCELOCK_{}", upper(key)),
    }
}
