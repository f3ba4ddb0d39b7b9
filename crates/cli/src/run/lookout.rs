//! Learns of a lock that was taken away sooner than the next renewal would tell, and who has one that was not granted.

use fencelock::{HolderInfo, LockClient, LockGuard, LockMonitor};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// The longest pause between two looks.
const LONGEST: Duration = Duration::from_millis(500);
/// The longest that one look may take.
const ANSWER: Duration = Duration::from_secs(5);
/// What is allowed for the answers of a service that is not away: to two looks, or to a renewal.
const ANSWERS: Duration = Duration::from_secs(1);

/// How often the service is asked who holds the lock.
pub(super) fn pace(ttl: Duration) -> Duration {
    (ttl / 6).clamp(Duration::from_millis(10), LONGEST)
}

/// How long a holder that reaches the service takes, at the most, to hear that its lock was taken away.
///
/// An engine that [tells of a loss](fencelock::Capability::PushLoss) does so sooner.
pub(super) fn notice(client: &LockClient, ttl: Duration) -> Duration {
    let next = if tells_free_from_unknown(client) { pace(ttl) } else { pace(ttl).max(ttl / 3) };
    next.saturating_add(ANSWERS)
}

/// Returns once the service says, twice in a row, that nobody or another holds
/// what the guard believes to hold. Without an answer nothing is known.
///
/// # Cancel safety
/// Dropping the future leaves nothing behind.
pub(super) async fn taken_away(client: &LockClient, guard: &LockGuard, ttl: Duration) {
    loop {
        sleep(pace(ttl)).await;
        if is_taken(client, guard).await {
            return;
        }
    }
}

/// Whether the service says so now.
///
/// # Cancel safety
/// Dropping the future leaves nothing behind.
pub(super) async fn is_taken(client: &LockClient, guard: &LockGuard) -> bool {
    let hold = guard.monitor();
    // The second look is for an answer that was on its way while something changed.
    is_gone(client, guard, &hold).await && is_gone(client, guard, &hold).await
}

/// Why a lock was not granted that nobody holds, as far as one short look shows.
///
/// # Cancel safety
/// Dropping the future leaves nothing behind.
pub(super) async fn without_holder(client: &LockClient, name: &str) -> Option<&'static str> {
    match timeout(ANSWERS, client.inspect(name)).await {
        Ok(Ok(None)) => Some(
            "nobody holds it now, but it was not free: just given back, kept closed by a lock delay, or a transaction's",
        ),
        _ => None,
    }
}

async fn is_gone(client: &LockClient, guard: &LockGuard, hold: &LockMonitor) -> bool {
    let Ok(Ok(holder)) = timeout(ANSWER, client.inspect(guard.name().as_str())).await else { return false };
    let is_another = |holder: &HolderInfo| holder.claim.is_some_and(|claim| claim != guard.claim_id());
    let is_gone = holder.as_ref().map_or_else(|| tells_free_from_unknown(client), is_another);
    hold.is_held() && is_gone
}

/// Whether the engine's word that nobody holds a lock can be relied on.
///
/// Redlock says so too when a node of the hold's majority does not answer, and
/// the hold may well outlast that. Its word that another holds the lock is good,
/// and so is its answer to a renewal, a third of the ttl after the last one.
fn tells_free_from_unknown(client: &LockClient) -> bool {
    client.guarantees().engine() != "redlock"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_frequent_and_bounded() {
        assert_eq!(pace(Duration::from_secs(30)), LONGEST);
        assert_eq!(pace(Duration::from_secs(1)), Duration::from_millis(166) + Duration::from_nanos(666_666));
        assert_eq!(pace(Duration::from_millis(50)), Duration::from_millis(10));
    }

    #[tokio::test]
    async fn a_forced_release_is_heard_of_in_time() {
        let client = fencelock::connect("memory:").await.unwrap();
        let ms = Duration::from_millis;
        assert_eq!(notice(&client, Duration::from_secs(30)), ms(1_500));
        assert_eq!(notice(&client, ms(600)), ms(1_100));
    }

    #[tokio::test]
    async fn another_holder_or_none_is_noticed_and_our_own_is_not() {
        let client = fencelock::connect("memory:").await.unwrap();
        let guard = client.acquire("n").await.unwrap();
        let taken = taken_away(&client, &guard, Duration::from_millis(60));
        assert!(timeout(Duration::from_millis(200), taken).await.is_err(), "it is ours");
        assert!(client.force_release("n").await.unwrap());
        // Whichever comes first: the guard may be told before us.
        tokio::select! {
            () = taken_away(&client, &guard, Duration::from_millis(60)) => {}
            _ = guard.lost() => {}
            () = sleep(Duration::from_secs(5)) => panic!("nobody noticed"),
        }
    }
}
