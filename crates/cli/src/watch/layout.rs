//! What stands where, for any size of terminal and names in any script.

use crate::output::{clean, width};
use fencelock::{HolderInfo, LockName};
use std::time::{Duration, Instant};
use unicode_width::UnicodeWidthChar;

/// What a look at the service came to.
pub(super) type Found = Result<Vec<(LockName, HolderInfo)>, String>;

/// What is known, and which part of it is looked at.
pub(super) struct View {
    prefix: String,
    held: Vec<(LockName, HolderInfo)>,
    seen: Instant,
    failure: Option<String>,
    top: usize,
    /// How many locks the last frame had room for.
    room: usize,
}

impl View {
    pub(super) fn new(prefix: &str) -> Self {
        let prefix = prefix.to_owned();
        Self { prefix, held: Vec::new(), seen: Instant::now(), failure: None, top: 0, room: 1 }
    }

    /// Those that most wait for come first, then those that have been held longest.
    pub(super) fn update(&mut self, found: Found, now: Instant) {
        match found {
            Ok(mut held) => {
                held.sort_by(|(one, a), (two, b)| {
                    (b.waiters.unwrap_or(0), b.held_for, one).cmp(&(a.waiters.unwrap_or(0), a.held_for, two))
                });
                (self.held, self.seen, self.failure) = (held, now, None);
            }
            Err(failure) => self.failure = Some(failure),
        }
    }

    pub(super) fn scroll(&mut self, by: isize) {
        self.top = self.top.saturating_add_signed(by);
    }

    pub(super) fn page(&mut self, pages: isize) {
        self.scroll(pages.saturating_mul(isize::try_from(self.room).unwrap_or(1)));
    }
}

/// One picture: lines that are no wider than the terminal.
pub(super) struct Frame {
    pub(super) lines: Vec<String>,
}

const BOLD: &str = "\x1b[1m";
const REVERSE: &str = "\x1b[7m";
const GAP: usize = 2;

impl Frame {
    pub(super) fn of(view: &mut View, columns: usize, lines: usize, now: Instant) -> Self {
        // The title, the heads of the columns, and the last line.
        view.room = lines.saturating_sub(3).max(1);
        view.top = view.top.min(view.held.len().saturating_sub(view.room));
        let age = now.saturating_duration_since(view.seen);
        let shown: Vec<_> = view.held.iter().skip(view.top).take(view.room).collect();
        let rows: Vec<_> = shown.iter().map(|(name, holder)| Row::of(name, holder, age)).collect();
        let table = Table::fit(&rows, columns);
        let mut frame = vec![
            format!("{BOLD}{}", cut(&title(view), columns)),
            format!("{REVERSE}{}", table.line(&Row::head(), columns)),
        ];
        frame.extend(rows.iter().map(|row| table.line(row, columns)));
        if rows.is_empty() {
            frame.push(cut("nothing is held", columns));
        }
        frame.truncate(lines.saturating_sub(1).max(1));
        while frame.len() + 1 < lines {
            frame.push(String::new());
        }
        frame.push(cut(&foot(view, rows.len(), age), columns));
        frame.truncate(lines.max(1));
        Self { lines: frame }
    }
}

fn title(view: &View) -> String {
    let of = if view.prefix.is_empty() { String::new() } else { format!(" {}", clean(&view.prefix)) };
    let waiters = view.held.iter().filter_map(|(_, holder)| holder.waiters);
    let waiting: Option<u64> = waiters.fold(None, |sum, waiters| Some(sum.unwrap_or(0).saturating_add(waiters)));
    let waiting = waiting.map(|waiting| format!(", {waiting} waiting")).unwrap_or_default();
    format!("fencelock watch{of}: {} held{waiting}", view.held.len())
}

fn foot(view: &View, shown: usize, age: Duration) -> String {
    if let Some(failure) = &view.failure {
        return format!("{} old: {}", short(age), clean(failure));
    }
    if shown < view.held.len() {
        return format!("{}-{} of {}   q quits, j k space b scroll", view.top + 1, view.top + shown, view.held.len());
    }
    "q quits".to_owned()
}

/// The cells of one lock.
struct Row {
    name: String,
    holder: String,
    held: String,
    left: String,
    waiters: String,
    token: String,
    note: String,
}

impl Row {
    fn head() -> Self {
        let [name, holder, held, left, waiters, token, note] =
            ["NAME", "HOLDER", "HELD", "LEFT", "WAIT", "TOKEN", "NOTE"].map(str::to_owned);
        Self { name, holder, held, left, waiters, token, note }
    }

    fn of(name: &LockName, holder: &HolderInfo, age: Duration) -> Self {
        let unknown = || "-".to_owned();
        Self {
            name: clean(name.as_str()),
            holder: clean(&holder.holder),
            held: holder.held_for.map_or_else(unknown, |held| short(held.saturating_add(age))),
            left: holder.remaining.map_or_else(unknown, |left| short(left.saturating_sub(age))),
            waiters: holder.waiters.map_or_else(unknown, |waiters| waiters.to_string()),
            token: holder.token.to_string(),
            note: holder.note.as_deref().map(clean).unwrap_or_default(),
        }
    }
}

/// How wide the columns are; those that there is no room for are left out.
struct Table {
    name: usize,
    holder: usize,
    held: usize,
    left: usize,
    waiters: usize,
    token: usize,
    note: usize,
}

impl Table {
    fn fit(rows: &[Row], columns: usize) -> Self {
        let head = Row::head();
        let all = || rows.iter().chain([&head]);
        let widest = |cell: fn(&Row) -> &str| all().map(|row| width(cell(row))).max().unwrap_or_default();
        let (held, left, waiters) = (widest(|r| &r.held), widest(|r| &r.left), widest(|r| &r.waiters));
        let mut table = Self { name: 0, holder: 0, held, left, waiters, token: 0, note: 0 };
        let mut room = columns.saturating_sub(held + left + waiters + 4 * GAP);
        let (name, holder, note) = (widest(|r| &r.name), widest(|r| &r.holder), widest(|r| &r.note));
        let token = widest(|r| &r.token) + GAP;
        if columns >= 100 {
            table.token = token - GAP;
            room = room.saturating_sub(token);
        }
        let has_notes = rows.iter().any(|row| !row.note.is_empty());
        if has_notes && columns >= 60 {
            table.note = note.min(room / 4).max(4);
            room = room.saturating_sub(table.note + GAP);
        }
        table.holder = holder.min((room * 2 / 5).max(room.saturating_sub(name)));
        table.name = name.min(room.saturating_sub(table.holder));
        if table.note > 0 {
            // What the names and holders leave is the notes'.
            let spare = room.saturating_sub(table.name + table.holder);
            table.note = note.max(4).min(table.note + spare);
        }
        table
    }

    fn line(&self, row: &Row, columns: usize) -> String {
        let mut line = String::new();
        for (cell, width, is_number) in [
            (&row.name, self.name, false),
            (&row.holder, self.holder, false),
            (&row.held, self.held, true),
            (&row.left, self.left, true),
            (&row.waiters, self.waiters, true),
            (&row.token, self.token, true),
            (&row.note, self.note, false),
        ] {
            if width > 0 {
                let gap = if line.is_empty() { "" } else { "  " };
                line.push_str(gap);
                line.push_str(&padded(cell, width, is_number));
            }
        }
        cut(&line, columns)
    }
}

fn padded(text: &str, columns: usize, right: bool) -> String {
    let text = cut(text, columns);
    let pad = " ".repeat(columns.saturating_sub(width(&text)));
    if right { pad + &text } else { text + &pad }
}

/// As much of the text as fits, with a mark where something is left out.
fn cut(text: &str, columns: usize) -> String {
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
fn short(duration: Duration) -> String {
    let s = duration.as_secs();
    match s {
        0..60 => format!("{s}s"),
        60..3_600 => format!("{}m{:02}s", s / 60, s % 60),
        3_600..86_400 => format!("{}h{:02}m", s / 3_600, s / 60 % 60),
        _ => format!("{}d{:02}h", s / 86_400, s / 3_600 % 24),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
mod tests {
    use super::*;
    use fencelock::FencingToken;

    fn view(names: &[&str]) -> View {
        let mut view = View::new("");
        let holder = |at: usize| {
            HolderInfo::new(format!("host-{at}:4711"), FencingToken::new(1_700_000_000_000_000 + at as u64))
                .with_remaining(Duration::from_secs(29))
                .with_held_for(Duration::from_secs(3_700))
                .with_note(Some("req-7f3a".into()))
                .with_waiters(at as u64)
        };
        let held = names.iter().enumerate().map(|(at, name)| (LockName::new(name).unwrap(), holder(at)));
        view.update(Ok(held.collect()), Instant::now());
        view
    }

    fn bare(line: &str) -> String {
        line.replace(BOLD, "").replace(REVERSE, "")
    }

    #[test]
    fn every_line_fits_in_any_size_and_script() {
        let long = "x".repeat(500);
        let names = ["注文/東京/一〇〇一", "заказы/1001", "طلبات/١٠٠١", "ऑर्डर/१", "e\u{301}\u{302}", "👩‍🚀", &long, "a"];
        for columns in [1, 5, 20, 40, 80, 100, 200] {
            for lines in [1, 2, 3, 5, 24, 50] {
                let frame = Frame::of(&mut view(&names), columns, lines, Instant::now());
                assert_eq!(frame.lines.len(), lines, "{columns}×{lines}");
                for line in &frame.lines {
                    assert!(width(&bare(line)) <= columns, "{columns}×{lines}: {line}");
                }
            }
        }
        let frame = Frame::of(&mut view(&names), 200, 50, Instant::now());
        let heads = bare(&frame.lines[1]);
        for part in ["NAME", "HOLDER", "HELD", "LEFT", "WAIT", "TOKEN", "NOTE"] {
            assert!(heads.contains(part), "{heads}");
        }
        let most_waited_for = &frame.lines[2];
        assert!(most_waited_for.starts_with('a') && most_waited_for.contains("1h01m"), "{most_waited_for}");
    }

    #[test]
    fn columns_begin_in_the_same_place() {
        let frame = Frame::of(&mut view(&["注文", "abcd", "größe"]), 80, 24, Instant::now());
        let place = |line: &str| line.find("host").map(|at| width(&line[..at]));
        let places: Vec<_> = frame.lines[2..5].iter().map(|line| place(line)).collect();
        assert!(places[0].is_some() && places.windows(2).all(|pair| pair[0] == pair[1]), "{places:?}");
    }

    #[test]
    fn many_are_scrolled_through_and_an_error_is_told() {
        let names: Vec<_> = (0..500).map(|n| format!("n{n:03}")).collect();
        let names: Vec<_> = names.iter().map(|name| &**name).collect();
        let mut view = view(&names);
        let foot = |view: &mut View| Frame::of(view, 80, 24, Instant::now()).lines[23].clone();
        assert!(foot(&mut view).starts_with("1-21 of 500"));
        view.page(1);
        assert!(foot(&mut view).starts_with("22-42 of 500"));
        view.page(1_000);
        assert!(foot(&mut view).starts_with("480-500 of 500"));
        view.scroll(isize::MIN / 2);
        assert!(foot(&mut view).starts_with("1-21 of 500"));
        view.update(Err("gone\x1b[2J".to_owned()), Instant::now());
        assert_eq!(foot(&mut view), "0s old: gone\u{fffd}[2J");
    }
}
