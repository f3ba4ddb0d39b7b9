//! One quiet line while a lock is waited for.

use crate::output::{clean, human, takes_errors};
use fencelock::{HolderInfo, LockClient};
use std::convert::Infallible;
use std::io::{IsTerminal, Write, stderr};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Shorter waits pass in silence.
const QUIET: Duration = Duration::from_millis(400);
const REFRESH: Duration = Duration::from_secs(1);

/// Shows who is waited for until dropped, if standard error is a terminal. The
/// line is erased when the future is dropped.
pub(crate) async fn show(client: &LockClient, name: &str) -> Infallible {
    if !stderr().is_terminal() {
        return std::future::pending().await;
    }
    let start = Instant::now();
    sleep(QUIET).await;
    let mut line = Line { drawn: false };
    loop {
        let holder = timeout(REFRESH, client.inspect(name)).await;
        line.draw(&text(name, start.elapsed(), holder.ok().and_then(Result::ok).flatten().as_ref()));
        sleep(REFRESH).await;
    }
}

fn text(name: &str, waited: Duration, holder: Option<&HolderInfo>) -> String {
    let mut text = format!("waiting for {} ({})", clean(name), human(waited));
    if let Some(holder) = holder {
        text.push_str(&format!(", held by {}", clean(&holder.holder)));
        if let Some(held) = holder.held_for {
            text.push_str(&format!(" for {}", human(held)));
        }
        if let Some(note) = &holder.note {
            text.push_str(&format!(": {}", clean(note)));
        }
    }
    text
}

/// The last line of the terminal.
struct Line {
    drawn: bool,
}

impl Line {
    fn draw(&mut self, text: &str) {
        if !may_draw() {
            return;
        }
        self.drawn = true;
        // A line that wraps could not be erased.
        let text: String = text.chars().take(width().saturating_sub(1)).collect();
        let _ = write!(stderr().lock(), "\r\x1b[K{text}");
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.drawn && may_draw() {
            let _ = write!(stderr().lock(), "\r\x1b[K");
        }
    }
}

/// Not over somebody else's line while in the background, and not while the
/// terminal is stopped, for that would stop us too.
fn may_draw() -> bool {
    is_in_foreground() && takes_errors()
}

fn is_in_foreground() -> bool {
    rustix::termios::tcgetpgrp(stderr()).map_or(true, |foreground| foreground == rustix::process::getpgrp())
}

fn width() -> usize {
    if let Ok(size) = rustix::termios::tcgetwinsize(stderr())
        && size.ws_col > 0
    {
        return usize::from(size.ws_col);
    }
    80
}
