//! Counting the votes of one acquire.

use crate::keys::CLOSED;
use crate::votes::{Part, Vote};
use fencelock_core::{Error, ErrorKind, FencingToken};
use fencelock_redis::NodeFailure;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The votes told so far.
pub(crate) struct Tally {
    size: usize,
    /// The number that this attempt has brought along.
    guess: Option<FencingToken>,
    places: Vec<usize>,
    votes: Vec<Vote>,
    failures: Vec<Error>,
}

/// What the votes come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A majority granted it.
    Won,
    /// No majority can grant it any more.
    Lost,
}

/// Who stands in the way, when no majority granted it.
#[derive(Debug)]
pub(crate) enum Obstacle {
    /// One holds it on a majority of nodes.
    Holder { left: Option<Duration>, holder: Option<Arc<str>> },
    /// Several try at once, and none has a majority, or one is about to get its token, or may have got it.
    Split(Option<Attempted>),
    /// The id is dead.
    Dead,
    /// Too few nodes took part.
    Missing(Error),
}

/// An attempt that has a majority of nodes, and no token yet; or perhaps a majority, and a number noted.
#[derive(Debug)]
pub(crate) struct Attempted {
    pub(crate) id: Arc<str>,
    /// Who it is, where a number is noted: if the same is there at the next try, it is a hold. What fails is undone by then.
    pub(crate) noted: Option<Arc<str>>,
    /// When it will have run out, should nobody undo it.
    pub(crate) left: Option<Duration>,
}

impl Tally {
    pub(crate) fn of(size: usize, guess: Option<FencingToken>) -> Self {
        Self { size, guess, places: Vec::new(), votes: Vec::new(), failures: Vec::new() }
    }

    fn majority(&self) -> usize {
        self.size / 2 + 1
    }

    /// Counts what the node at `at` said.
    pub(crate) fn add(&mut self, at: usize, vote: Result<Vote, NodeFailure>) {
        match vote {
            Ok(vote) => {
                self.places.push(at);
                self.votes.push(vote);
            }
            Err(failure) => self.failures.push(failure.error),
        }
    }

    fn count(&self, what: impl Fn(&Vote) -> bool) -> usize {
        self.votes.iter().filter(|vote| what(vote)).count()
    }

    /// On how many nodes the claim holds.
    pub(crate) fn granted(&self) -> usize {
        self.count(|vote| matches!(vote, Vote::Granted { .. }))
    }

    /// As soon as it is known, whatever the rest says.
    pub(crate) fn verdict(&self) -> Option<Verdict> {
        let told = self.votes.len() + self.failures.len();
        if self.granted() >= self.majority() {
            // A token that this attempt did not bring along is that of an earlier one of the claim, and perhaps the one
            // under which it holds: that is told by a majority that noted the same, and so all are waited for before
            // another is agreed on. The number of this attempt is nobody's token unless a majority noted it. Where the
            // first majority did not, the rest might, and is not waited for: it may be slow or hang, and
            // a larger number replaces what a minority has noted.
            let asked_again = self
                .votes
                .iter()
                .any(|vote| matches!(vote, Vote::Granted { token: Some(token), .. } if Some(*token) != self.guess));
            return (!asked_again || self.noted().is_some() || told >= self.size).then_some(Verdict::Won);
        }
        (self.granted() + self.size.saturating_sub(told) < self.majority()).then_some(Verdict::Lost)
    }

    /// The token that a majority has noted with the claim's hold: with this attempt, or it was granted before.
    pub(crate) fn noted(&self) -> Option<FencingToken> {
        let noted = |vote: &Vote| match vote {
            Vote::Granted { token, .. } => *token,
            _ => None,
        };
        let times = |token| self.count(|vote| noted(vote) == Some(token));
        self.votes.iter().filter_map(noted).find(|token| times(*token) >= self.majority())
    }

    /// Where the claim holds, and `token` is not noted with it.
    pub(crate) fn lacking(&self, token: FencingToken) -> impl Iterator<Item = usize> {
        let votes = self.places.iter().zip(&self.votes);
        votes.filter(move |(_, vote)| vote.lacks(token)).map(|(at, _)| *at)
    }

    fn counters(&self) -> impl Iterator<Item = u64> {
        self.votes.iter().filter_map(Vote::counter)
    }

    /// The largest counter that any node told.
    pub(crate) fn heard(&self) -> Option<u64> {
        self.counters().max()
    }

    /// The largest counter, if a majority told theirs.
    pub(crate) fn largest(&self) -> Option<u64> {
        self.heard().filter(|_| self.counters().count() >= self.majority())
    }

    /// Whether a node may have a part of the claim's, whose request was answered.
    pub(crate) fn left_something(&self) -> bool {
        // An answer that cannot be read may have been a yes.
        self.granted() > 0 || self.failures.iter().any(|failure| failure.kind() == ErrorKind::Engine)
    }

    fn parts(&self) -> impl Iterator<Item = &Part> {
        self.votes.iter().filter_map(|vote| match vote {
            Vote::Held(part) => Some(part),
            _ => None,
        })
    }

    /// Why no majority granted it.
    pub(crate) fn obstacle(&self) -> Obstacle {
        if self.count(|vote| *vote == Vote::Dead) > 0 {
            return Obstacle::Dead;
        }
        let held = self.parts().count();
        if held == 0 || held + self.granted() < self.majority() {
            return Obstacle::Missing(self.missing());
        }
        let mut holders: HashMap<&str, Vec<&Part>> = HashMap::new();
        self.parts().for_each(|part| holders.entry(&part.id).or_default().push(part));
        let most = holders.into_values().max_by_key(Vec::len).unwrap_or_default();
        // Where a node was silent, it may be the one that makes up the holder's majority.
        let silent = self.size.saturating_sub(self.votes.len());
        // Without its token it is an attempt, which will be a hold or be undone in a moment.
        let trying = !most.iter().any(|part| part.has_token || part.id.is_empty() || *part.id == *CLOSED);
        if trying || most.len() + silent < self.majority() {
            let first = most.first().filter(|_| trying && most.len() >= self.majority());
            return Obstacle::Split(first.map(|part| self.attempted(part, None)));
        }
        let holder = most.iter().find_map(|part| part.holder.clone());
        // A silent node may have the rest; or a number that an attempt has brought along is noted on a minority.
        if let Some(part) = most.iter().find(|part| part.has_token)
            && most.len() < self.majority()
        {
            return Obstacle::Split(Some(self.attempted(part, Some(holder.unwrap_or_default()))));
        }
        Obstacle::Holder { left: self.until_a_majority_is_free(), holder }
    }

    fn attempted(&self, part: &Part, noted: Option<Arc<str>>) -> Attempted {
        Attempted { id: Arc::clone(&part.id), noted, left: self.until_a_majority_is_free() }
    }

    /// When enough of the nodes that told will have let go of what they have; without an end there is no such time.
    fn until_a_majority_is_free(&self) -> Option<Duration> {
        let mut lefts: Vec<_> = self.parts().map(|part| part.left.unwrap_or(Duration::MAX)).collect();
        lefts.extend(std::iter::repeat_n(Duration::ZERO, self.granted()));
        lefts.sort_unstable();
        let last = lefts.get(self.majority() - 1).or(lefts.last()).copied();
        last.filter(|left| *left < Duration::MAX)
    }

    fn missing(&self) -> Error {
        let unseeded = self.count(|vote| *vote == Vote::Unseeded);
        let kind = match self.failures.first().map(Error::kind) {
            Some(kind) if unseeded == 0 && self.failures.iter().all(|failure| failure.kind() == kind) => kind,
            _ => ErrorKind::Unavailable,
        };
        let mut message = format!("no majority: {} of {} nodes took part", self.votes.len() - unseeded, self.size);
        if unseeded > 0 {
            message.push_str(&format!("; {unseeded} have lost their counters and must be re-seeded"));
        }
        if let Some(failure) = self.failures.first() {
            message.push_str(&format!("; {}", failure.message()));
        }
        Error::new(kind, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn yes(counter: u64) -> Result<Vote, NodeFailure> {
        Ok(Vote::Granted { counter, token: None })
    }

    fn again(token: u64) -> Result<Vote, NodeFailure> {
        Ok(Vote::Granted { counter: token, token: Some(FencingToken::new(token)) })
    }

    fn part(id: &str, secs: u64, has_token: bool) -> Result<Vote, NodeFailure> {
        let (left, holder) = (Some(Duration::from_secs(secs)), Some(id.into()));
        Ok(Vote::Held(Part { counter: 9, left, id: id.into(), holder, has_token }))
    }

    fn held(id: &str) -> Result<Vote, NodeFailure> {
        part(id, 1, true)
    }

    fn gone() -> Result<Vote, NodeFailure> {
        Err(NodeFailure::settled(Error::new(ErrorKind::Unavailable, "away")))
    }

    fn tally(size: usize, votes: Vec<Result<Vote, NodeFailure>>) -> Tally {
        guessed(None, size, votes)
    }

    fn guessed(guess: Option<u64>, size: usize, votes: Vec<Result<Vote, NodeFailure>>) -> Tally {
        let mut tally = Tally::of(size, guess.map(FencingToken::new));
        votes.into_iter().enumerate().for_each(|(at, vote)| tally.add(at, vote));
        tally
    }

    #[test]
    fn a_majority_decides_whatever_the_rest_says() {
        assert_eq!(tally(5, vec![yes(1), yes(4)]).verdict(), None);
        let won = tally(5, vec![yes(1), yes(4), yes(2)]);
        assert_eq!((won.verdict(), won.largest()), (Some(Verdict::Won), Some(4)));
        assert_eq!(tally(5, vec![yes(1), gone(), held("x")]).verdict(), None);
        assert_eq!(tally(5, vec![gone(), gone(), held("x")]).verdict(), Some(Verdict::Lost));
        assert_eq!(tally(3, vec![Ok(Vote::Unseeded), yes(1), gone()]).verdict(), Some(Verdict::Lost));
    }

    #[test]
    fn a_hold_asked_for_again_has_the_token_of_a_majority() {
        assert_eq!(tally(3, vec![again(7), yes(7)]).verdict(), None, "the third may have noted it");
        assert_eq!(tally(3, vec![again(7), yes(7), again(7)]).noted(), Some(FencingToken::new(7)));
        let minority = tally(3, vec![again(7), yes(7), gone()]);
        assert_eq!((minority.verdict(), minority.noted()), (Some(Verdict::Won), None));
        assert_eq!(tally(3, vec![again(7), again(8), yes(8)]).noted(), None);
    }

    #[test]
    fn a_number_that_was_brought_along_is_the_token_of_a_majority_that_noted_it() {
        let ours = |size, votes| guessed(Some(7), size, votes);
        let won = ours(3, vec![again(7), again(7)]);
        assert_eq!((won.verdict(), won.noted()), (Some(Verdict::Won), Some(FencingToken::new(7))));
        let part = ours(3, vec![again(7), yes(7)]);
        assert_eq!((part.verdict(), part.noted()), (Some(Verdict::Won), None), "the third is not waited for");
        assert_eq!(part.lacking(FencingToken::new(7)).collect::<Vec<_>>(), [1]);
        let part = ours(5, vec![again(7), held("x"), again(7)]);
        assert_eq!((part.verdict(), part.noted()), (None, None), "two of five are no majority");
        assert_eq!(ours(3, vec![again(6), yes(7)]).verdict(), None, "an earlier attempt's, which the third may have");
    }

    #[test]
    fn obstacles_are_told_apart() {
        let holder = tally(3, vec![held("x"), held("x"), gone()]).obstacle();
        assert!(matches!(holder, Obstacle::Holder { left: Some(_), holder: Some(who) } if &*who == "x"));
        assert!(matches!(tally(3, vec![held("x"), held("y"), yes(1)]).obstacle(), Obstacle::Split(None)));
        let minority = tally(3, vec![held("x"), yes(1), gone()]).obstacle();
        assert!(matches!(minority, Obstacle::Split(Some(Attempted { noted: Some(_), .. }))), "or a hold: {minority:?}");
        assert!(matches!(tally(3, vec![held("x"), gone(), gone()]).obstacle(), Obstacle::Missing(_)));
        assert!(matches!(tally(3, vec![Ok(Vote::Dead), yes(1), yes(1)]).obstacle(), Obstacle::Dead));
        let trying = tally(3, vec![part("x", 9, false), part("x", 9, false), gone()]).obstacle();
        assert!(matches!(trying, Obstacle::Split(Some(attempt)) if &*attempt.id == "x"), "it has no token yet");
        let closed = tally(3, vec![part(CLOSED, 2, false), part(CLOSED, 3, false), yes(1)]).obstacle();
        let until = Duration::from_secs(2);
        assert!(matches!(closed, Obstacle::Holder { left: Some(left), .. } if left == until), "{closed:?}");
        let Obstacle::Missing(e) = tally(3, vec![Ok(Vote::Unseeded), Ok(Vote::Unseeded), yes(1)]).obstacle() else {
            panic!("not missing")
        };
        assert!(e.message().contains("2 have lost their counters"), "{e}");
    }
}
