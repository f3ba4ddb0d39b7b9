//! What stands where, for any size of terminal and names in any script.

use super::row::{Row, cut, padded, short};
use crate::output::{clean, width};
use fencelock::{HolderInfo, LockName};
use std::time::{Duration, Instant};

/// What a look at the service came to.
pub(super) type Found = Result<Vec<(LockName, HolderInfo)>, String>;

/// What is known, and which part of it is looked at.
pub(super) struct View {
    prefix: String,
    held: Vec<(LockName, HolderInfo)>,
    seen: Instant,
    failure: Option<String>,
    top: usize,
    /// How many lines the last frame had room for.
    room: usize,
}

/// How many of those who wait for one lock have a line each.
const SHOWN: usize = 10;

/// What stands in one line.
#[derive(Clone, Copy)]
enum Line {
    /// A lock, and who holds it.
    Holder(usize),
    /// One who waits for the lock: which, and in which place.
    Waiter(usize, usize),
    /// How many more wait for it.
    More(u64),
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
                    (b.waiters.unwrap_or(0), since(b), one).cmp(&(a.waiters.unwrap_or(0), since(a), two))
                });
                (self.held, self.seen, self.failure) = (held, now, None);
            }
            Err(failure) => self.failure = Some(failure),
        }
    }

    pub(super) fn scroll(&mut self, by: isize) {
        self.top = self.top.saturating_add_signed(by);
    }

    /// Each lock, and under it who waits for it.
    fn lines(&self) -> Vec<Line> {
        let mut lines = Vec::new();
        for (lock, (_, holder)) in self.held.iter().enumerate() {
            lines.push(Line::Holder(lock));
            // One line says as much as one more.
            let known = holder.waiting.len();
            let shown = if known <= SHOWN + 1 { known } else { SHOWN };
            lines.extend((0..shown).map(|place| Line::Waiter(lock, place)));
            let others = holder.waiters.unwrap_or(0).saturating_sub(u64::try_from(shown).unwrap_or(u64::MAX));
            if shown > 0 && others > 0 {
                lines.push(Line::More(others));
            }
        }
        lines
    }

    fn row(&self, line: Line, age: Duration) -> Option<Row> {
        match line {
            Line::Holder(lock) => self.held.get(lock).map(|(name, holder)| Row::of(name, holder, age)),
            Line::Waiter(lock, place) => {
                let (_, holder) = self.held.get(lock)?;
                holder.waiting.get(place).map(|waiter| Row::waiting(place + 1, waiter, age))
            }
            Line::More(others) => Some(Row::more(others)),
        }
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
        let all = view.lines();
        view.top = view.top.min(all.len().saturating_sub(view.room));
        let age = now.saturating_duration_since(view.seen);
        let shown = all.iter().skip(view.top).take(view.room);
        let rows: Vec<_> = shown.filter_map(|line| view.row(*line, age)).collect();
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
        frame.push(cut(&foot(view, rows.len(), all.len(), age), columns));
        frame.truncate(lines.max(1));
        Self { lines: frame }
    }
}

fn title(view: &View) -> String {
    let of = if view.prefix.is_empty() { String::new() } else { format!(" {}", clean(&view.prefix)) };
    let waiters = view.held.iter().filter_map(|(_, holder)| holder.waiters);
    let waiting: Option<u64> = waiters.fold(None, |sum, waiters| Some(sum.unwrap_or(0).saturating_add(waiters)));
    let waiting = match waiting {
        Some(waiting) => format!(", {waiting} waiting"),
        None if view.held.is_empty() => String::new(),
        None => ", who waits is not known by this engine".to_owned(),
    };
    format!("fencelock watch{of}: {} held{waiting}", view.held.len())
}

fn foot(view: &View, shown: usize, all: usize, age: Duration) -> String {
    if let Some(failure) = &view.failure {
        return format!("{} old: {}", short(age), clean(failure));
    }
    if shown < all {
        return format!("{}-{} of {all}   q quits, j k space b scroll", view.top + 1, view.top + shown);
    }
    "q quits".to_owned()
}

/// How wide the columns are; those that there is no room for are left out.
struct Table {
    name: usize,
    holder: usize,
    time: usize,
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
        let (time, left, waiters) = (widest(|r| &r.time), widest(|r| &r.left), widest(|r| &r.waiters));
        let mut table = Self { name: 0, holder: 0, time, left, waiters, token: 0, note: 0 };
        let mut room = columns.saturating_sub(time + left + waiters + 4 * GAP);
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
            (&row.time, self.time, true),
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

/// How long it has been held; at most, where only that is known.
fn since(holder: &HolderInfo) -> Option<Duration> {
    holder.held_for.or(holder.asked_ago)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
mod tests {
    use super::*;
    use fencelock::{FencingToken, Waiter};

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
        for part in ["NAME", "HOLDER", "FOR", "LEFT", "WAIT", "TOKEN", "NOTE"] {
            assert!(heads.contains(part), "{heads}");
        }
        let most_waited_for = &frame.lines[2];
        assert!(most_waited_for.starts_with('a') && most_waited_for.contains("1h01m"), "{most_waited_for}");
    }

    fn waiting(count: usize) -> HolderInfo {
        let waiter = |n| Waiter::new(format!("ждёт-{n}:1")).with_waited_for(Duration::from_secs(61 * n));
        let waiting = (0..count as u64).map(|n| waiter(n).with_note(Some("注文 req".into())));
        HolderInfo::new("h", FencingToken::new(1))
            .with_asked_ago(Duration::from_secs(7))
            .with_waiting(waiting.collect())
    }

    fn shown(held: Vec<(&str, HolderInfo)>, columns: usize, lines: usize) -> Vec<String> {
        let mut view = View::new("");
        let held = held.into_iter().map(|(name, holder)| (LockName::new(name).unwrap(), holder));
        view.update(Ok(held.collect()), Instant::now());
        let frame = Frame::of(&mut view, columns, lines, Instant::now());
        assert_eq!(frame.lines.len(), lines);
        assert!(frame.lines.iter().all(|line| width(&bare(line)) <= columns), "{:?}", frame.lines);
        frame.lines.iter().map(|line| bare(line)).collect()
    }

    #[test]
    fn who_waits_stands_under_the_lock_and_for_how_long() {
        for (columns, lines) in [(80, 24), (200, 50), (40, 6), (3, 3)] {
            let lines = shown(vec![("a", waiting(0)), ("b", waiting(2)), ("c", waiting(40))], columns, lines);
            if columns < 80 {
                continue;
            }
            assert!(lines[0].contains("3 held, 42 waiting"), "{lines:?}");
            assert!(lines[2].starts_with("c ") && lines[2].contains("≤7s") && lines[2].contains("40"), "{lines:?}");
            assert!(lines[3].starts_with("  1 waits") && lines[3].contains("ждёт-0:1"), "{lines:?}");
            assert!(lines[12].starts_with("  10 waits") && lines[12].contains("9m09s"), "{lines:?}");
            assert!(lines[12].contains("注文 req") && lines[13].starts_with("  30 more wait"), "{lines:?}");
            assert!(lines[14].starts_with("b ") && lines[16].contains("ждёт-1:1"), "{lines:?}");
            assert!(lines[17].starts_with("a "), "{lines:?}");
        }
        let eleven = shown(vec![("a", waiting(11))], 80, 24);
        assert!(eleven[13].starts_with("  11 waits"), "{eleven:?}");
        let many = shown((0..500).map(|_| ("a", waiting(3))).collect(), 80, 24);
        assert!(many[0].contains("500 held, 1500 waiting") && many[23].starts_with("1-21 of 2000"), "{many:?}");
    }

    #[test]
    fn what_the_engine_does_not_know_is_said() {
        let lines = shown(vec![("a", HolderInfo::new("h", FencingToken::new(1)))], 80, 24);
        assert!(lines[0].ends_with("1 held, who waits is not known by this engine"), "{lines:?}");
        assert!(shown(Vec::new(), 80, 24)[0].ends_with("0 held"));
        let counted = shown(vec![("a", waiting(0).with_waiters(3))], 80, 24);
        assert!(counted[0].ends_with("1 held, 3 waiting") && counted[3].is_empty(), "{counted:?}");
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
