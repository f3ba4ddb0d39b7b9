//! Quorum tokens: a number counts once a majority of counters has accepted it as larger than any before.
//!
//! A node accepts a number if its counter is smaller, and raises the counter to it. Two majorities share
//! a node, and a node accepts a number once: so no two grants have the same. A grant that begins after another
//! has ended meets, on some node of its majority, a counter that is at least the other's token, and is
//! accepted there only if it is larger. Neither leans on how a number was found. So a client that knows a
//! recent counter of the shard sends one more along with its acquire, and each node that grants its part
//! accepts or refuses the number in the same step: one round. A wrong guess is only refused.
//!
//! Where a majority granted the lock and did not accept the number, or none was sent, there is a second round:
//! with `t` one more than the largest counter of a majority, and than all that this client has proposed, each
//! node is asked to raise its counter to `t`. `tests/model.rs` checks both. A node that was re-seeded is right
//! with either: all numbers of an attempt are sent in its time, and counted in its time.
//!
//! # What a noted token says
//! An accepted number is noted with the part of the lock, and those who read it there must bear one of an attempt
//! that comes to nothing, as they had to bear one of a second round that a minority accepted:
//! - `tally`, of the claim's own parts: one that this attempt brought along is nobody's before a majority has
//!   noted it, and is replaced at once. Another is that of an earlier attempt, under which the claim may hold,
//!   so all are heard first.
//! - `tally`, of another's parts: on a majority, one of them with a number, they are a hold or are about to be one. On a
//!   minority, where a silent node may have the rest, they are taken for a hold if they are still there at the next
//!   try: an attempt that failed is undone by then.
//! - `holders`, and so inspect and list: it takes a majority of the parts; the token may be one that is replaced
//!   a moment later. Whoever releases by it means the claim that has it, and the nodes compare its id.
//! - `force.lua`: says what it has ended. It raises the counter too, far enough: an attempt of which it ended a part
//!   before another part was there does not get its token in one round, if the release had come to where that part then is,
//!   and the second round asks again what it holds. A part that a node's clock has ended is not asked about in one round.
//! - `renew.lua`: a smaller number of the same claim is one that was replaced, and counts as none. The token itself
//!   is on no majority of parts that a late copy of the acquire took after another held the lock: a
//!   node that accepted the other's token refuses it, and is not told to note it.
//! - `confirm.lua` and `propose.lua` only ever replace it with a larger one of the same claim.

use crate::answers::Answers;
use crate::keys::NameKeys;
use crate::numbers::Numbers;
use crate::set::{Set, lock};
use crate::tally::Tally;
use crate::votes::{Reply, Vote};
use fencelock_core::{Claim, Error, ErrorKind, FencingToken, Result};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

#[derive(Debug, Default)]
pub(crate) struct Tokens {
    pub(crate) numbers: Numbers,
    /// Of each shard where a second round is under way.
    turns: Mutex<HashMap<u32, Turn>>,
}

/// Held by the one whose second round is under way.
type Turn = Arc<tokio::sync::Mutex<()>>;

impl Tokens {
    fn turn(&self, shard: u32) -> Turn {
        Arc::clone(lock(&self.turns).entry(shard).or_default())
    }

    /// Forgets the shard if nobody else is at it.
    fn done(&self, shard: u32) {
        let mut turns = lock(&self.turns);
        if turns.get(&shard).is_some_and(|entry| Arc::strong_count(entry) == 1) {
            turns.remove(&shard);
        }
    }

    /// Keeps what the nodes told of their counters.
    pub(crate) fn hear(&self, shard: u32, tally: &Tally) {
        if let Some(counter) = tally.heard() {
            self.numbers.heard(shard, counter);
        }
    }

    /// Notes the hold's token where the claim holds without it: on the nodes `lacking` it, and those whose answers to the
    /// acquire come late, unless their counters were as large by then: there another may have had the lock in between, and the
    /// token is noted once a majority has renewed it.
    pub(crate) fn note(
        self: &Arc<Self>,
        set: &Arc<Set>,
        claim: &Claim,
        keys: &Arc<NameKeys>,
        token: FencingToken,
        lacking: impl Iterator<Item = usize>,
        late: Answers<Vote>,
    ) {
        lacking.for_each(|at| set.confirm(at, &claim.id().to_string(), &keys.lock, token));
        let (tokens, set) = (Arc::clone(self), Weak::clone(&set.itself));
        let (id, keys) = (claim.id(), Arc::clone(keys));
        late.later(move |at, vote| {
            let Ok(vote) = vote else { return };
            if let Some(counter) = vote.counter() {
                tokens.numbers.heard(keys.shard, counter);
            }
            let is_overtaken = vote.counter().is_some_and(|counter| counter >= token.get());
            if vote.lacks(token)
                && !is_overtaken
                && let Some(set) = set.upgrade()
            {
                set.confirm(at, &id.to_string(), &keys.lock, token);
            }
        });
    }

    /// Agrees on a token for the claim's hold in a round of its own; `heard` is the largest counter of a majority.
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
        let turn = self.turn(keys.shard);
        let token = match timeout_at(end, turn.lock()).await {
            Ok(_turn) => self.propose(set, id, keys, heard, limit, end).await,
            Err(_) => Err(late("other locks of the same shard were in the way")),
        };
        drop(turn);
        self.done(keys.shard);
        token
    }

    async fn propose(
        &self,
        set: &Arc<Set>,
        id: &str,
        keys: &NameKeys,
        mut heard: u64,
        limit: Duration,
        end: Instant,
    ) -> Result<FencingToken> {
        let mut pause = Duration::from_millis(1);
        loop {
            let Some(token) = self.numbers.next(keys.shard, heard) else {
                return Err(Error::new(ErrorKind::Engine, "no token is left below 2^53: a counter was tampered with"));
            };
            match round(set, id, keys, token, limit, end).await? {
                None => return Ok(token),
                Some(counter) => heard = counter,
            }
            if Instant::now() + pause >= end {
                return Err(late("others proposed tokens in the same shard all the time"));
            }
            // Those who propose against each other must not meet again at once.
            sleep(pause.mul_f64(fastrand::f64())).await;
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }
}

/// One proposal: nothing if a majority accepted it while the claim held a majority, else the largest
/// counter of a majority.
///
/// That the claim still holds is asked again here: what it was granted before may have been
/// taken from it meanwhile, by a forced release or a clock, and be another's by now. (One round does not ask, and may be
/// told of a majority that it no longer has; it accepts no number where the release or another's token was first.)
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
            Ok(Reply::Unseeded) => {}
            Err(_) => unnoted.push(at),
        }
        if accepted >= majority && held >= majority {
            // The hold's token is noted wherever the hold is, so that any majority of its nodes can renew it.
            unnoted.into_iter().for_each(|at| set.confirm(at, id, &keys.lock, token));
            let (set, id, key) = (Weak::clone(&set.itself), id.to_owned(), keys.lock.clone());
            replies.later(move |at, reply| {
                if !matches!(reply, Ok(Reply::Accepted { holds: true } | Reply::Unseeded))
                    && let Some(set) = set.upgrade()
                {
                    set.confirm(at, &id, &key, token);
                }
            });
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
