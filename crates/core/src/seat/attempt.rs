//! One attempt that the calls of a scope share, and how each waits for it.

use super::{Attempt, Ended, Ending, Entry, Scope, Stage, Told};
use crate::client::Shared;
use crate::driven::{Driven, Manner};
use crate::pursuit::{Wish, gave_up, give_up, mint, pursue};
use crate::reentrant::Asked;
use crate::sync::lock;
use crate::{Claim, Error, ErrorKind, Obstacle, ReentrantGuard, Result};
use std::sync::Arc;
use std::time::Duration;
use tracing::Instrument;

/// What a call finds at its entry.
enum Found {
    /// A hold, or a grant to take.
    Ready,
    /// It was held, and is lost.
    Lost,
    Contended,
    /// Somebody takes the grant just now.
    BeingTaken,
    Asking(Claim),
}

/// Acquires in the scope; `None` if it was a single try and somebody outside has it.
pub(crate) async fn seated(scope: Arc<Scope>, wish: Wish, asked: Asked) -> Result<Option<ReentrantGuard>> {
    let mut seat = scope.sit(&wish.name);
    let shared = Arc::clone(&scope.shared);
    let manner = if wish.once() { Manner::Inline } else { Manner::Waiting };
    loop {
        let is_there = seat.is_held(&asked)? || {
            let work = wait(Arc::clone(&shared), Arc::clone(&seat.entry), wish.clone(), asked.clone());
            Driven::new(&shared, manner, work).await?
        };
        shared.check_ready()?;
        if !is_there {
            return Ok(None);
        }
        seat = match seat.take() {
            Ok(guard) => return Ok(Some(guard)),
            Err(seat) => {
                drop(seat);
                scope.sit(&wish.name)
            }
        };
    }
}

/// Waits until there is something to take; false if a single try found that there is nothing.
async fn wait(shared: Arc<Shared>, entry: Arc<Entry>, wish: Wish, asked: Asked) -> Result<bool> {
    let mut joined = None;
    let mut nap = Duration::from_millis(1);
    loop {
        let changed = entry.changed.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        let claim = match look(&shared, &entry, &wish, &asked, &mut joined)? {
            Found::Ready | Found::Lost => return Ok(true),
            Found::Contended => return Ok(false),
            Found::BeingTaken => {
                changed.await;
                continue;
            }
            Found::Asking(claim) => claim,
        };
        if !wish.once() {
            tokio::select! {
                () = changed => {}
                given_up = give_up(&shared, &claim, &wish) => return Err(given_up),
            }
            continue;
        }
        // A single try that has joined a wait goes by the first that the wait has met.
        match claim.obstacle() {
            Obstacle::Held(_) if wish.trying => return Ok(false),
            Obstacle::Held(_) | Obstacle::Unreachable(_) => return Err(gave_up(&claim, Duration::ZERO)),
            Obstacle::Silence => {}
        }
        tokio::select! {
            () = changed => {}
            () = tokio::time::sleep(nap) => nap = (nap * 2).min(Duration::from_millis(50)),
            given_up = give_up(&shared, &claim, &wish) => return Err(given_up),
        }
    }
}

/// Looks at the entry, and begins an attempt if there is none to join.
fn look(
    shared: &Arc<Shared>,
    entry: &Arc<Entry>,
    wish: &Wish,
    asked: &Asked,
    joined: &mut Option<u64>,
) -> Result<Found> {
    // Outside of the lock: a loss that is found out is told.
    let _ = entry.is_held();
    let mut state = lock(&entry.state);
    let number = state.attempts;
    if state.is_known_to_be_lost() {
        return Ok(Found::Lost);
    }
    match &state.stage {
        Stage::Held(_, first) | Stage::Granted(_, first) => {
            asked.fits(&first.options)?;
            return Ok(Found::Ready);
        }
        Stage::Asking(attempt) => {
            // A try that was joined by nobody else asks for no more than it does itself.
            asked.fits(&attempt.wish.options)?;
            *joined = Some(number);
            return Ok(Found::Asking(attempt.claim.clone()));
        }
        Stage::Taking => return Ok(Found::BeingTaken),
        // The caller has gone, and this is what is left of its call: it must not begin anything.
        Stage::Over => return Ok(Found::Contended),
        Stage::Idle => {}
    }
    if let Some(ended) = state.ended.as_ref().filter(|ended| *joined == Some(ended.number))
        && (wish.once() || !ended.once)
    {
        match &ended.ending {
            Ending::Failed(failure) => return Err(Told::again(failure)),
            Ending::Contended if wish.trying => return Ok(Found::Contended),
            Ending::Contended => return Err(gave_up(&ended.claim, Duration::ZERO)),
        }
    }
    let claim = mint(shared, wish)?;
    state.attempts += 1;
    let number = state.attempts;
    *joined = Some(number);
    let ends = Ends { entry: Arc::clone(entry), number, once: wish.once(), claim: claim.clone() };
    let task = shared.home.spawn(ask(Arc::clone(shared), wish.shared(), ends).in_current_span());
    state.stage = Stage::Asking(Attempt { task, claim: claim.clone(), wish: wish.clone() });
    Ok(Found::Asking(claim))
}

/// Ends an attempt, however it ended.
struct Ends {
    entry: Arc<Entry>,
    number: u64,
    once: bool,
    claim: Claim,
}

impl Ends {
    fn with(&self, stage: Stage, ending: Option<Ending>) {
        let mut state = lock(&self.entry.state);
        let is_mine = state.attempts == self.number && matches!(state.stage, Stage::Asking(_));
        // What nobody sits there for any more is undone when it is dropped, outside the lock.
        let dropped = if is_mine {
            let (number, once, claim) = (self.number, self.once, self.claim.clone());
            state.ended = ending.map(|ending| Ended { number, once, claim, ending });
            std::mem::replace(&mut state.stage, stage)
        } else {
            stage
        };
        drop(state);
        drop(dropped);
        self.entry.changed.notify_waiters();
    }

    fn failed(&self, failure: Error) {
        self.with(Stage::Idle, Some(Ending::Failed(Arc::new(failure))));
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.failed(Error::new(ErrorKind::Engine, "the engine panicked"));
    }
}

/// The attempt that the calls of a scope share: a task, so that it is nobody's own.
async fn ask(shared: Arc<Shared>, wish: Wish, ends: Ends) {
    match pursue(shared, wish.clone(), ends.claim.clone()).await {
        Ok(Some(granted)) => ends.with(Stage::Granted(granted, wish), None),
        Ok(None) => ends.with(Stage::Idle, Some(Ending::Contended)),
        Err(failure) => ends.failed(failure),
    }
}
