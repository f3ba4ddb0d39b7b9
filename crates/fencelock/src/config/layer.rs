//! One source of settings, and where each of them was written.

use fencelock_core::{Error, ErrorKind, Settings};
use std::collections::BTreeMap;

/// Settings of one source.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layer {
    pub(crate) settings: Settings,
    pub(crate) origins: Origins,
}

impl Layer {
    /// Settings that all come from one place.
    pub(crate) fn of(settings: Settings, place: &str) -> Self {
        let mut origins = Origins::default();
        for key in settings.keys() {
            origins.note(key, place);
        }
        for id in ids(settings.clone().text("attest")) {
            origins.note(&id, place);
        }
        Self { settings, origins }
    }

    pub(crate) fn set(&mut self, key: &str, value: impl Into<String>, place: &str) {
        self.settings.set(key, value, place.to_owned());
        self.origins.note(key, place);
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.settings.keys().any(|set| set == key)
    }
}

/// Where each setting was written; attested rules have a place of their own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origins(BTreeMap<String, String>);

impl Origins {
    pub(crate) fn note(&mut self, key: &str, place: &str) {
        self.0.insert(key.to_owned(), place.to_owned());
    }

    pub(crate) fn overlay(&mut self, top: Self) {
        self.0.extend(top.0);
    }

    /// Another value counts, one that was not written anywhere.
    pub(crate) fn forget(&mut self, key: &str) {
        self.0.remove(key);
    }

    pub(crate) fn of(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// Whether `error` begins with one of the places.
    pub(crate) fn is_placed(&self, error: &Error) -> bool {
        let begins = |place: &String| error.message().strip_prefix(place.as_str()).is_some_and(|m| m.starts_with(':'));
        self.0.values().any(begins)
    }

    /// Says where the setting was written that `error` is about, if it is about
    /// one: the engine that found it wrong knows only its value.
    pub(crate) fn locate(&self, error: Error) -> Error {
        if self.is_placed(&error) {
            return error;
        }
        let message = error.message();
        let first = message.split(' ').next();
        let quoted = message.split('`').skip(1).step_by(2);
        // A refusal begins with what was required, forbidden or attested; what else it names are remedies.
        let quoted = match error.kind() {
            ErrorKind::InvalidConfig => quoted.take(usize::MAX),
            ErrorKind::Refused => quoted.take(1),
            _ => return error,
        };
        match first.into_iter().chain(quoted).find_map(|word| self.of(word)) {
            Some(place) => placed(place, error),
            None => error,
        }
    }
}

/// The same error, beginning with a place.
pub(crate) fn placed(place: &str, error: Error) -> Error {
    let mut new = Error::new(error.kind(), format!("{place}: {}", error.message()));
    if let Some(engine) = error.engine() {
        new = new.with_engine(engine.to_owned());
    }
    if let Some(operation) = error.operation() {
        new = new.with_operation(operation);
    }
    // The cause is reached through the first error, whose own text is in the new one.
    if std::error::Error::source(&error).is_some() { new.with_source(error) } else { new }
}

pub(crate) fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidConfig, message.into())
}

/// The rules of a list that is written with commas.
pub(crate) fn ids(text: Option<String>) -> Vec<String> {
    let text = text.unwrap_or_default();
    text.split(',').map(str::trim).filter(|id| !id.is_empty()).map(str::to_owned).collect()
}
