//! The process's environment, as a value.

use super::keys;
use super::layer::{Layer, invalid};
use fencelock_core::{Error, Result};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

const FILE: &str = "fencelock.toml";

/// Environment variables and a working directory, as a value, so that they can
/// be chosen in tests. `Debug` shows no values.
#[derive(Clone, Default)]
pub struct Environment {
    variables: BTreeMap<String, OsString>,
    directory: PathBuf,
}

/// `FENCELOCK_ENGINE_KEY`.
#[derive(Clone)]
pub(super) struct Variable {
    pub(super) name: String,
    pub(super) value: String,
}

impl Environment {
    /// What this process was given.
    #[must_use]
    pub fn of_process() -> Self {
        Self::new(std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value))))
    }

    /// These variables, and the current directory.
    pub fn new<N, V>(variables: impl IntoIterator<Item = (N, V)>) -> Self
    where
        N: Into<String>,
        V: Into<OsString>,
    {
        let variables = variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        Self { variables, directory: PathBuf::new() }
    }

    /// Looks for `fencelock.toml` in `directory` instead of the current one.
    #[must_use]
    pub fn with_directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = directory.into();
        self
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        self.variables.get(name).filter(|value| !value.is_empty()).map(PathBuf::from)
    }

    /// The file that `FENCELOCK_CONFIG` names, which must be there.
    pub(super) fn named_file(&self) -> Result<Option<PathBuf>> {
        match self.variables.get("FENCELOCK_CONFIG") {
            Some(empty) if empty.is_empty() => Err(invalid("FENCELOCK_CONFIG is set and names no file")),
            named => Ok(named.map(PathBuf::from)),
        }
    }

    /// The files to look for, of which the first that exists counts.
    pub(super) fn usual_files(&self) -> Vec<PathBuf> {
        // A relative XDG path is to be ignored, says its specification.
        let configured = self.path("XDG_CONFIG_HOME").filter(|path| path.is_absolute());
        let home = configured.or_else(|| self.path("HOME").map(|home| home.join(".config")));
        let mut files = vec![self.directory.join(FILE)];
        files.extend(home.map(|home| home.join("fencelock").join(FILE)));
        files.push(PathBuf::from("/etc").join(FILE));
        files
    }

    /// The settings that mean the same for every engine, and the variables that are left.
    pub(super) fn settings(&self) -> Result<(Layer, Vec<Variable>)> {
        let (mut common, mut others) = (Layer::default(), Vec::new());
        let ours = self.variables.iter().filter(|(name, _)| name.starts_with("FENCELOCK_"));
        for (name, value) in ours.filter(|(name, _)| !keys::OTHER_VARIABLES.contains(&name.as_str())) {
            let value = value.to_str().ok_or_else(|| not_unicode(name))?;
            match keys::names().find(|key| keys::variable(None, key) == *name) {
                Some(key) => common.set(key, value, name),
                None => others.push(Variable { name: name.clone(), value: value.to_owned() }),
            }
            if name == "FENCELOCK_ATTEST" {
                for id in super::layer::ids(Some(value.to_owned())) {
                    common.origins.note(&id, name);
                }
            }
        }
        Ok((common, others))
    }
}

fn not_unicode(name: &str) -> Error {
    invalid(format!("{name}: its value is not UTF-8"))
}

impl Variable {
    /// The key that it sets for `engine`, if it is a variable of that engine's.
    pub(super) fn key_of(&self, engine: &str) -> Option<String> {
        let key = self.name.strip_prefix(&keys::variable(Some(engine), ""))?;
        (!key.is_empty()).then(|| key.to_ascii_lowercase())
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.variables.keys().filter(|name| name.starts_with("FENCELOCK_")).collect();
        f.debug_struct("Environment").field("variables", &names).field("directory", &self.directory).finish()
    }
}

impl fmt::Debug for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usual(variables: &[(&str, &str)]) -> Vec<PathBuf> {
        Environment::new(variables.iter().copied()).usual_files()
    }

    #[test]
    fn the_usual_files_in_their_order() {
        let files = usual(&[("XDG_CONFIG_HOME", "/xdg"), ("HOME", "/home/me")]);
        assert_eq!(
            files,
            ["fencelock.toml", "/xdg/fencelock/fencelock.toml", "/etc/fencelock.toml"].map(PathBuf::from)
        );
        for xdg in ["", "relative"] {
            let files = usual(&[("XDG_CONFIG_HOME", xdg), ("HOME", "/home/me")]);
            assert_eq!(files.get(1), Some(&PathBuf::from("/home/me/.config/fencelock/fencelock.toml")));
        }
        assert_eq!(usual(&[]), ["fencelock.toml", "/etc/fencelock.toml"].map(PathBuf::from));
    }

    #[test]
    fn debug_output_has_names_only() {
        let shown = format!("{:?}", Environment::new([("FENCELOCK_PASSWORD", "hunter2"), ("OTHER", "x")]));
        assert!(shown.contains("FENCELOCK_PASSWORD") && !shown.contains("hunter2") && !shown.contains("OTHER"));
    }
}
