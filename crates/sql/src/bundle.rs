//! Acquires, or releases, of one client that are ready at the same moment, in one statement.
//!
//! A commit costs the disk the same for one row as for many, and a statement costs client and server the way. Whoever finds
//! nothing under way asks by itself, at once; whoever comes while something is waits until that is back, and leaves with
//! all that wait. What takes long, behind another's transaction say, is not waited for.

use fencelock_core::group::{Alone, Asking, Group, Together, Turn, Unanswered};
use fencelock_core::{Claim, Error, ErrorKind, FencingToken, Request, Result, by};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The most locks in one statement: so it stays short.
pub(crate) const MOST: usize = 64;
/// For how long a statement keeps others waiting.
const SLOW: Duration = Duration::from_millis(5);

/// What a database does to many locks in one statement. None of those it is given at a time have the same name, and they are
/// in the order of their names, so that two clients do not wait for each other.
pub(crate) trait Many: Send + Sync + 'static {
    /// What one who asks for a lock is told.
    type Taken: Send + 'static;

    /// Whether there is another connection to go on when a statement takes long.
    const GOES_ON: bool;

    /// How long a request may take.
    fn limit(&self) -> Duration;

    /// Takes what may be taken.
    fn take(&self, asked: &[&Asked]) -> impl Future<Output = Sent<Self::Taken>> + Send;

    /// Frees what the claims have: whether they had it.
    fn free(&self, asked: &[&Asked]) -> impl Future<Output = Sent<bool>> + Send;
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verb {
    Take,
    Free,
}

/// A request that waits for others.
pub(crate) struct Asked {
    verb: Verb,
    pub(crate) claim: Claim,
    /// Under which it holds the lock, where that is known.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "it is compared where locks are handed on"))]
    pub(crate) token: Option<FencingToken>,
    until: Instant,
    under_way: Option<Request>,
}

/// What became of a statement.
pub(crate) enum Sent<A> {
    /// What each was told, in their order, and whether nothing may come of an earlier copy that was lost.
    Told(Vec<Told<A>>, bool),
    /// It was surely not done. One of them may be the reason, and the others are not to suffer for it: each asks by itself.
    #[cfg_attr(not(any(feature = "postgres", feature = "mysql")), allow(dead_code, reason = "a file has one writer"))]
    NotDone,
    /// It failed for all, and whether it was surely not done.
    Failed(Error, bool),
    /// Nothing was sent.
    NeverLeft(Error),
}

/// What one of several is told.
pub(crate) enum Told<A> {
    Answer(A),
    /// It was surely not done, and is to be asked for by itself.
    Apart,
    /// It failed, or what came of it is not known.
    Failed(Error),
}

/// How a request is to be made.
pub(crate) enum Way<'b, M: Many, A> {
    /// By itself, now.
    Alone(Trip<'b, M>),
    /// It was made with others.
    Answered(A),
}

/// The trip of one who asks by itself, for whom others may wait.
pub(crate) struct Trip<'b, M: Many>(Option<Alone<'b, Sender<M>>>);

impl<M: Many> Trip<'_, M> {
    /// One for whom nobody waits.
    pub(crate) const fn unshared() -> Self {
        Self(None)
    }

    /// Does what is to be done. Others wait until it is done, or takes long: 5 ms, and up to 40 where it is part of the call
    /// `of` a claim that lies in its caller's future, where it costs no timer.
    pub(crate) async fn run<F: Future>(self, of: Option<&Claim>, work: F) -> F::Output {
        let mut work = pin!(work);
        if M::GOES_ON
            && self.0.is_some()
            && let Some(outcome) = by(Instant::now() + SLOW, of, &mut work).await
        {
            return outcome;
        }
        if M::GOES_ON {
            drop(self);
        }
        work.await
    }
}

/// The claim if this is part of its own call, and not of an undo, which is nobody's.
pub(crate) fn own<'c>(claim: &'c Claim, operation: &str) -> Option<&'c Claim> {
    (operation != "abandon").then_some(claim)
}

/// What is told in the common way.
pub(crate) enum Answer<A> {
    Taken(A),
    Freed(bool),
}

/// Requests of one client.
pub(crate) struct Bundled<M: Many>(Group<Sender<M>>);

pub(crate) struct Sender<M>(Arc<M>);

impl<M: Many> Bundled<M> {
    pub(crate) fn new(many: M) -> Self {
        Self(Group::new(Sender(Arc::new(many))))
    }

    /// Asks how to take the lock; with others the answer comes at once. A range of tokens is asked for by itself.
    ///
    /// # Cancel safety
    /// A request that has not left when the future is dropped never does.
    pub(crate) async fn take(&self, claim: &Claim) -> Result<Way<'_, M, M::Taken>> {
        if claim.reserve() > 0 {
            return Ok(Way::Alone(Trip::unshared()));
        }
        match self.ask(Verb::Take, claim, None, Some(claim)).await.map_err(|e| e.with_operation("acquire"))? {
            Way::Answered(Answer::Taken(taken)) => Ok(Way::Answered(taken)),
            Way::Answered(Answer::Freed(_)) => Ok(Way::Alone(Trip::unshared())),
            Way::Alone(trip) => Ok(Way::Alone(trip)),
        }
    }

    /// Asks how to free the lock, in the same way. `of` is the claim if this is part of its own call.
    pub(crate) async fn free(
        &self,
        claim: &Claim,
        token: Option<FencingToken>,
        of: Option<&Claim>,
        operation: &'static str,
    ) -> Result<Way<'_, M, bool>> {
        match self.ask(Verb::Free, claim, token, of).await.map_err(|e| e.with_operation(operation))? {
            Way::Answered(Answer::Freed(freed)) => Ok(Way::Answered(freed)),
            Way::Answered(Answer::Taken(_)) => Ok(Way::Alone(Trip::unshared())),
            Way::Alone(trip) => Ok(Way::Alone(trip)),
        }
    }

    async fn ask(
        &self,
        verb: Verb,
        claim: &Claim,
        token: Option<FencingToken>,
        of: Option<&Claim>,
    ) -> Result<Way<'_, M, Answer<M::Taken>>> {
        let limit = self.0.sends().0.limit();
        let mut until = None;
        let asked = || {
            let until = *until.insert(Instant::now() + limit);
            Asked { verb, claim: claim.clone(), token, until, under_way: None }
        };
        // Both in one queue: whoever is told that it has its lock and gives it back at once meets the others again.
        let ticket = match self.0.join(0, asked) {
            Turn::Alone(trip) => return Ok(Way::Alone(Trip(Some(trip)))),
            Turn::Together(ticket) => ticket,
        };
        match ticket.answer(until.unwrap_or_else(Instant::now), of.and_then(|claim| claim.far(limit))).await {
            Ok(Told::Answer(answer)) => Ok(Way::Answered(answer)),
            Ok(Told::Apart) => Ok(Way::Alone(Trip::unshared())),
            Ok(Told::Failed(e)) => Err(e),
            Err(Unanswered::NeverLeft) => Err(unavailable(format!("all connections were busy for {limit:?}"))),
            Err(_) => Err(unavailable(format!("no answer in {limit:?}"))),
        }
    }
}

fn unavailable(message: String) -> Error {
    Error::new(ErrorKind::Unavailable, message)
}

/// The same for another who asked in the same statement.
fn copy(e: &Error) -> Error {
    Error::new(e.kind(), e.message().to_owned())
}

impl<M: Many> Together for Sender<M> {
    type Key = u16;
    type Asked = Asked;
    type Answer = Told<Answer<M::Taken>>;

    fn most(&self) -> usize {
        MOST
    }

    fn trips(&self) -> usize {
        1
    }

    fn kind(&self, asked: &Asked) -> u8 {
        asked.verb as u8
    }

    fn leaves(&self, asked: &mut Asked, now: Instant) -> bool {
        let leaves = now < asked.until;
        if leaves && asked.verb == Verb::Take {
            asked.under_way = Some(asked.claim.request());
        }
        leaves
    }

    async fn send(&self, _: u16, gathered: Vec<Asking<Self>>) {
        let mut work = Box::pin(serve(Arc::clone(&self.0), gathered));
        if !M::GOES_ON {
            return work.await;
        }
        if by(Instant::now() + SLOW, None, &mut work).await.is_none() {
            // Those who wait go on another connection.
            tokio::spawn(work);
        }
    }
}

async fn serve<M: Many>(many: Arc<M>, mut gathered: Vec<Asking<Sender<M>>>) {
    gathered.sort_by(|one, other| one.asked.claim.name().cmp(other.asked.claim.name()));
    let verb = gathered.first().map(|asking| asking.asked.verb);
    let gathered = once(gathered);
    match verb {
        Some(Verb::Take) => {
            let sent = many.take(&asked(&gathered)).await;
            tell_all(gathered, sent, Answer::Taken);
        }
        Some(Verb::Free) => {
            let sent = many.free(&asked(&gathered)).await;
            tell_all(gathered, sent, Answer::Freed);
        }
        None => {}
    }
}

fn asked<M: Many>(gathered: &[Asking<Sender<M>>]) -> Vec<&Asked> {
    gathered.iter().map(|asking| &asking.asked).collect()
}

/// The first of each name; the others ask by themselves.
fn once<M: Many>(gathered: Vec<Asking<Sender<M>>>) -> Vec<Asking<Sender<M>>> {
    let mut once: Vec<Asking<Sender<M>>> = Vec::with_capacity(gathered.len());
    for asking in gathered {
        match once.last() {
            Some(last) if last.asked.claim.name() == asking.asked.claim.name() => {
                tell(asking, Settled::Done, Told::Apart)
            }
            _ => once.push(asking),
        }
    }
    once
}

fn tell_all<M: Many, A>(gathered: Vec<Asking<Sender<M>>>, sent: Sent<A>, answer: fn(A) -> Answer<M::Taken>) {
    let failed = |e: &Error| gathered.iter().map(|_| Told::Failed(copy(e))).collect();
    let (told, settled): (Vec<_>, _) = match sent {
        Sent::Told(told, is_settled) => (told, Settled::of(is_settled)),
        Sent::NotDone => (gathered.iter().map(|_| Told::Apart).collect(), Settled::Done),
        Sent::Failed(e, is_settled) => (failed(&e), Settled::of(is_settled)),
        Sent::NeverLeft(e) => (failed(&e), Settled::NeverLeft),
    };
    // Whoever is told nothing has had no answer.
    for (asking, told) in gathered.into_iter().zip(told) {
        let told = match told {
            Told::Answer(told) => Told::Answer(answer(told)),
            Told::Apart => Told::Apart,
            Told::Failed(e) => Told::Failed(e),
        };
        tell(asking, settled, told);
    }
}

/// What is known of a request.
#[derive(Clone, Copy)]
enum Settled {
    /// What came of it, and nothing more will.
    Done,
    NeverLeft,
    Not,
}

impl Settled {
    const fn of(is_settled: bool) -> Self {
        if is_settled { Self::Done } else { Self::Not }
    }
}

/// Lets the claim know what became of its request, and then whoever asked.
fn tell<M: Many>(mut asking: Asking<Sender<M>>, settled: Settled, told: Told<Answer<M::Taken>>) {
    if let Some(under_way) = asking.asked.under_way.take() {
        match settled {
            Settled::Done => under_way.answered(),
            Settled::NeverLeft => under_way.never_left(),
            Settled::Not => drop(under_way),
        }
    }
    asking.tell(told);
}
