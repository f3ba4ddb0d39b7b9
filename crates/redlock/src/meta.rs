//! The record that each node keeps of itself: to which set it belongs, and whether its counters are there.

use crate::keys::LAYOUT;
use std::fmt;

/// `<layout> <state> <set> <nodes>`, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) state: State,
    /// What `init` called the set: nodes of two sets never vote together.
    pub(crate) set: String,
    /// How many nodes the set has.
    pub(crate) nodes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// `init` is at work, or was interrupted; no token was ever given out by the set unless another node is ready.
    Begun,
    /// `reseed` is at work, or was interrupted: some counters are there and are right.
    Reseeding,
    /// Every counter was made.
    Ready,
}

/// What lies where the record should.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Found {
    /// The node is new, or has lost its data.
    #[default]
    Nothing,
    Record(Record),
    /// Another version of the layout, or another program.
    Foreign(String),
}

impl State {
    const ALL: [(Self, &'static str); 3] =
        [(Self::Begun, "begun"), (Self::Reseeding, "reseeding"), (Self::Ready, "ready")];
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = State::ALL.iter().find(|(state, _)| state == self).map_or("", |(_, word)| word);
        f.write_str(word)
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{LAYOUT} {} {} {}", self.state, self.set, self.nodes)
    }
}

impl Record {
    pub(crate) fn with(&self, state: State) -> Self {
        Self { state, ..self.clone() }
    }
}

impl Found {
    pub(crate) fn read(text: Option<&str>) -> Self {
        let Some(text) = text.filter(|text| !text.is_empty()) else { return Self::Nothing };
        let mut words = text.split(' ');
        let parsed = || {
            if words.next()? != LAYOUT {
                return None;
            }
            let word = words.next()?;
            let (state, _) = State::ALL.into_iter().find(|(_, known)| *known == word)?;
            let (set, nodes) = (words.next()?.to_owned(), words.next()?.parse().ok()?);
            words.next().is_none().then_some(Record { state, set, nodes })
        };
        let mut parsed = parsed;
        parsed().map_or_else(|| Self::Foreign(text.chars().take(40).collect()), Self::Record)
    }

    pub(crate) fn ready(&self) -> Option<&Record> {
        match self {
            Self::Record(record) if record.state == State::Ready => Some(record),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_back() {
        for (state, _) in State::ALL {
            let record = Record { state, set: "07af".into(), nodes: 5 };
            assert_eq!(Found::read(Some(&record.to_string())), Found::Record(record));
        }
        assert_eq!(Found::read(None), Found::Nothing);
        for odd in ["1", "redlock-1 ready a 3", "redlock-2 ready a", "redlock-2 ready a 3 4", "redlock-2 gone a 3"] {
            assert!(matches!(Found::read(Some(odd)), Found::Foreign(_)), "{odd}");
        }
    }
}
