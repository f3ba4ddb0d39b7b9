//! What clients tell each other on the channel whose name only they know.
//!
//! On the other, which older versions listen to as well, there are names of locks that were freed, and nothing else.

use crate::micros::in_micros;
use fencelock_core::{Claim, ClaimId};

/// The longest payload is 7999 bytes (`NOTIFY` in PostgreSQL's manual); the server adds a token to ours.
const LONGEST: usize = 7_900;
/// Longer than any ttl with its lock delay, in microseconds: two weeks and a bit.
const MOST_MICROS: i64 = 1 << 41;

/// One who waits, as others hear of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) id: ClaimId,
    /// The lock of the server's own that its listening session holds for as long as it lives.
    pub(super) listener: i64,
    /// Which of its tellings this was.
    pub(super) round: i64,
    pub(super) ttl: i64,
    pub(super) delay: i64,
    pub(super) reserve: i64,
    pub(super) least_token: i64,
    pub(super) holder: String,
    pub(super) note: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// Somebody waits, and saw the hold of this token.
    Waits(String, Waiting, i64),
    /// A release handed the lock on.
    Handed(Handing),
    /// A claim waits and holds no more; it held under this token, or did not hold.
    Gone(String, ClaimId, i64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Handing {
    pub(super) name: String,
    pub(super) from: ClaimId,
    pub(super) to: ClaimId,
    pub(super) listener: i64,
    pub(super) round: i64,
    /// How often it was handed on since it was last free for all.
    pub(super) passed: i64,
    pub(super) token: i64,
    /// From when it was handed on, with the lock delay.
    pub(super) ttl: i64,
}

/// Bytes in hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    let digit = |of: u8| char::from_digit(u32::from(of), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

pub(super) fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    let digits = |at| text.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
    (0..text.len()).step_by(2).map(digits).collect()
}

fn unhex_text(text: &str) -> Option<String> {
    let text = String::from_utf8(unhex(text)?).ok()?;
    // The server takes any text but this.
    (!text.contains('\0')).then_some(text)
}

impl Waiting {
    pub(super) fn new(claim: &Claim, listener: i64, round: i64, least_token: i64) -> Self {
        Self {
            id: claim.id(),
            listener,
            round,
            ttl: in_micros(claim.server_ttl()),
            delay: in_micros(claim.lock_delay()),
            reserve: claim.reserve().into(),
            least_token,
            holder: claim.holder().to_string(),
            note: claim.note().map(ToString::to_string),
        }
    }

    /// The payload without the token, which the server adds; none if it would be too long.
    pub(super) fn written(&self, name: &str) -> Option<String> {
        let Self { id, listener, round, ttl, delay, reserve, least_token, holder, note } = self;
        let note = note.as_ref().map_or_else(|| "-".to_owned(), |note| format!("n{}", hex(note.as_bytes())));
        let holder = hex(holder.as_bytes());
        let text = format!("w {name} {id} {listener} {round} {ttl} {delay} {reserve} {least_token} h{holder} {note}");
        (text.len() <= LONGEST).then_some(text)
    }
}

impl Notice {
    /// None of what is not understood.
    pub(super) fn read(payload: &str) -> Option<Self> {
        let mut words = payload.split(' ');
        let first = words.next()?;
        let notice = match first {
            "w" => {
                let name = words.next()?.to_owned();
                let waiting = Waiting {
                    id: id(words.next()?)?,
                    listener: words.next()?.parse().ok()?,
                    round: words.next()?.parse().ok()?,
                    ttl: within(words.next()?, 1, MOST_MICROS)?,
                    delay: within(words.next()?, 0, MOST_MICROS)?,
                    reserve: within(words.next()?, 0, u32::MAX.into())?,
                    least_token: within(words.next()?, 0, i64::MAX / 2)?,
                    holder: unhex_text(words.next()?.strip_prefix('h')?)?,
                    note: match words.next()? {
                        "-" => None,
                        note => Some(unhex_text(note.strip_prefix('n')?)?),
                    },
                };
                Self::Waits(name, waiting, words.next()?.parse().ok()?)
            }
            "g" => Self::Handed(Handing {
                name: words.next()?.to_owned(),
                from: id(words.next()?)?,
                to: id(words.next()?)?,
                listener: words.next()?.parse().ok()?,
                round: words.next()?.parse().ok()?,
                passed: within(words.next()?, 0, i64::MAX)?,
                token: within(words.next()?, 0, i64::MAX)?,
                ttl: within(words.next()?, 0, MOST_MICROS)?,
            }),
            "x" => Self::Gone(words.next()?.to_owned(), id(words.next()?)?, within(words.next()?, 0, i64::MAX)?),
            _ => return None,
        };
        words.next().is_none().then_some(notice)
    }
}

fn id(text: &str) -> Option<ClaimId> {
    unhex(text)?.try_into().ok().map(ClaimId::from_bytes)
}

fn within(text: &str, least: i64, most: i64) -> Option<i64> {
    text.parse().ok().filter(|number| (least..=most).contains(number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencelock_core::{LockName, Terms};
    use std::time::Duration;

    fn waiting(note: Option<&str>) -> Waiting {
        let terms = Terms::new(LockName::new("a").unwrap(), Duration::from_secs(1)).with_holder("h ö").with_reserve(3);
        let terms = if let Some(note) = note { terms.with_note(note) } else { terms };
        Waiting::new(&terms.mint().unwrap(), -7, 4, 9)
    }

    #[test]
    fn what_is_written_is_read() {
        for note in [None, Some(""), Some("n - \n x"), Some(&*"x".repeat(1024))] {
            let waiting = waiting(note);
            let payload = waiting.written("61").unwrap() + " 12";
            assert_eq!(Notice::read(&payload), Some(Notice::Waits("61".to_owned(), waiting, 12)));
        }
        let id = waiting(None).id;
        assert_eq!(Notice::read(&format!("x 61 {id} 5")), Some(Notice::Gone("61".to_owned(), id, 5)));
        let long = Waiting { holder: "x".repeat(4_000), ..waiting(None) };
        assert_eq!(long.written("61"), None);
    }

    #[test]
    fn what_is_not_understood_is_nothing() {
        let right = waiting(Some("n")).written("61").unwrap() + " 12";
        for at in 1..right.len() {
            // A word less, or half of one: never a panic.
            let _ = Notice::read(right.get(..at).unwrap_or_default());
        }
        for wrong in ["w", "6162", "g 61", "x 61 zz", "x 61 6é", &right.replace(" h", " "), &(right.clone() + " 1")] {
            assert_eq!(Notice::read(wrong), None, "{wrong}");
        }
    }
}
