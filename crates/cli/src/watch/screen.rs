//! The terminal, and what is typed on it. Left as it was found.

use super::layout::Frame;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::collections::VecDeque;
use std::io::{self, IsTerminal, Read, Write, stdin, stdout};
use tokio::sync::mpsc;

/// Another screen, no cursor, no wrapping.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Quit,
    Scroll(isize),
    Page(isize),
    Top,
}

pub(super) struct Screen {
    before: Option<Termios>,
    keys: mpsc::UnboundedReceiver<Vec<u8>>,
    typed: VecDeque<Key>,
}

impl Screen {
    pub(super) fn enter() -> io::Result<Self> {
        let before = if stdin().is_terminal() { tcgetattr(stdin()).ok() } else { None };
        if let Some(before) = &before {
            let mut quiet = before.clone();
            // Keys come one by one and are not shown; Ctrl-C is a key too, so that the screen is left behind whole.
            quiet.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
            tcsetattr(stdin(), OptionalActions::Now, &quiet)?;
        }
        let (sent, keys) = mpsc::unbounded_channel();
        if before.is_some() {
            std::thread::Builder::new().spawn(move || {
                let mut typed = [0; 64];
                while let Ok(n @ 1..) = stdin().read(&mut typed) {
                    if sent.send(typed.get(..n).unwrap_or_default().to_vec()).is_err() {
                        break;
                    }
                }
            })?;
        }
        let screen = Self { before, keys, typed: VecDeque::new() };
        write(ENTER)?;
        Ok(screen)
    }

    /// Columns and lines.
    pub(super) fn size(&self) -> (usize, usize) {
        match tcgetwinsize(stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (usize::from(size.ws_col), usize::from(size.ws_row)),
            _ => (80, 24),
        }
    }

    pub(super) fn draw(&mut self, frame: &Frame) -> io::Result<()> {
        let mut text = String::new();
        for (at, line) in frame.lines.iter().enumerate() {
            text.push_str(&format!("\x1b[{};1H{line}\x1b[0m\x1b[K", at + 1));
        }
        text.push_str("\x1b[J");
        write(&text)
    }

    /// The next key. Never, where there is no keyboard.
    pub(super) async fn key(&mut self) -> Key {
        loop {
            if let Some(key) = self.typed.pop_front() {
                return key;
            }
            match self.keys.recv().await {
                Some(typed) => self.typed.extend(decoded(&typed)),
                None => std::future::pending().await,
            }
        }
    }
}

const KEYS: [(&[u8], Key); 15] = [
    (b"q", Key::Quit),
    (b"Q", Key::Quit),
    (b"\x03", Key::Quit),
    (b"k", Key::Scroll(-1)),
    (b"\x1b[A", Key::Scroll(-1)),
    (b"\x1bOA", Key::Scroll(-1)),
    (b"j", Key::Scroll(1)),
    (b"\x1b[B", Key::Scroll(1)),
    (b"\x1bOB", Key::Scroll(1)),
    (b"b", Key::Page(-1)),
    (b"\x1b[5~", Key::Page(-1)),
    (b" ", Key::Page(1)),
    (b"\x1b[6~", Key::Page(1)),
    (b"g", Key::Top),
    (b"\x1b[H", Key::Top),
];

/// The keys of what was typed so fast that it came at once, as over a slow line.
fn decoded(mut typed: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    while let Some(after) = typed.get(1..) {
        let known = KEYS.iter().find_map(|(code, key)| Some((typed.strip_prefix(*code)?, *key)));
        typed = match known {
            Some((rest, key)) => {
                keys.push(key);
                rest
            }
            None => after,
        };
    }
    keys
}

fn write(text: &str) -> io::Result<()> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = write(LEAVE);
        if let Some(before) = &self.before {
            let _ = tcsetattr(stdin(), OptionalActions::Now, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_come_at_once_are_all_heard_and_odd_ones_do_nothing() {
        let all = [Key::Scroll(1), Key::Scroll(1), Key::Scroll(-1), Key::Page(1), Key::Quit];
        assert_eq!(decoded(b"jj\x1b[A\x1b[6~q"), all);
        // An arrow key of which a slow line brings the beginning alone does not quit.
        assert_eq!(decoded("\x1bÄx\0".as_bytes()), []);
        assert_eq!(decoded(b""), []);
    }
}
