//! What a node answers, read.

use crate::member::odd_answer;
use fencelock_core::FencingToken;
use fencelock_redis::NodeFailure;
use fencelock_redis::redis::Value;
use std::sync::Arc;
use std::time::Duration;

/// What one node answered an acquire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Vote {
    /// The claim holds here; with the token that is noted with it, if any. Where that is new the counter may have been smaller.
    Granted { counter: u64, token: Option<FencingToken> },
    /// Another has this node's part.
    Held(Part),
    /// The id is dead here.
    Dead,
    /// The node has lost its counter, so it takes no part.
    Unseeded,
}

/// What another has on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) counter: u64,
    /// For how long still; a key without an end has none.
    pub(crate) left: Option<Duration>,
    /// Empty for another program's key, [`CLOSED`](crate::keys::CLOSED) after a forced release.
    pub(crate) id: Arc<str>,
    pub(crate) holder: Option<Arc<str>>,
    /// Without a token it is an attempt that is under way, or given up. With one it may be too, on a minority.
    pub(crate) has_token: bool,
}

/// What one node answered a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The counter was smaller; `holds` says whether the claim holds here, where the token was then noted.
    Accepted { holds: bool },
    /// The counter is not smaller.
    Refused { counter: u64, holds: bool },
    /// There is no counter.
    Unseeded,
}

/// What one node answered a renewal of one hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewed {
    Yes,
    No,
    /// The claim holds here, and the hold's token was not noted.
    Unnoted,
}

/// What one node answered a forced release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Forced {
    /// The claim of this id held, and holds no more.
    Freed { id: Arc<str>, token: Option<FencingToken> },
    /// Nobody held.
    Nothing,
    /// Another program's key, which stays.
    Foreign,
}

impl Vote {
    /// What the node told of its counter.
    pub(crate) fn counter(&self) -> Option<u64> {
        match self {
            Self::Granted { counter, .. } | Self::Held(Part { counter, .. }) => Some(*counter),
            Self::Dead | Self::Unseeded => None,
        }
    }

    /// Whether the claim holds here, without `token`.
    pub(crate) fn lacks(&self, token: FencingToken) -> bool {
        matches!(self, Self::Granted { token: noted, .. } if *noted != Some(token))
    }
}

/// Of an acquire that brought `guess` along.
pub(crate) fn vote(value: &Value, guess: Option<FencingToken>) -> Result<Vote, NodeFailure> {
    if *value == Value::Int(1) {
        // The counter was smaller, by how much is of no use to anyone.
        let token = guess.ok_or_else(odd_answer)?;
        return Ok(Vote::Granted { counter: token.get().saturating_sub(1), token: Some(token) });
    }
    match parts(value)? {
        [Value::Int(1), counter, noted] => Ok(Vote::Granted { counter: number(counter)?, token: token(noted)? }),
        [Value::Int(0), counter, Value::Int(left), id, holder, noted] => Ok(Vote::Held(Part {
            counter: number(counter)?,
            left: duration(*left),
            id: text(id).unwrap_or_default(),
            holder: text(holder).filter(|holder| !holder.is_empty()),
            has_token: token(noted)?.is_some(),
        })),
        [Value::Int(-1)] => Ok(Vote::Dead),
        [Value::Int(-2)] => Ok(Vote::Unseeded),
        _ => Err(odd_answer()),
    }
}

pub(crate) fn reply(value: &Value) -> Result<Reply, NodeFailure> {
    match parts(value)? {
        [Value::Int(1), _, Value::Int(holds)] => Ok(Reply::Accepted { holds: *holds == 1 }),
        [Value::Int(0), counter, Value::Int(holds)] => {
            Ok(Reply::Refused { counter: number(counter)?, holds: *holds == 1 })
        }
        [Value::Int(-2)] => Ok(Reply::Unseeded),
        _ => Err(odd_answer()),
    }
}

/// One answer for each of `count` holds.
pub(crate) fn renewed(value: &Value, count: usize) -> Result<Vec<Renewed>, NodeFailure> {
    let answers = parts(value)?;
    if answers.len() != count {
        return Err(odd_answer());
    }
    let read = |answer: &Value| match answer {
        Value::Int(1) => Ok(Renewed::Yes),
        Value::Int(0) => Ok(Renewed::No),
        Value::Int(2) => Ok(Renewed::Unnoted),
        _ => Err(odd_answer()),
    };
    answers.iter().map(read).collect()
}

pub(crate) fn forced(value: &Value) -> Result<Forced, NodeFailure> {
    match parts(value)? {
        [Value::Int(1), id, noted] => Ok(Forced::Freed { id: text(id).unwrap_or_default(), token: token(noted)? }),
        [Value::Int(0)] => Ok(Forced::Nothing),
        [Value::Int(-1)] => Ok(Forced::Foreign),
        _ => Err(odd_answer()),
    }
}

pub(crate) fn parts(value: &Value) -> Result<&[Value], NodeFailure> {
    match value {
        Value::Array(parts) => Ok(parts),
        _ => Err(odd_answer()),
    }
}

/// Milliseconds left; a key without an end has none.
pub(crate) fn duration(left: i64) -> Option<Duration> {
    u64::try_from(left).ok().map(Duration::from_millis)
}

pub(crate) fn text(value: &Value) -> Option<Arc<str>> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into()),
        _ => None,
    }
}

fn number(value: &Value) -> Result<u64, NodeFailure> {
    text(value).and_then(|text| text.parse().ok()).ok_or_else(odd_answer)
}

/// The token, where one is noted.
pub(crate) fn token(value: &Value) -> Result<Option<FencingToken>, NodeFailure> {
    match text(value).filter(|text| !text.is_empty()) {
        Some(text) => text.parse().map(|token| Some(FencingToken::new(token))).map_err(|_| odd_answer()),
        None => Ok(None),
    }
}
