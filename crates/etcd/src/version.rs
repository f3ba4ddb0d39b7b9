//! Versions of etcd, and which of them have the fixes of leases.

use std::fmt;

/// Major, minor, patch, and whether it is a release: what has a suffix may be older than the number says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version {
    number: (u32, u32, u32),
    released: bool,
}

impl Version {
    /// What is not understood counts as the oldest.
    pub(crate) fn parse(text: &str) -> Self {
        let end = text.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, suffix) = text.split_at(end);
        let mut parts = number.split('.').map(|part| part.parse().unwrap_or(0));
        let mut next = || parts.next().unwrap_or(0);
        Self { number: (next(), next(), next()), released: suffix.is_empty() }
    }

    /// Whether a leader makes sure that it leads before it acknowledges a keepalive.
    pub(crate) fn has_lease_fixes(self) -> bool {
        let first = match self.number {
            (3, 4, _) => (3, 4, 38),
            (3, 5, _) => (3, 5, 23),
            (3, 6, _) => (3, 6, 5),
            _ => (3, 7, 0),
        };
        self >= Self { number: first, released: true }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor, patch) = self.number;
        let suffix = if self.released { "" } else { " (a pre-release)" };
        write!(f, "{major}.{minor}.{patch}{suffix}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fixes_are_in_the_releases_that_have_them() {
        for with in ["3.4.38", "3.5.23", "3.5.30", "3.6.5", "3.6.6-rc.0", "3.7.0", "3.7.1-rc.0", "3.10.0", "4.0.0"] {
            assert!(Version::parse(with).has_lease_fixes(), "{with}");
        }
        let before = ["3.6.5-rc.1", "3.5.23-rc.0", "3.4.38+git", "3.7.0-alpha.0", "3.6.5x"];
        for without in ["3.3.25", "3.4.37", "3.5.22", "3.6.4", "3.5", "", "odd", "v3.6.5"].into_iter().chain(before) {
            assert!(!Version::parse(without).has_lease_fixes(), "{without}");
        }
    }

    #[test]
    fn a_pre_release_comes_before_its_release() {
        assert!(Version::parse("3.6.5-rc.1") < Version::parse("3.6.5"));
        assert!(Version::parse("3.6.4") < Version::parse("3.6.5-rc.1"));
        assert_eq!(Version::parse("3.6.5-rc.1").to_string(), "3.6.5 (a pre-release)");
    }
}
