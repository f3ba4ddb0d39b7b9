//! The table: a text file, one row a line, changed under the file's lock.

use super::{Flaw, broke};
use fencelock_core::{Claim, ClaimId, Clock, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::{Read, Seek, Write};
use std::path::Path;

#[derive(Default)]
pub(crate) struct Table {
    pub(crate) rows: BTreeMap<String, Row>,
    pub(crate) voids: BTreeSet<String>,
    /// The last token of each name that was ever held.
    pub(crate) tokens: BTreeMap<String, u64>,
}

#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) token: u64,
    pub(crate) expires: u64,
    pub(crate) delay: u64,
    pub(crate) holder: String,
    pub(crate) note: String,
    /// For the flaw of letting two in.
    pub(crate) second: bool,
}

impl Row {
    pub(crate) fn of(claim: &Claim, token: u64, expires: u64) -> Self {
        let (holder, note) = (claim.holder().to_string(), claim.note().map(ToString::to_string).unwrap_or_default());
        let delay = u64::try_from(claim.lock_delay().as_nanos()).unwrap_or(u64::MAX);
        Self { id: claim.id().to_string(), token, expires, delay, holder, note, second: false }
    }

    /// What a forced release leaves of a hold with a lock delay: nobody's, and not free.
    pub(crate) fn closed(self, now: u64) -> Self {
        Self { id: String::new(), expires: self.expires.min(now + self.delay), holder: String::new(), ..self }
    }

    pub(crate) fn is_held(&self) -> bool {
        !self.id.is_empty()
    }

    pub(crate) fn is(&self, id: ClaimId) -> bool {
        self.id == id.to_string()
    }
}

/// The key that a name has in the table.
pub(crate) fn key(name: &str, flaw: Flaw) -> String {
    match flaw {
        Flaw::FoldsCase => name.to_lowercase(),
        Flaw::CutsNamesAtSlash => name.split('/').next().unwrap_or_default().to_owned(),
        Flaw::CutsLongNames => name.chars().take(200).collect(),
        Flaw::TrimsNames => name.trim().to_owned(),
        _ => name.to_owned(),
    }
}

/// One step, whole. Rows that have run out are gone before it.
pub(crate) fn step<T>(dir: &Path, change: impl FnOnce(&mut Table, u64) -> T) -> Result<T> {
    let path = dir.join("table");
    let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(broke)?;
    file.lock().map_err(broke)?;
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(broke)?;
    let mut table = Table::parse(&text);
    let now = Clock::system().now().as_nanos();
    let done = change(&mut table, now);
    let new = table.print();
    if new != text {
        file.rewind().and_then(|()| file.set_len(0)).map_err(broke)?;
        file.write_all(new.as_bytes()).map_err(broke)?;
    }
    Ok(done)
}

impl Table {
    fn parse(text: &str) -> Self {
        let mut table = Self::default();
        for line in text.lines() {
            match line.split('\t').collect::<Vec<_>>().as_slice() {
                ["row", name, id, token, expires, delay, holder, note, second] => {
                    let (token, expires) = (token.parse().unwrap(), expires.parse().unwrap());
                    let delay = delay.parse().unwrap();
                    let (id, holder, note) = ((*id).to_owned(), (*holder).to_owned(), (*note).to_owned());
                    let row = Row { id, token, expires, delay, holder, note, second: *second == "true" };
                    table.rows.insert((*name).to_owned(), row);
                }
                ["void", id] => {
                    table.voids.insert((*id).to_owned());
                }
                ["token", name, token] => {
                    table.tokens.insert((*name).to_owned(), token.parse().unwrap());
                }
                odd => panic!("no such line: {odd:?}"),
            }
        }
        table
    }

    fn print(&self) -> String {
        let mut lines = Vec::new();
        for (name, r) in &self.rows {
            let Row { id, token, expires, delay, holder, note, second } = r;
            lines.push(format!("row\t{name}\t{id}\t{token}\t{expires}\t{delay}\t{holder}\t{note}\t{second}"));
        }
        lines.extend(self.voids.iter().map(|id| format!("void\t{id}")));
        lines.extend(self.tokens.iter().map(|(name, token)| format!("token\t{name}\t{token}")));
        lines.into_iter().map(|line| line + "\n").collect()
    }

    /// Drops the row of `key` if it has run out.
    pub(crate) fn expire(&mut self, key: &str, now: u64) {
        if self.rows.get(key).is_some_and(|row| row.expires <= now) {
            self.rows.remove(key);
        }
    }
}
