//! One line's cells.

use crate::output::{clean, width};
use fencelock::{HolderInfo, LockName, Waiter};
use std::time::Duration;
use unicode_width::UnicodeWidthChar;

/// The cells of one line: of a lock and its holder, or of one who waits for it.
pub(super) struct Row {
    pub(super) name: String,
    pub(super) holder: String,
    /// For how long it has been held or waited for.
    pub(super) time: String,
    pub(super) left: String,
    pub(super) waiters: String,
    pub(super) token: String,
    pub(super) note: String,
}

fn unknown() -> String {
    "-".to_owned()
}

impl Row {
    pub(super) fn head() -> Self {
        let [name, holder, time, left, waiters, token, note] =
            ["NAME", "HOLDER", "FOR", "LEFT", "WAIT", "TOKEN", "NOTE"].map(str::to_owned);
        Self { name, holder, time, left, waiters, token, note }
    }

    pub(super) fn of(name: &LockName, holder: &HolderInfo, age: Duration) -> Self {
        let time = match (holder.held_for, holder.asked_ago) {
            (Some(held), _) => short(held.saturating_add(age)),
            // It asked then, and has held it for no longer.
            (None, Some(asked)) => format!("≤{}", short(asked.saturating_add(age))),
            (None, None) => unknown(),
        };
        Self {
            name: clean(name.as_str()),
            holder: clean(&holder.holder),
            time,
            left: holder.remaining.map_or_else(unknown, |left| short(left.saturating_sub(age))),
            waiters: holder.waiters.map_or_else(unknown, |waiters| waiters.to_string()),
            token: holder.token.to_string(),
            note: holder.note.as_deref().map(clean).unwrap_or_default(),
        }
    }

    pub(super) fn waiting(place: usize, waiter: &Waiter, age: Duration) -> Self {
        Self {
            name: format!("  {place} waits"),
            holder: clean(&waiter.holder),
            time: waiter.waited_for.map_or_else(unknown, |waited| short(waited.saturating_add(age))),
            note: waiter.note.as_deref().map(clean).unwrap_or_default(),
            ..Self::blank()
        }
    }

    pub(super) fn more(others: u64) -> Self {
        let name = if others == 1 { "  1 more waits".to_owned() } else { format!("  {others} more wait") };
        Self { name, ..Self::blank() }
    }

    fn blank() -> Self {
        let (name, holder, time, left, waiters, token, note) = Default::default();
        Self { name, holder, time, left, waiters, token, note }
    }
}

pub(super) fn padded(text: &str, columns: usize, right: bool) -> String {
    let text = cut(text, columns);
    let pad = " ".repeat(columns.saturating_sub(width(&text)));
    if right { pad + &text } else { text + &pad }
}

/// As much of the text as fits, with a mark where something is left out.
pub(super) fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut room = columns.saturating_sub(1);
    let mut kept = String::new();
    for c in text.chars() {
        let wide = c.width().unwrap_or_default();
        if wide > room {
            break;
        }
        room -= wide;
        kept.push(c);
    }
    if columns > 0 {
        kept.push('…');
    }
    kept
}

/// A duration in six characters or less.
pub(super) fn short(duration: Duration) -> String {
    let s = duration.as_secs();
    match s {
        0..60 => format!("{s}s"),
        60..3_600 => format!("{}m{:02}s", s / 60, s % 60),
        3_600..86_400 => format!("{}h{:02}m", s / 3_600, s / 60 % 60),
        _ => format!("{}d{:02}h", s / 86_400, s / 3_600 % 24),
    }
}
