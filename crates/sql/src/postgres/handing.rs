//! Handing a lock on: the release itself gives it to the first who waits.

use super::notice::{Waiting, hex};
use super::statement::Value;
use super::store::{Store, number};
use crate::bundle::{Way, own};
use crate::failure::{Cause, Failure};
use fencelock_core::{Claim, ClaimId, Error, FencingToken, LockName, Result};
use sqlx::Row as _;
use sqlx::postgres::PgRow;

/// How often a lock is handed on before it is free for all: who does not tell of itself, behind a pooler, in an older
/// version or by a single try, must get its chance. All who wait ask then, one statement each.
const MOST: i64 = 16;

/// What is known of who waits when a lock is given back.
#[derive(Default)]
struct Heads {
    /// The token of the hold that is given back, and of the one before as far as it is known.
    tokens: Option<(i64, i64)>,
    waiting: Vec<Waiting>,
    /// Whether others were told of the claim that gives it back.
    told: bool,
    passed: i64,
}

impl Store {
    /// Frees the lock if the claim has it, or hands it on.
    pub(super) async fn give_up(
        &self,
        claim: &Claim,
        token: Option<FencingToken>,
        operation: &'static str,
    ) -> Result<bool> {
        self.give_on((claim.name(), claim.id()), Some(claim), token, 0, operation).await
    }

    /// The same after so many handovers in a row, or more where the claim knows of more. Together with others if the call is
    /// the claim's own.
    async fn give_on(
        &self,
        (name, id): (&LockName, ClaimId),
        claim: Option<&Claim>,
        token: Option<FencingToken>,
        passed: i64,
        operation: &'static str,
    ) -> Result<bool> {
        let heads = self.heads(name, id, token, passed).unwrap_or_default();
        if heads.told || !heads.waiting.is_empty() {
            match self.hand(name, id, token, &heads).await {
                Ok(done) => return Ok(done),
                // It is the lock that must go, whoever gets it.
                Err(failure) if failure.not_done && !failure.reopen => {
                    tracing::debug!(target: "fencelock", engine = "postgres", error = %failure.error, "not handed on");
                }
                Err(failure) => return Err(failure.at("postgres", operation).into()),
            }
        }
        let alone = async {
            let freed = match self.free_row(name, id, token, true).await {
                // Whoever waits looks by itself.
                Err(failure) if failure.cause == Cause::Full => self.free_row(name, id, token, false).await,
                freed => freed,
            };
            freed.map_err(|failure| Error::from(failure.at("postgres", operation)))
        };
        let freed = match claim {
            Some(claim) => match self.together.free(claim, token, own(claim, operation), operation).await? {
                Way::Answered(freed) => freed,
                Way::Alone(trip) => trip.run(own(claim, operation), alone).await?,
            },
            None => alone.await?,
        };
        if let (true, Some(ears), Some((token, since))) = (freed, &self.ears, heads.tokens) {
            ears.has_freed(&hex(name.as_str().as_bytes()), since, token);
        }
        Ok(freed)
    }

    /// A lock that was handed on to a claim of ours that wants it no more.
    pub(super) async fn give_back(&self, name: &LockName, id: ClaimId, token: i64, passed: i64) -> Result<bool> {
        let token = FencingToken::new(u64::try_from(token).unwrap_or(0));
        self.give_on((name, id), None, Some(token), passed, "release").await
    }

    fn heads(&self, name: &LockName, id: ClaimId, token: Option<FencingToken>, least: i64) -> Option<Heads> {
        let ears = self.ears.as_ref()?;
        ears.listener()?;
        let told = ears.places().is_told(id);
        let place = ears.find(id);
        let (since, passed) = place.map_or((None, 0), |place| {
            let state = place.state();
            (state.since, state.passed)
        });
        let passed = passed.max(least);
        let token = token.and_then(|token| i64::try_from(token.get()).ok());
        let tokens = token.map(|token| (token, since.unwrap_or(token)));
        let may_hand = tokens.filter(|_| passed < MOST);
        let head = |(_, since)| ears.heads(&hex(name.as_str().as_bytes()), id, since);
        Some(Heads { tokens, waiting: may_hand.map(head).unwrap_or_default(), told, passed })
    }

    async fn hand(
        &self,
        name: &LockName,
        id: ClaimId,
        token: Option<FencingToken>,
        heads: &Heads,
    ) -> Result<bool, Failure> {
        let (own, written) = (id.to_bytes(), hex(name.as_str().as_bytes()));
        let all = &heads.waiting;
        let numbers = |of: fn(&Waiting) -> i64| Value::ManyNumbers(all.iter().map(of).collect());
        let bytes = |of: fn(&Waiting) -> Vec<u8>| Value::ManyBytes(all.iter().map(of).collect());
        let values = vec![
            Value::Bytes(name.as_str().as_bytes()),
            Value::Bytes(&own),
            Value::Text(Some(&self.channel)),
            Value::Flag(heads.told),
            Value::Number(heads.passed),
            bytes(|waiting| waiting.id.to_bytes().to_vec()),
            numbers(|waiting| number(waiting.id)),
            numbers(|waiting| waiting.listener),
            numbers(|waiting| waiting.round),
            numbers(|waiting| waiting.ttl),
            numbers(|waiting| waiting.delay),
            numbers(|waiting| waiting.reserve),
            numbers(|waiting| waiting.least_token),
            bytes(|waiting| waiting.holder.clone().into_bytes()),
            bytes(|waiting| waiting.note.as_ref().map_or_else(Vec::new, |note| format!("n{note}").into_bytes())),
        ];
        let values = values
            .into_iter()
            .chain([Value::Text(self.opening.secret.as_deref())])
            .chain(within(token).map(Value::Number))
            .collect();
        let ready = self.opening.ready(&self.statements.hand, values);
        let seat = self.commands.seat().await.map_err(Failure::before)?;
        // A second answer cannot tell what the first had done.
        let rows = seat.send_if(ready, |rows| is_done(rows)).await?;
        if let Some(ears) = &self.ears {
            if is_done(&rows) {
                // Those before the one who got it were not there any more; if nobody did, all were not.
                let place = rows.first().and_then(|row| row.try_get::<Option<i64>, _>("place").ok().flatten());
                let upto = place.map_or(all.len(), |place| usize::try_from(place).unwrap_or(0));
                ears.dead(&written, all.iter().take(upto).map(|waiting| waiting.id));
            }
            ears.places().over(id);
        }
        Ok(is_done(&rows))
    }

    async fn free_row(
        &self,
        name: &LockName,
        id: ClaimId,
        token: Option<FencingToken>,
        tells: bool,
    ) -> Result<bool, Failure> {
        let id = id.to_bytes();
        let [least, largest] = within(token);
        let values = vec![
            Value::Bytes(name.as_str().as_bytes()),
            Value::Bytes(&id),
            Value::Text(tells.then_some(self.channel.as_str())),
            Value::Text(self.opening.secret.as_deref().filter(|_| tells)),
            Value::Number(least),
            Value::Number(largest),
        ];
        let ready = self.opening.ready(&self.statements.free, values);
        let seat = self.commands.seat().await.map_err(Failure::before)?;
        let rows = seat.send_if(ready, |rows| !rows.is_empty()).await?;
        // Others wait for what this client holds: the next release can hand it on.
        let told = |row: &PgRow| row.try_get::<Option<String>, _>("told").ok().flatten().is_some();
        if let Some(ears) = self.ears.as_ref().filter(|_| rows.first().is_some_and(told)) {
            ears.start();
        }
        Ok(!rows.is_empty())
    }
}

/// The least token and the largest of the hold that ends: the one that is known, or any.
pub(super) fn within(token: Option<FencingToken>) -> [i64; 2] {
    token.map_or([i64::MIN, i64::MAX], |token| [token.as_i64(); 2])
}

fn is_done(rows: &[PgRow]) -> bool {
    rows.first().is_some_and(|row| row.try_get("done").unwrap_or(false))
}
