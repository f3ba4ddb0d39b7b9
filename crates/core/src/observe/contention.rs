//! For which names calls of one client queue.

use crate::{LockName, Moment};
use std::collections::HashMap;
use std::time::Duration;

/// The most names that are watched at a time.
const NAMES: usize = 256;
/// Over how long calls are counted.
const WINDOW: Duration = Duration::from_secs(10);
/// So many calls that wait on average make a name hot.
const HOT: u64 = 8;
/// How long the same name is not warned about again.
const QUIET: Duration = Duration::from_secs(600);

/// The times waited for names. Their sum over a window, divided by the window,
/// is how many calls waited on average (Little's law).
#[derive(Debug, Default)]
pub(super) struct Contention {
    names: HashMap<LockName, Window>,
}

#[derive(Debug)]
struct Window {
    began: Moment,
    waited: Duration,
    warned: Option<Moment>,
    /// How many waited on average in the last full window.
    waiting: u64,
}

impl Contention {
    /// Notes that a call waited so long; how many wait on average, if that is to be warned about.
    pub(super) fn waited(&mut self, name: &LockName, waited: Duration, now: Moment) -> Option<u64> {
        // What passed without a queue is nobody's contention, and costs no place.
        if waited < Duration::from_millis(1) {
            return None;
        }
        if !self.names.contains_key(name) && self.names.len() >= NAMES {
            self.names.retain(|_, window| now.since(window.began) < WINDOW * 2);
            if self.names.len() >= NAMES {
                return None;
            }
        }
        let fresh = Window { began: now, waited: Duration::ZERO, warned: None, waiting: 0 };
        let window = self.names.entry(name.clone()).or_insert(fresh);
        // A wait counts where it ended; no wait counts for more than a window.
        window.waited += waited.min(WINDOW);
        let age = now.since(window.began);
        if age < WINDOW {
            return None;
        }
        let waiting = window.waited.as_micros() / age.as_micros().max(1);
        window.waiting = u64::try_from(waiting).unwrap_or(u64::MAX);
        (window.began, window.waited) = (now, Duration::ZERO);
        let is_news = window.warned.is_none_or(|warned| now.since(warned) >= QUIET);
        if window.waiting < HOT || !is_news {
            return None;
        }
        window.warned = Some(now);
        Some(window.waiting)
    }

    /// The names that begin so and were hot in their last window, hottest first.
    pub(super) fn hot(&self, prefix: &str) -> Vec<(LockName, u64)> {
        let hot = |window: &Window| window.waiting >= HOT;
        let found = self.names.iter().filter(|(name, window)| name.as_str().starts_with(prefix) && hot(window));
        let mut found: Vec<_> = found.map(|(name, window)| (name.clone(), window.waiting)).collect();
        found.sort_by(|one, two| two.1.cmp(&one.1).then_with(|| one.0.cmp(&two.0)));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_many_wait_for_is_hot_and_told_once() {
        let mut now = Moment::from_nanos(1);
        let (name, mut contention) = (LockName::new("orders/1").unwrap(), Contention::default());
        let mut told = Vec::new();
        for _ in 0..300 {
            now = now.plus(Duration::from_millis(100));
            // Ten a second that waited a second each: ten wait on average.
            told.extend(contention.waited(&name, Duration::from_secs(1), now));
        }
        assert_eq!(told, [10]);
        assert_eq!(contention.hot("orders/"), [(name.clone(), 10)]);
        assert!(contention.hot("users/").is_empty());
        for at in 0..2 * NAMES {
            let other = LockName::new(format!("other/{at}")).unwrap();
            contention.waited(&other, Duration::from_millis(2), now);
        }
        assert!(contention.names.len() <= NAMES);
    }
}
