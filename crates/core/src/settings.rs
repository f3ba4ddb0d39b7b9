//! Settings of an engine, by name, each with the place it came from.

use crate::{Error, ErrorKind, Result, Secret};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The settings of one engine: from the URL, a file, the environment and code.
///
/// An engine takes those that it knows, and then calls [`finish`](Self::finish),
/// which refuses what is left and names the nearest right one.
///
/// ```
/// use fencelock_core::Settings;
/// let mut settings = Settings::default();
/// settings.set("request_timout", "2s", "URL parameter");
/// assert_eq!(settings.duration("request_timeout").unwrap(), None);
/// let e = settings.finish().unwrap_err();
/// assert_eq!(e.message(), "URL parameter: unknown setting `request_timout`; did you mean `request_timeout`?");
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Settings {
    values: BTreeMap<String, Setting>,
    known: Vec<&'static str>,
}

#[derive(Clone, PartialEq, Eq)]
struct Setting {
    value: Secret,
    origin: Cow<'static, str>,
}

impl Settings {
    /// Sets `key`, replacing what was there. `origin` says where it was written, for errors.
    pub fn set(&mut self, key: impl Into<String>, value: impl Into<String>, origin: impl Into<Cow<'static, str>>) {
        let (value, origin) = (Secret::new(value), origin.into());
        self.values.insert(key.into(), Setting { value, origin });
    }

    /// Lays `other` over these: what it sets counts.
    pub fn overlay(&mut self, other: Self) {
        self.values.extend(other.values);
    }

    /// The keys that are set.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    fn take(&mut self, key: &'static str) -> Option<Setting> {
        self.known.push(key);
        self.values.remove(key)
    }

    /// Takes a text.
    pub fn text(&mut self, key: &'static str) -> Option<String> {
        self.take(key).map(|setting| setting.value.reveal().to_owned())
    }

    /// Takes a text that must not be shown.
    pub fn secret(&mut self, key: &'static str) -> Option<Secret> {
        self.take(key).map(|setting| setting.value)
    }

    /// Takes a duration such as `30s`, `250ms` or `1h 30m`.
    ///
    /// # Errors
    /// `InvalidConfig` names the place, the key and the value.
    pub fn duration(&mut self, key: &'static str) -> Result<Option<Duration>> {
        self.parsed(key, "a duration such as `30s`, `250ms` or `1h`", |text| humantime::parse_duration(text).ok())
    }

    /// Takes `true` or `false`.
    ///
    /// # Errors
    /// `InvalidConfig` names the place, the key and the value.
    pub fn flag(&mut self, key: &'static str) -> Result<Option<bool>> {
        self.parsed(key, "`true` or `false`", |text| text.parse().ok())
    }

    /// Takes a number.
    ///
    /// # Errors
    /// `InvalidConfig` names the place, the key and the value.
    pub fn number<N: FromStr>(&mut self, key: &'static str) -> Result<Option<N>> {
        self.parsed(key, "a number in range", |text| text.parse().ok())
    }

    /// Takes one of the `values` that are allowed.
    ///
    /// # Errors
    /// `InvalidConfig` names the place, the key, the value and the nearest right one.
    pub fn choice(&mut self, key: &'static str, values: &[&'static str]) -> Result<Option<&'static str>> {
        let Some(Setting { value, origin }) = self.take(key) else { return Ok(None) };
        let text = value.reveal();
        match values.iter().find(|value| **value == text) {
            Some(value) => Ok(Some(value)),
            None => {
                let hint = did_you_mean(text, values.iter().copied());
                Err(invalid(format!("{origin}: `{key}` cannot be {}{hint}", shown(text))))
            }
        }
    }

    fn parsed<T>(&mut self, key: &'static str, what: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>> {
        let Some(Setting { value, origin }) = self.take(key) else { return Ok(None) };
        let text = value.reveal();
        parse(text).map(Some).ok_or_else(|| invalid(format!("{origin}: `{key}` is {what}, not {}", shown(text))))
    }

    /// Refuses what was set and not taken.
    ///
    /// # Errors
    /// `InvalidConfig` names the place, the key, and the nearest right one.
    pub fn finish(self) -> Result<()> {
        match self.values.first_key_value() {
            None => Ok(()),
            Some((key, Setting { origin, .. })) => {
                let hint = did_you_mean(key, self.known.iter().copied());
                Err(invalid(format!("{origin}: unknown setting `{key}`{hint}")))
            }
        }
    }
}

/// A wrong value as an error may repeat it. A long one, or one like a URL, may be
/// a secret that was written in the wrong place.
fn shown(text: &str) -> String {
    let may_be_secret = |c: char| c.is_control() || matches!(c, '@' | ':' | '/');
    if text.len() <= 32 && !text.contains(may_be_secret) {
        format!("`{text}`")
    } else {
        "what is written there".to_owned()
    }
}

/// `; did you mean …?` if one of `right` is near `wrong`, else the list of them.
#[must_use]
pub fn did_you_mean<'a>(wrong: &str, right: impl IntoIterator<Item = &'a str>) -> String {
    let right: Vec<_> = right.into_iter().collect();
    let nearest = right.iter().map(|name| (distance(wrong, name), *name)).min();
    match nearest {
        Some((distance, name)) if distance <= 1 + wrong.len().min(name.len()) / 4 => {
            format!("; did you mean `{name}`?")
        }
        Some(_) => format!("; there are: {}", right.join(", ")),
        None => "; there are none".to_owned(),
    }
}

/// Edits between two words (Levenshtein, with one row).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<_> = b.chars().collect();
    let mut row: Vec<_> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, cb) in row.iter_mut().skip(1).zip(&b) {
            let value = (diagonal + usize::from(ca != *cb)).min(*cell + 1).min(left + 1);
            diagonal = std::mem::replace(cell, value);
            left = value;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidConfig, message)
}

impl fmt::Debug for Settings {
    /// Keys and origins; values may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.values.iter().map(|(key, setting)| (key, &setting.origin))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        let mut settings = Settings::default();
        settings.set("ttl", "soon", "fencelock.toml:3");
        settings.set("mode", "wall", "FENCELOCK_MODE");
        settings
    }

    #[test]
    fn errors_name_place_key_and_value() {
        let e = settings().duration("ttl").unwrap_err();
        assert_eq!(e.message(), "fencelock.toml:3: `ttl` is a duration such as `30s`, `250ms` or `1h`, not `soon`");
        let e = settings().choice("mode", &["wal", "delete"]).unwrap_err();
        assert_eq!(e.message(), "FENCELOCK_MODE: `mode` cannot be `wall`; did you mean `wal`?");
    }

    #[test]
    fn errors_do_not_repeat_what_may_be_a_secret() {
        for secret in ["redis://user:hunter2@host", "hunter2/", &"hunter2.".repeat(5), "\u{1b}hunter2"] {
            let mut settings = Settings::default();
            settings.set("ttl", secret, "FENCELOCK_TTL");
            settings.set("mode", secret, "FENCELOCK_MODE");
            for e in [settings.duration("ttl").unwrap_err(), settings.choice("mode", &["wal"]).unwrap_err()] {
                assert!(!e.message().contains("hunter2") && e.message().contains("what is written there"), "{e}");
            }
        }
    }

    #[test]
    fn what_lies_on_top_counts() {
        let mut top = Settings::default();
        top.set("ttl", "2s", "code");
        let mut all = settings();
        all.overlay(top);
        assert_eq!(all.duration("ttl").unwrap(), Some(Duration::from_secs(2)));
    }

    #[test]
    fn nothing_near_lists_all() {
        assert_eq!(did_you_mean("zzzzz", ["a", "b"]), "; there are: a, b");
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
    }
}
