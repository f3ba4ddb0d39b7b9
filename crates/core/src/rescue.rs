//! Takes over work, and takes back grants, that a caller leaves lying.
//!
//! Work of a client runs inside its caller's future, since a task of its own costs
//! a wake-up of another thread. A caller may stop polling, in an arm of a `select!`
//! that is not looked at, say, while its work has a turn, a connection or a place in
//! the server's queue for which others wait. So what is not done after a short
//! while goes on in a task of the client's; and a grant that nobody comes for is
//! undone when it is over, since a session, or a waiter who trusts it, would keep it.

use crate::sync::lock;
use crate::{Clock, Moment};
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, Weak};
use std::time::Duration;
use tokio::sync::Notify;

/// Work may lie with its caller for one to two of these.
const LOOK: Duration = Duration::from_millis(20);

/// Work that can go on without its caller.
pub(crate) trait Moves: Send + Sync {
    /// Goes on in a task of the client's, from now on or from the end of the poll that is under way.
    fn move_over(&self);
}

/// A grant that has not been taken.
pub(crate) trait Lapses: Send + Sync {
    /// Undoes it, unless it was taken meanwhile.
    fn lapse(&self);
}

/// When a grant is over, and a number that makes it unique.
pub(crate) type Over = (Moment, u64);

/// What lies with its callers, and for them.
#[derive(Default)]
pub(crate) struct Rescue {
    lying: Mutex<Lying>,
    earlier: Notify,
}

#[derive(Default)]
struct Lying {
    work: Work,
    grants: BTreeMap<Over, Weak<dyn Lapses>>,
    /// Of all that was begun.
    numbers: u64,
    /// The last number at the last look.
    seen: u64,
    /// When there will be another look.
    next: Next,
}

/// What lies with its callers, in the order in which it came. It is entered and left for every lock, and nothing stays for
/// more than two looks, so that it needs no map.
#[derive(Default)]
struct Work {
    places: VecDeque<Option<Weak<dyn Moves>>>,
    /// The number of the first place.
    first: u64,
    /// The number after the last at the last look.
    seen: u64,
}

impl Work {
    fn next(&self) -> u64 {
        self.first.saturating_add(u64::try_from(self.places.len()).unwrap_or(u64::MAX))
    }

    fn enter(&mut self, work: Weak<dyn Moves>) -> u64 {
        let number = self.next();
        self.places.push_back(Some(work));
        number
    }

    fn leave(&mut self, number: u64) -> Option<Weak<dyn Moves>> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let left = self.places.get_mut(at)?.take();
        while let Some(None) = self.places.front() {
            self.places.pop_front();
            self.first = self.first.saturating_add(1);
        }
        left
    }

    /// What was there at the last look already.
    fn look(&mut self) -> Vec<Weak<dyn Moves>> {
        let old = usize::try_from(self.seen.saturating_sub(self.first)).unwrap_or(usize::MAX).min(self.places.len());
        let found = self.places.drain(..old).flatten().collect();
        self.first = self.first.max(self.seen);
        self.seen = self.next();
        found
    }
}

#[derive(Clone, Copy, Default)]
enum Next {
    /// After a short while.
    Soon,
    At(Moment),
    #[default]
    Never,
}

/// What a look has found.
#[derive(Default)]
struct Found {
    work: Vec<Weak<dyn Moves>>,
    grants: Vec<Weak<dyn Lapses>>,
}

impl Rescue {
    /// Watches over `work` until [`left`](Self::left), or until it was moved.
    pub(crate) fn entered(&self, work: Weak<dyn Moves>) -> u64 {
        let mut lying = lock(&self.lying);
        lying.numbers += 1;
        let number = lying.work.enter(work);
        let is_soon = matches!(std::mem::replace(&mut lying.next, Next::Soon), Next::Soon);
        drop(lying);
        if !is_soon {
            self.earlier.notify_one();
        }
        number
    }

    pub(crate) fn left(&self, number: u64) {
        let left = lock(&self.lying).work.leave(number);
        drop(left);
    }

    /// Keeps `grant` until it is [`taken`](Self::taken), or over at `end`.
    pub(crate) fn kept(&self, grant: Weak<dyn Lapses>, end: Moment) -> Over {
        let mut lying = lock(&self.lying);
        lying.numbers += 1;
        let over = (end, lying.numbers);
        lying.grants.insert(over, grant);
        let is_earlier = match lying.next {
            Next::Soon => false,
            Next::At(next) => end < next,
            Next::Never => true,
        };
        if is_earlier {
            lying.next = Next::At(end);
        }
        drop(lying);
        if is_earlier {
            self.earlier.notify_one();
        }
        over
    }

    pub(crate) fn taken(&self, over: &Over) {
        lock(&self.lying).grants.remove(over);
    }

    fn look(&self, now: Moment) -> (Found, Next) {
        let mut lying = lock(&self.lying);
        let work = lying.work.look();
        let later = lying.grants.split_off(&(now, u64::MAX));
        let grants = std::mem::replace(&mut lying.grants, later).into_values().collect();
        lying.next = if lying.seen != lying.numbers {
            Next::Soon
        } else {
            lying.grants.first_key_value().map_or(Next::Never, |(over, _)| Next::At(over.0))
        };
        lying.seen = lying.numbers;
        (Found { work, grants }, lying.next)
    }

    /// Looks for as long as anything is begun, and sleeps when nothing is.
    pub(crate) async fn rescue(&self, clock: &Clock) {
        loop {
            let (found, next) = self.look(clock.now());
            found.work.iter().filter_map(Weak::upgrade).for_each(|work| undisturbed(|| work.move_over()));
            found.grants.iter().filter_map(Weak::upgrade).for_each(|grant| undisturbed(|| grant.lapse()));
            match next {
                Next::Soon => tokio::time::sleep(LOOK).await,
                Next::At(moment) => {
                    tokio::select! {
                        () = tokio::time::sleep(moment.since(clock.now()).max(LOOK)) => {}
                        () = self.earlier.notified() => {}
                    }
                }
                Next::Never => self.earlier.notified().await,
            }
        }
    }
}

/// It runs callers' wakers and subscribers, and all other work relies on this task.
fn undisturbed(what: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(what)).is_err() {
        tracing::debug!(target: "fencelock", "a caller's waker or a subscriber has panicked");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    struct Nothing;

    impl Moves for Nothing {
        fn move_over(&self) {}
    }

    #[test]
    fn work_is_found_at_the_second_look_unless_it_has_left() {
        let (mut work, here) = (Work::default(), Arc::new(Nothing));
        let enter = |work: &mut Work| {
            let one: Weak<dyn Moves> = Arc::downgrade(&(Arc::clone(&here) as Arc<dyn Moves>));
            work.enter(one)
        };
        let (a, b, c) = (enter(&mut work), enter(&mut work), enter(&mut work));
        assert!(work.look().is_empty() && work.leave(b).is_some() && work.leave(b).is_none());
        let d = enter(&mut work);
        assert_eq!(work.look().len(), 2, "the first and the third");
        assert!(work.leave(a).is_none() && work.leave(c).is_none(), "taken over");
        assert!(work.leave(d).is_some() && work.places.is_empty());
        for number in [0, a, d, d + 1, u64::MAX] {
            assert!(work.leave(number).is_none());
        }
        let e = enter(&mut work);
        assert!(e > d && work.look().is_empty());
        assert_eq!((work.look().len(), work.look().len()), (1, 0));
    }
}
