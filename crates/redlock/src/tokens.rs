//! Quorum tokens: a number counts once a majority of counters has accepted it as larger than any before.
//!
//! With `t` one more than the largest counter of a majority, each node is asked to
//! raise its counter to `t` if it is smaller. Two majorities share a node, and a node
//! accepts a number once: so no two grants have the same, and a grant that begins
//! after another has ended reads a counter that is at least the other's token.
//! `tests/model.rs` checks it.

use crate::keys::NameKeys;
use crate::set::{Set, lock};
use crate::votes::Reply;
use fencelock_core::{Error, ErrorKind, FencingToken, Result};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

/// From here on Lua's numbers would skip some.
const END: u64 = 1 << 53;

/// The largest number that this client has proposed in each shard where one is under way or failed.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    shards: Mutex<HashMap<u32, Arc<Shard>>>,
}

/// Held by the one whose proposal is under way.
type Shard = tokio::sync::Mutex<u64>;

impl Tokens {
    fn shard(&self, shard: u32) -> Arc<Shard> {
        Arc::clone(lock(&self.shards).entry(shard).or_default())
    }

    /// Forgets the shard if nobody else is at it: the counters tell as much as we know.
    fn done(&self, shard: u32) {
        let mut shards = lock(&self.shards);
        if shards.get(&shard).is_some_and(|entry| Arc::strong_count(entry) == 1) {
            shards.remove(&shard);
        }
    }

    /// Agrees on a token for the claim's hold; `heard` is the largest counter of a majority.
    ///
    /// # Cancel safety
    /// A proposal under way when the future is dropped may raise counters; its number is not proposed again.
    pub(crate) async fn agree(
        &self,
        set: &Arc<Set>,
        id: &str,
        keys: &NameKeys,
        heard: u64,
        limit: Duration,
        end: Instant,
    ) -> Result<FencingToken> {
        let shard = self.shard(keys.shard);
        let Ok(mut proposed) = timeout_at(end, shard.lock()).await else {
            return Err(late("other locks of the same shard were in the way"));
        };
        let mut largest = heard;
        let mut pause = Duration::from_millis(1);
        loop {
            let next = largest.max(*proposed).saturating_add(1);
            if next >= END {
                return Err(Error::new(ErrorKind::Engine, "no token is left below 2^53: a counter was tampered with"));
            }
            *proposed = next;
            match round(set, id, keys, FencingToken::new(next), limit, end).await? {
                None => break,
                Some(counter) => largest = counter,
            }
            if Instant::now() + pause >= end {
                return Err(late("others proposed tokens in the same shard all the time"));
            }
            // Those who propose against each other must not meet again at once.
            sleep(pause.mul_f64(fastrand::f64())).await;
            pause = (pause * 2).min(Duration::from_millis(50));
        }
        let token = FencingToken::new(*proposed);
        drop(proposed);
        drop(shard);
        self.done(keys.shard);
        Ok(token)
    }
}

/// One proposal: nothing if a majority accepted it while the claim held a majority, else the largest
/// counter of a majority.
///
/// That the claim still holds is asked again here: what it was granted before may have been
/// taken from it meanwhile, by a forced release or a clock, and be another's by now.
async fn round(
    set: &Arc<Set>,
    id: &str,
    keys: &NameKeys,
    token: FencingToken,
    limit: Duration,
    end: Instant,
) -> Result<Option<u64>> {
    let mut replies = set.propose(id, keys, token, limit);
    let (majority, mut accepted, mut held, mut answered, mut largest) = (set.majority(), 0, 0, 0, token.get());
    let mut unnoted = Vec::new();
    while let Some((at, reply)) = replies.next_by(end).await {
        match reply {
            Ok(Reply::Accepted { holds }) => {
                accepted += 1;
                answered += 1;
                held += usize::from(holds);
                // Its acquire may be on its way there.
                unnoted.extend((!holds).then_some(at));
            }
            Ok(Reply::Refused { counter, holds }) => {
                answered += 1;
                held += usize::from(holds);
                largest = largest.max(counter);
                unnoted.push(at);
            }
            Ok(Reply::Unseeded) | Err(_) => {}
        }
        if accepted >= majority && held >= majority {
            // The hold's token is noted wherever the hold is, so that any majority of its nodes can renew it.
            unnoted.into_iter().for_each(|at| set.confirm(at, id, &keys.lock, token));
            if replies.left() > 0 {
                let (set, id, lock) = (Arc::clone(set), id.to_owned(), keys.lock.clone());
                tokio::spawn(async move {
                    while let Some((at, reply)) = replies.next().await {
                        if !matches!(reply, Ok(Reply::Accepted { holds: true } | Reply::Unseeded)) {
                            set.confirm(at, &id, &lock, token);
                        }
                    }
                });
            }
            return Ok(None);
        }
        if accepted + replies.left() < majority && answered >= majority {
            return Ok(Some(largest));
        }
    }
    let size = set.size();
    Err(late(format!(
        "{answered} of {size} nodes answered the proposal of a token, and {held} still had the claim's hold"
    )))
}

fn late(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Unavailable, message)
}
