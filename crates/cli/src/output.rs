//! What is written to the terminal, and how.

use std::fmt::Display;
use std::io::{self, Write};
use std::time::{Duration, SystemTime};
use unicode_width::UnicodeWidthChar;

/// Tells the user something on standard error. That nobody can read it is no reason to fail.
pub(crate) fn say(message: impl Display) {
    let _ = writeln!(io::stderr().lock(), "fencelock: {message}");
}

/// The longest that [`tell`] waits.
#[cfg(unix)]
const PATIENCE: Duration = Duration::from_millis(50);

/// Tells the user something as [`say`] does, for whoever must not wait: if standard
/// error takes nothing now (a full pipe, a terminal that Ctrl-S has stopped), the
/// message is left to a thread of its own, and is lost if the process ends first.
#[cfg(unix)]
pub(crate) fn tell(message: impl Display) {
    let message = message.to_string();
    let (said, done) = std::sync::mpsc::sync_channel(1);
    let writer = std::thread::Builder::new().spawn(move || {
        say(message);
        let _ = said.send(());
    });
    if writer.is_ok() {
        // Nearly always at once; and what is told next comes after it.
        let _ = done.recv_timeout(PATIENCE);
    }
}

/// Whether standard error takes something now: not if it is a full pipe, or a
/// terminal that Ctrl-S has stopped.
pub(crate) fn takes_errors() -> bool {
    #[cfg(unix)]
    {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let errors = io::stderr();
        let mut ready = [PollFd::new(&errors, PollFlags::OUT)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut ready, Some(&now)).is_ok_and(|ready| ready > 0)
    }
    #[cfg(not(unix))]
    true
}

/// Writes an answer to standard output. A reader that has gone away, as in `… | head`, is no error.
pub(crate) fn answer(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Writes a JSON value and a line end to standard output.
pub(crate) fn answer_json(value: &serde_json::Value) -> io::Result<()> {
    answer(&format!("{}\n", harmless(value)))
}

/// JSON as harmless for a terminal as [`clean`] text is: what that leaves out is escaped
/// here, and nothing is lost. It can only stand inside of JSON's texts.
fn harmless(value: &serde_json::Value) -> String {
    let mut text = String::new();
    for c in format!("{value:#}").chars() {
        if is_odd(c) && c != '\n' {
            text.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            text.push(c);
        }
    }
    text
}

/// Text that others chose, made harmless for a terminal: no control characters,
/// and none that turn the direction of what follows.
pub(crate) fn clean(text: &str) -> String {
    text.chars().map(|c| if is_odd(c) { '\u{fffd}' } else { c }).collect()
}

/// Control characters, line and paragraph separators, and what turns the direction of text.
fn is_odd(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// How many columns of a terminal the text takes, in any script.
pub(crate) fn width(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or_default()).sum()
}

/// A duration for people: whole seconds from one second on.
pub(crate) fn human(duration: Duration) -> String {
    let rounded = if duration < Duration::from_secs(1) {
        Duration::from_millis(u64::from(duration.subsec_millis()))
    } else {
        Duration::from_secs(duration.as_secs())
    };
    humantime::format_duration(rounded).to_string()
}

/// The time `ago`, in UTC by this host's clock.
pub(crate) fn since(ago: Duration) -> Option<String> {
    SystemTime::now().checked_sub(ago).map(|then| humantime::format_rfc3339_seconds(then).to_string())
}

/// Milliseconds, as JSON has them.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Columns of text, each as wide as its widest cell.
pub(crate) fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(crate::output::width(cell));
        }
    }
    let mut text = String::new();
    for row in rows {
        let line: Vec<_> = row
            .iter()
            .zip(widths)
            .map(|(cell, most)| format!("{cell}{}", " ".repeat(most.saturating_sub(width(cell)))))
            .collect();
        text.push_str(line.join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_cannot_move_the_cursor() {
        assert_eq!(clean("a\x1b[2Jb\nc\u{9b}d"), "a\u{fffd}[2Jb\u{fffd}c\u{fffd}d");
    }

    #[test]
    fn json_cannot_either_and_says_all_that_was_there() {
        let value = serde_json::json!({ "note": "a\x1b[2J\u{9b}31m\n\x7f\u{202e}\u{2028}注文👩", "n": [1] });
        let text = harmless(&value);
        assert!(!text.contains(|c| is_odd(c) && c != '\n'), "{text}");
        assert!(text.contains("\\u009b31m\\n\\u007f\\u202e\\u2028注文👩"), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }

    #[test]
    fn durations_are_short() {
        assert_eq!(human(Duration::from_nanos(1_500_000_000)), "1s");
        assert_eq!(human(Duration::from_nanos(20_900_000)), "20ms");
        assert_eq!(human(Duration::ZERO), "0s");
    }

    #[test]
    fn columns_line_up() {
        let row = |a: &str, b: &str| [a.to_owned(), b.to_owned()];
        assert_eq!(columns(&[row("name", "x"), row("größe", "")]), "name   x\ngröße\n");
        assert_eq!(columns(&[row("注文", "x"), row("abcd", "y")]), "注文  x\nabcd  y\n");
    }
}
