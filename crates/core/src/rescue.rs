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
use std::collections::BTreeMap;
use std::sync::{Mutex, Weak};
use std::time::Duration;
use tokio::sync::Notify;

/// Work may lie with its caller for one to two of these.
const LOOK: Duration = Duration::from_millis(20);

/// Work that can go on without its caller.
pub(crate) trait Moves: Send + Sync {
    /// Goes on in a task of the client's, from now on or from the end of the poll that is under way.
    fn move_over(&self);

    /// Whether it was told to.
    fn has_moved(&self) -> bool;
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
    work: BTreeMap<u64, Weak<dyn Moves>>,
    grants: BTreeMap<Over, Weak<dyn Lapses>>,
    numbers: u64,
    /// The last number at the last look.
    seen: u64,
    /// When there will be another look.
    next: Next,
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
        let number = lying.numbers;
        lying.work.insert(number, work);
        let is_soon = matches!(std::mem::replace(&mut lying.next, Next::Soon), Next::Soon);
        drop(lying);
        if !is_soon {
            self.earlier.notify_one();
        }
        number
    }

    pub(crate) fn left(&self, number: u64) {
        lock(&self.lying).work.remove(&number);
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
        let first_new = lying.seen.saturating_add(1);
        let newer = lying.work.split_off(&first_new);
        let work = std::mem::replace(&mut lying.work, newer).into_values().collect();
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
            found.work.iter().filter_map(Weak::upgrade).for_each(|work| work.move_over());
            found.grants.iter().filter_map(Weak::upgrade).for_each(|grant| grant.lapse());
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
