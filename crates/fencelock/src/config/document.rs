//! A configuration file taken apart: `[lock]`, and a table for each engine.

use super::keys::{self, Kind};
use super::layer::{Layer, invalid};
use super::value::text;
use crate::merge::check_each;
use fencelock_core::{Error, Result, did_you_mean};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// What a file says.
#[derive(Clone, Debug, Default)]
pub(super) struct Document {
    pub(super) common: Layer,
    pub(super) tables: Vec<Table>,
}

/// `[lock.ENGINE]`.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) engine: String,
    pub(super) place: String,
    pub(super) layer: Layer,
}

/// A text, and what it is called in errors.
struct Source<'t> {
    text: &'t str,
    origin: &'t str,
}

type Entry<'e, 't> = (&'e str, String, &'e Spanned<DeValue<'t>>);

impl Document {
    pub(super) fn parse(text: &str, origin: &str) -> Result<Self> {
        let source = Source { text, origin };
        let root = DeTable::parse(text).map_err(|e| source.not_toml(&e))?;
        let mut document = Self::default();
        for (key, place, value) in source.entries(root.get_ref()) {
            match value.get_ref() {
                DeValue::Table(lock) if key == "lock" => document.lock(&source, lock)?,
                _ if key == "lock" => return Err(invalid(format!("{place}: `lock` is a table, written `[lock]`"))),
                DeValue::Table(_) => {
                    let hint = did_you_mean(key, ["lock"]);
                    return Err(invalid(format!("{place}: unknown table `[{key}]`{hint}")));
                }
                _ => return Err(invalid(format!("{place}: `{key}` stands outside of `[lock]`"))),
            }
        }
        Ok(document)
    }

    fn lock(&mut self, source: &Source<'_>, lock: &DeTable<'_>) -> Result<()> {
        for (key, place, value) in source.entries(lock) {
            match (keys::kind(key), value.get_ref()) {
                (Some(kind), found) => {
                    self.common.set(key, checked(&place, key, kind, found)?, &place);
                    self.note_each(source, key, found)?;
                }
                (None, DeValue::Table(table)) => {
                    let layer = engine(source, key, table)?;
                    self.tables.push(Table { engine: key.to_owned(), place, layer });
                }
                (None, DeValue::Array(list)) if list.iter().any(|item| item.get_ref().is_table()) => {
                    return Err(invalid(format!("{place}: `[[lock.{key}]]` has one pair of brackets too many")));
                }
                (None, _) => return Err(unknown(&place, key)),
            }
        }
        Ok(())
    }

    /// The values of a list have a line each.
    fn note_each(&mut self, source: &Source<'_>, key: &str, list: &DeValue<'_>) -> Result<()> {
        for item in list.as_array().into_iter().flat_map(|list| list.iter()) {
            let (Some(text), place) = (item.get_ref().as_str(), source.place(item)) else { continue };
            check_each(key, text, &place)?;
            self.common.origins.note(text, &place);
        }
        Ok(())
    }
}

fn engine(source: &Source<'_>, engine: &str, table: &DeTable<'_>) -> Result<Layer> {
    let mut layer = Layer::default();
    for (key, place, value) in source.entries(table) {
        let kind = match keys::kind(key) {
            Some(kind) if keys::is_credential(key) => kind,
            Some(_) => return Err(invalid(format!("{place}: `{key}` belongs in `[lock]`, not in `[lock.{engine}]`"))),
            None => Kind::Any,
        };
        layer.set(key, checked(&place, key, kind, value.get_ref())?, &place);
    }
    Ok(layer)
}

fn checked(place: &str, key: &str, kind: Kind, value: &DeValue<'_>) -> Result<String> {
    text(kind, value).map_err(|right| invalid(format!("{place}: `{key}` is {right}")))
}

fn unknown(place: &str, key: &str) -> Error {
    let mut hint = did_you_mean(key, keys::names());
    if !hint.starts_with("; did you mean") {
        hint.push_str("; what is the engine's own stands in its table, such as `[lock.sqlite]`");
    }
    invalid(format!("{place}: unknown setting `{key}`{hint}"))
}

impl<'t> Source<'t> {
    /// The entries of a table in the order in which they are written, each with its place.
    fn entries<'e>(&self, table: &'e DeTable<'t>) -> Vec<Entry<'e, 't>> {
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        entries.into_iter().map(|(key, value)| (key.get_ref().as_ref(), self.place(key), value)).collect()
    }

    fn place<T>(&self, spanned: &Spanned<T>) -> String {
        self.line(spanned.span().start)
    }

    fn line(&self, at: usize) -> String {
        let before = self.text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count();
        format!("{}:{}", self.origin, before + 1)
    }

    /// The parser's error shows the line itself when printed, which may hold a password; its message does not.
    fn not_toml(&self, e: &toml::de::Error) -> Error {
        let place = self.line(e.span().map_or(0, |span| span.start));
        invalid(format!("{place}: this is not TOML: {}", e.message().replace('\n', ", ")))
    }
}
