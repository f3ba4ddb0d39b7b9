//! Waiting with a limit, without a timer where one can be made later.

use crate::Claim;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use tokio::time::{Instant, Sleep, sleep_until};

/// What `work` comes to, or none if it is not done by `deadline`.
///
/// `of` is the claim of the call that this is part of, where it runs in that call's own future and not in a task beside it,
/// and `deadline` is [far](Claim::far): while the call is [watched](Claim::is_watched) no timer is made. Most calls are answered
/// long before.
///
/// # Cancel safety
/// That of `work`.
pub async fn by<F: Future>(deadline: Instant, of: Option<&Claim>, work: F) -> Option<F::Output> {
    timed(|| sleep_until(deadline), of, work).await
}

/// The same with a timer of the caller's, which is made when it is needed, and must be far.
pub(crate) async fn timed<F: Future>(timer: impl FnOnce() -> Sleep, of: Option<&Claim>, work: F) -> Option<F::Output> {
    // Few calls come to need it: the others have no room for it.
    let (mut work, mut timer, mut set) = (pin!(work), Some(timer), None);
    poll_fn(|cx| {
        if let Poll::Ready(outcome) = work.as_mut().poll(cx) {
            return Poll::Ready(Some(outcome));
        }
        if set.is_none() {
            if of.is_some_and(Claim::is_watched) {
                return Poll::Pending;
            }
            set = timer.take().map(|timer| Box::pin(timer()));
        }
        set.as_mut().map_or(Poll::Pending, |timer| timer.as_mut().poll(cx).map(|()| None))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rescue::Moves;
    use crate::{LockName, Terms};
    use std::sync::Weak;
    use std::time::Duration;
    use tokio::time::sleep;

    struct Nothing;

    impl Moves for Nothing {
        fn move_over(&self) {}
    }

    fn watched() -> Claim {
        let claim = Terms::new(LockName::new("a").unwrap(), Duration::from_secs(1)).mint().unwrap();
        let moves: Weak<dyn Moves> = Weak::<Nothing>::new();
        claim.driven_by(Some(moves));
        claim
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_watched_is_timed_when_it_is_polled_again_elsewhere() {
        let begun = Instant::now();
        let claim = watched();
        let of = claim.far(Duration::from_secs(1));
        let mut lying = pin!(by(begun + Duration::from_secs(1), of, std::future::pending::<()>()));
        assert!(tokio::time::timeout(Duration::from_secs(60), &mut lying).await.is_err(), "nobody rings");
        claim.moves_over();
        assert!(tokio::time::timeout(Duration::from_secs(60), &mut lying).await.unwrap().is_none());
        assert_eq!(begun.elapsed(), Duration::from_secs(60), "its time was over");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_near_or_nobodys_is_timed_at_once() {
        let claim = watched();
        for (limit, of) in [(Duration::from_millis(99), Some(&claim)), (Duration::from_secs(2), None)] {
            let begun = Instant::now();
            let of = of.and_then(|claim| claim.far(limit));
            assert!(by(begun + limit, of, sleep(Duration::from_secs(9))).await.is_none());
            assert_eq!(begun.elapsed(), limit);
        }
        assert_eq!(by(Instant::now(), None, async { 7 }).await, Some(7), "what is done is done");
    }
}
