//! Counting what the nodes answer to the renewal of several holds.

use crate::set::Set;
use crate::votes::Renewed;
use async_trait::async_trait;
use fencelock_core::group::{Renewed as Together, Renewing, RenewsTogether};
use fencelock_core::{Claim, Error, ErrorKind, FencingToken, Renewal};
use std::sync::Weak;
use std::time::Duration;

/// What was told of one hold.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    yes: usize,
    no: usize,
}

impl Told {
    fn add(&mut self, answer: Renewed) {
        match answer {
            Renewed::Yes => self.yes += 1,
            Renewed::No => self.no += 1,
            // Neither: it is ours there, and nobody knows since when.
            Renewed::Unnoted => {}
        }
    }

    fn verdict(self, majority: usize) -> Option<Renewal> {
        if self.yes >= majority {
            Some(Renewal::Renewed)
        } else if self.no >= majority {
            Some(Renewal::Refused)
        } else {
            None
        }
    }
}

/// What became of a renewal.
pub(crate) struct Outcome {
    /// For each hold what a majority said; nothing if none was of one mind.
    pub(crate) verdicts: Vec<Option<Renewal>>,
    /// How many nodes answered.
    pub(crate) answered: usize,
}

impl Set {
    /// Renews all `holds`, as soon as a majority agrees on each of them.
    ///
    /// Where a node has a part of a hold that a majority has just renewed, and its
    /// token was not noted there, it is now: the hold was ours all the time, so that
    /// node may help to renew it too. Without that majority its part could be one
    /// that a late request took after another had held the lock.
    pub(crate) async fn renew_all(&self, holds: &[Renewing<'_>], limit: Duration) -> Outcome {
        let majority = self.majority();
        let mut told = vec![Told::default(); holds.len()];
        let mut unnoted: Vec<(usize, usize)> = Vec::new();
        let mut answers = self.ask_to_renew(holds, limit);
        let mut answered = 0;
        while let Some((at, answer)) = answers.next().await {
            let Ok(answer) = answer else { continue };
            answered += 1;
            for (hold, answer) in answer.into_iter().enumerate() {
                if answer == Renewed::Unnoted {
                    unnoted.push((at, hold));
                }
                if let Some(told) = told.get_mut(hold) {
                    told.add(answer);
                }
            }
            if told.iter().all(|told| told.verdict(majority).is_some()) {
                break;
            }
        }
        let verdicts: Vec<_> = told.into_iter().map(|told| told.verdict(majority)).collect();
        let noting = Noting {
            renewed: verdicts.iter().map(|verdict| *verdict == Some(Renewal::Renewed)).collect(),
            holds: holds.iter().map(|hold| (hold.claim.clone(), hold.token)).collect(),
        };
        unnoted.into_iter().for_each(|(at, hold)| noting.note(self, at, hold));
        if answers.left() > 0 {
            let set = Weak::clone(&self.itself);
            // The node that is slow now was slow before, and is the one that lacks a token.
            tokio::spawn(async move {
                while let Some((at, answer)) = answers.next().await {
                    let (Ok(answer), Some(set)) = (answer, set.upgrade()) else { continue };
                    let unnoted = answer.into_iter().enumerate().filter(|(_, answer)| *answer == Renewed::Unnoted);
                    unnoted.for_each(|(hold, _)| noting.note(&set, at, hold));
                }
            });
        }
        Outcome { verdicts, answered }
    }

    /// Why it is not known whether a hold was renewed.
    pub(crate) fn not_renewed(&self, answered: usize) -> Error {
        let message = format!("{answered} of {} nodes answered: no majority renewed it", self.size());
        Error::new(ErrorKind::Unavailable, message)
    }
}

#[async_trait]
impl RenewsTogether for Set {
    fn longest(&self) -> Duration {
        self.config.request_timeout
    }

    async fn renew(&self, holds: &[Renewing<'_>], limit: Duration) -> Together {
        let outcome = self.renew_all(holds, limit).await;
        let why = self.not_renewed(outcome.answered);
        Together::Told(outcome.verdicts, Some(why))
    }
}

/// The holds that were to be renewed, and which of them a majority did renew.
struct Noting {
    renewed: Vec<bool>,
    holds: Vec<(Claim, FencingToken)>,
}

impl Noting {
    fn note(&self, set: &Set, at: usize, hold: usize) {
        if let (Some(true), Some((claim, token))) = (self.renewed.get(hold), self.holds.get(hold)) {
            set.confirm(at, &claim.id().to_string(), &set.keys.lock(claim.name()), *token);
        }
    }
}
