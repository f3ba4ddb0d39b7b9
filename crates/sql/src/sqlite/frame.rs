//! The frame of time that expiries are written in.
//!
//! An expiry in boot time means nothing after a reboot, nor in a container whose
//! boot clock is shifted. So it is stored with the name of its clock, and only
//! who reads the same clock may judge it.

use fencelock_core::{Clock, Moment};
use std::time::{SystemTime, UNIX_EPOCH};

/// Which clock this process counts on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    id: String,
}

impl Frame {
    /// The frame of this process: boot time where the boot can be named, else the wall clock.
    pub(crate) fn here() -> Self {
        Self { id: boot().unwrap_or_default() }
    }

    /// Names the clock; empty for the wall clock.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn is_boot_time(&self) -> bool {
        !self.id.is_empty()
    }

    /// `moment` in microseconds of this frame, if it is the present.
    pub(crate) fn at(&self, moment: Moment) -> i64 {
        if self.is_boot_time() { i64::try_from(moment.as_nanos() / 1000).unwrap_or(i64::MAX / 4) } else { unix_now() }
    }

    pub(crate) fn now(&self, clock: &Clock) -> i64 {
        self.at(clock.now())
    }
}

/// Unix time in microseconds; zero before 1970.
pub(crate) fn unix_now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX / 4)
}

/// This boot, and by how much a time namespace shifts its clock for this process.
///
/// By the offset and not by the namespace's number, which the kernel gives out
/// again as soon as it is free (`time_namespaces(7)`).
#[cfg(target_os = "linux")]
fn boot() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let boot = boot.trim();
    (!boot.is_empty()).then(|| format!("{boot} {}", shift()))
}

#[cfg(target_os = "linux")]
fn shift() -> String {
    let namespace = |name: &str| std::fs::read_link(format!("/proc/self/ns/{name}")).ok();
    let (own, childrens) = (namespace("time"), namespace("time_for_children"));
    let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    // The offsets are those that children get; between `unshare` and `fork` they are not our own.
    let shift = (own == childrens).then(|| {
        offsets
            .lines()
            .find_map(|line| line.strip_prefix("boottime"))
            .map(|shift| shift.split_whitespace().collect::<Vec<_>>().join("."))
    });
    match shift {
        Some(shift) => shift.unwrap_or_else(|| "0.0".to_owned()),
        None => format!("{own:?}"),
    }
}

#[cfg(not(target_os = "linux"))]
fn boot() -> Option<String> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn linux_counts_in_boot_time_and_names_the_boot() {
        let frame = Frame::here();
        assert!(frame.is_boot_time() && frame.id().ends_with(" 0.0"), "{frame:?}");
        assert_eq!(frame.at(Moment::from_nanos(5_999)), 5);
    }

    #[test]
    fn without_a_boot_the_wall_clock_counts() {
        let frame = Frame { id: String::new() };
        let (before, now) = (unix_now(), frame.at(Moment::from_nanos(0)));
        assert!(now >= before && before > 1_700_000_000_000_000);
    }
}
