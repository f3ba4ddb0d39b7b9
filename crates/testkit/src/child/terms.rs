//! What a child process is told.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

const PREFIX: &str = "FENCELOCK_TESTKIT_";

/// What the process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Holds a lock and obeys commands.
    Hold,
    /// Counts in a file, so many times, each time under the lock.
    Count(u32),
}

/// How a process is to hold a lock: where the service is, the lock's name, its ttl.
#[derive(Clone, Debug)]
pub struct HolderTerms {
    pub(crate) role: Role,
    pub(crate) address: String,
    pub(crate) name: String,
    pub(crate) ttl: Duration,
    pub(crate) lock_delay: Duration,
    pub(crate) file: Option<PathBuf>,
}

impl HolderTerms {
    /// Holds `name` at the service at `address`, renewed, without a lock delay.
    #[must_use]
    pub fn new(address: impl Into<String>, name: impl Into<String>, ttl: Duration) -> Self {
        let (address, name) = (address.into(), name.into());
        Self { role: Role::Hold, address, name, ttl, lock_delay: Duration::ZERO, file: None }
    }

    /// With a lock delay.
    #[must_use]
    pub fn with_lock_delay(mut self, delay: Duration) -> Self {
        self.lock_delay = delay;
        self
    }

    /// With a [`FencedFile`](crate::FencedFile) that the commands `enter` and `write` go to.
    #[must_use]
    pub fn with_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.file = Some(path.into());
        self
    }

    /// Counts in a plain file instead of holding.
    pub(crate) fn counting(mut self, times: u32) -> Self {
        self.role = Role::Count(times);
        self
    }

    pub(crate) fn to_environment(&self) -> BTreeMap<String, OsString> {
        let mut told = BTreeMap::new();
        let mut tell = |key: &str, value: OsString| told.insert(format!("{PREFIX}{key}"), value);
        let (role, times) = match self.role {
            Role::Hold => ("hold", 0),
            Role::Count(times) => ("count", times),
        };
        tell("ROLE", role.into());
        tell("TIMES", times.to_string().into());
        tell("ADDRESS", (&self.address).into());
        tell("NAME", (&self.name).into());
        tell("TTL_MS", self.ttl.as_millis().to_string().into());
        tell("DELAY_MS", self.lock_delay.as_millis().to_string().into());
        if let Some(file) = &self.file {
            tell("FILE", file.into());
        }
        told
    }

    /// What this process was told; `None` if it is no child of the suite.
    pub(crate) fn from_environment() -> Option<Self> {
        let told = |key: &str| std::env::var(format!("{PREFIX}{key}")).ok();
        let millis = |key| told(key)?.parse().ok().map(Duration::from_millis);
        let role = match told("ROLE")?.as_str() {
            "count" => Role::Count(told("TIMES")?.parse().ok()?),
            _ => Role::Hold,
        };
        let file = std::env::var_os(format!("{PREFIX}FILE")).map(PathBuf::from);
        let (address, name) = (told("ADDRESS")?, told("NAME")?);
        Some(Self { role, address, name, ttl: millis("TTL_MS")?, lock_delay: millis("DELAY_MS")?, file })
    }
}
