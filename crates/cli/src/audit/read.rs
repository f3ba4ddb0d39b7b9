//! From lines to holds.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Microseconds since 1970 by the clock of the host that wrote it.
pub(super) type Time = i64;

/// The end of the year 9999, beyond which no time can be written.
const LAST: Time = 253_402_300_799_999_999;
/// The longest line in bytes that is looked at.
const LONGEST: u64 = 1 << 20;

/// All that several logs say.
#[derive(Debug, Default)]
pub(super) struct Logs {
    pub(super) files: Vec<String>,
    pub(super) lines: usize,
    /// Lines that are no events of ours.
    pub(super) skipped: usize,
    /// In the order of their grants.
    pub(super) holds: Vec<Hold>,
    pub(super) stale: Vec<Stale>,
    /// By engine, name and claim.
    index: BTreeMap<(String, String, String), usize>,
}

#[derive(Clone, Debug)]
pub(super) struct Hold {
    pub(super) engine: String,
    pub(super) name: String,
    pub(super) claim: String,
    pub(super) token: u64,
    pub(super) holder: String,
    pub(super) note: Option<String>,
    /// The file that told of it.
    pub(super) file: usize,
    pub(super) ttl_ms: Option<u64>,
    pub(super) waited_us: u64,
    pub(super) granted: Time,
    /// Its grant is in the logs; else it is reckoned from what came later.
    told: bool,
    /// Until when it was surely believed to be held.
    pub(super) end: Time,
    pub(super) ended: Ended,
    /// Until when it could have believed so by its last sign of life, which a killed process cannot tell.
    pub(super) until: Time,
    pub(super) held_us: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The logs end, or its process did.
    Unknown,
    Released,
    Lost(String),
}

/// A release of what had been lost.
#[derive(Clone, Debug)]
pub(super) struct Stale {
    pub(super) engine: String,
    pub(super) name: String,
    pub(super) claim: String,
    pub(super) token: u64,
    pub(super) holder: String,
    pub(super) at: Time,
}

/// One event of ours in one line.
struct Event<'v> {
    top: &'v Value,
    fields: &'v Value,
    at: Time,
    /// When the line was written, which is later.
    written: Time,
}

impl<'v> Event<'v> {
    fn of(line: &'v Value) -> Option<Self> {
        let top = line;
        // With flattened events the fields stand beside the time stamp.
        let fields = top.get("fields").unwrap_or(top);
        (top.get("target")?.as_str()? == "fencelock").then_some(())?;
        let written = top.get("timestamp").and_then(Value::as_str).and_then(time);
        // A process may be kept waiting between what it measures and what it writes.
        let at = fields.get("at_us").and_then(Value::as_i64).or(written)?;
        let can_be_shown = (0..=LAST).contains(&at);
        can_be_shown.then_some(Self { top, fields, at, written: written.unwrap_or(at) })
    }

    fn get(&self, name: &str) -> Option<&'v Value> {
        self.fields.get(name).or_else(|| self.top.get(name))
    }

    fn text(&self, name: &str) -> Option<&'v str> {
        self.get(name)?.as_str()
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.as_u64()
    }

    fn micros(&self, name: &str) -> Time {
        i64::try_from(self.number(name).unwrap_or_default()).unwrap_or(i64::MAX)
    }

    /// The field that says how long ago the hold ended, where the event tells of its end.
    fn back(&self) -> Time {
        match self.text("event") {
            Some("released") => self.micros("took_us"),
            Some("lost") => self.micros("overdue_us"),
            _ => 0,
        }
    }

    /// When the hold of which this tells was granted: rather too late than too early.
    fn granted(&self) -> Option<Time> {
        match self.text("event")? {
            "granted" => Some(self.at),
            "renewed" | "jeopardy" | "released" | "lost" => {
                self.number("held_us")?;
                Some(self.written.saturating_sub(self.back()).saturating_sub(self.micros("held_us")).clamp(0, LAST))
            }
            _ => None,
        }
    }

    /// Until when the hold could be believed, as far as this event says.
    fn until(&self) -> Time {
        let left = match self.text("event") {
            Some("granted") => self.number("ttl_ms"),
            Some("renewed" | "jeopardy") => self.number("remaining_ms"),
            _ => None,
        };
        let left = i64::try_from(left.unwrap_or_default()).unwrap_or(i64::MAX).saturating_mul(1_000);
        self.at.saturating_add(left).min(LAST)
    }

    fn hold(&self, file: usize) -> Option<Hold> {
        let granted = self.granted()?;
        Some(Hold {
            engine: self.text("engine")?.to_owned(),
            name: self.text("name")?.to_owned(),
            claim: self.text("claim")?.to_owned(),
            token: self.number("token")?,
            holder: self.text("holder").unwrap_or_default().to_owned(),
            note: self.text("note").map(str::to_owned),
            file,
            ttl_ms: self.number("ttl_ms"),
            waited_us: self.number("waited_us").unwrap_or_default(),
            granted,
            told: self.text("event") == Some("granted"),
            end: granted,
            ended: Ended::Unknown,
            until: self.until(),
            held_us: None,
        })
    }

    fn stale(&self) -> Option<Stale> {
        Some(Stale {
            engine: self.text("engine")?.to_owned(),
            name: self.text("name")?.to_owned(),
            claim: self.text("claim")?.to_owned(),
            token: self.number("token")?,
            holder: self.text("holder").unwrap_or_default().to_owned(),
            at: self.at,
        })
    }
}

/// A time stamp of RFC 3339, with any offset.
pub(super) fn time(text: &str) -> Option<Time> {
    let is_utc = text.ends_with(['Z', 'z']);
    let at = if is_utc { text.len().checked_sub(1)? } else { text.len().checked_sub(6)? };
    let (local, offset) = (text.get(..at)?, text.get(at..)?);
    let local = humantime::parse_rfc3339_weak(local).ok()?;
    let since = local.duration_since(UNIX_EPOCH).ok()?;
    let micros = i64::try_from(since.as_micros()).ok()?;
    if is_utc {
        return Some(micros);
    }
    let minutes = offset.get(1..3)?.parse::<i64>().ok()? * 60 + offset.get(4..6)?.parse::<i64>().ok()?;
    match offset.get(..1)? {
        "+" => micros.checked_sub(minutes * 60_000_000),
        "-" => micros.checked_add(minutes * 60_000_000),
        _ => None,
    }
}

/// The time as people write it.
pub(super) fn shown(time: Time) -> String {
    let since = std::time::Duration::from_micros(u64::try_from(time).unwrap_or_default());
    SystemTime::UNIX_EPOCH
        .checked_add(since)
        .map_or_else(|| time.to_string(), |time| humantime::format_rfc3339_micros(time).to_string())
}

impl Logs {
    pub(super) fn read(&mut self, file: &Path) -> io::Result<()> {
        let name = file.display().to_string();
        if name == "-" {
            return self.read_from(&name, io::stdin().lock());
        }
        self.read_from(&name, BufReader::new(File::open(file)?))
    }

    pub(super) fn read_from(&mut self, file: &str, mut log: impl BufRead) -> io::Result<()> {
        self.files.push(file.to_owned());
        let mut line = Vec::new();
        while (&mut log).take(LONGEST).read_until(b'\n', &mut line)? > 0 {
            self.lines += 1;
            if !line.ends_with(b"\n") {
                // The end of the log, or a line that is none of ours.
                let rest = log.skip_until(b'\n')?;
                line.truncate(if rest > 0 { 0 } else { line.len() });
            }
            // Anything may stand between our lines, such as what a command said on the same terminal.
            let value = serde_json::from_slice::<Value>(&line).ok();
            if value.as_ref().and_then(Event::of).and_then(|event| self.take(&event)).is_none() {
                self.skipped += 1;
            }
            line.clear();
        }
        Ok(())
    }

    fn take(&mut self, event: &Event<'_>) -> Option<()> {
        let kind = event.text("event")?;
        let key = (event.text("engine")?.to_owned(), event.text("name")?.to_owned(), event.text("claim")?.to_owned());
        if kind == "stale_release" {
            self.stale.push(event.stale()?);
            return Some(());
        }
        let known = self.index.get(&key).copied();
        let at = match known {
            Some(at) => at,
            None if matches!(kind, "acquire" | "contended" | "abandoned" | "contended_here") => return Some(()),
            // The beginning of its log may be gone, or in a file that is still to come.
            None => {
                self.holds.push(event.hold(self.files.len().saturating_sub(1))?);
                self.index.insert(key, self.holds.len().saturating_sub(1));
                self.holds.len().saturating_sub(1)
            }
        };
        let hold = self.holds.get_mut(at)?;
        match kind {
            // The same log given twice is one hold.
            "granted" if !hold.told => {
                let told = event.hold(hold.file)?;
                let (end, ended, held_us) = (hold.end.max(told.granted), hold.ended.clone(), hold.held_us);
                let until = hold.until.max(told.until);
                *hold = Hold { end, ended, until, held_us, ..told };
            }
            // It believed so when it said this; of what came later nothing is known.
            "renewed" | "jeopardy" if hold.ended == Ended::Unknown && event.number("remaining_ms") != Some(0) => {
                hold.end = hold.end.max(event.at);
                hold.until = hold.until.max(event.until());
            }
            "released" | "lost" => {
                let ended = match kind {
                    "lost" => Ended::Lost(event.text("reason").unwrap_or("unknown").to_owned()),
                    _ => Ended::Released,
                };
                if hold.ended == Ended::Unknown {
                    hold.end = event.at.saturating_sub(event.back()).max(hold.granted);
                    (hold.ended, hold.held_us) = (ended, event.number("held_us"));
                } else if let (Ended::Lost(_), Ended::Released) = (&hold.ended, &ended) {
                    self.stale.extend(event.stale());
                }
            }
            _ => {}
        }
        Some(())
    }

    /// All holds by engine and name, each name's in the order of their grants.
    pub(super) fn by_name(&self) -> BTreeMap<(&str, &str), Vec<&Hold>> {
        let mut names: BTreeMap<_, Vec<&Hold>> = BTreeMap::new();
        for hold in &self.holds {
            names.entry((&*hold.engine, &*hold.name)).or_default().push(hold);
        }
        names.values_mut().for_each(|holds| holds.sort_by_key(|hold| (hold.granted, hold.token)));
        names
    }

    pub(super) fn file(&self, at: usize) -> &str {
        self.files.get(at).map_or("", |file| file)
    }
}
