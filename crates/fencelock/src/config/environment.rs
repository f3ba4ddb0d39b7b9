//! The process's environment, as a value.

use super::keys;
use super::layer::{Layer, invalid};
use fencelock_core::{Error, Result};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
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
        let settings = ours
            .filter(|(name, _)| !keys::OTHER_VARIABLES.contains(&name.as_str()))
            .filter(|(name, value)| !tells_of_a_service(name, value));
        for (name, value) in settings {
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

/// Whether Kubernetes sets the variable in every container, to tell where a
/// service is that is called `fencelock` or `fencelock-…`: nobody wrote it for us.
fn tells_of_a_service(name: &str, value: &OsStr) -> bool {
    let begins = ["FENCELOCK_PORT_", "FENCELOCK_SERVICE_"].iter().any(|beginning| name.starts_with(beginning));
    let is_address = || value.to_str().is_some_and(|value| value.contains("://"));
    let is_port = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
    begins
        || name == "FENCELOCK_PORT"
        || name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || (name.ends_with("_PORT") && is_address())
        || name.split_once("_PORT_").is_some_and(|(_, rest)| is_port(rest))
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
    fn variables_of_a_service_are_no_settings() {
        let variables = [
            ("FENCELOCK_PORT", "tcp://10.0.0.1:80"),
            ("FENCELOCK_PORT_80_TCP_ADDR", "10.0.0.1"),
            ("FENCELOCK_SERVICE_HOST", "10.0.0.1"),
            ("FENCELOCK_SERVICE_PORT_HTTP", "80"),
            ("FENCELOCK_REDIS_PORT", "tcp://10.0.0.1:6379"),
            ("FENCELOCK_REDIS_PORT_6379_TCP", "tcp://10.0.0.1:6379"),
            ("FENCELOCK_REDIS_SERVICE_HOST", "10.0.0.1"),
            ("FENCELOCK_REDIS_SERVICE_PORT", "6379"),
        ];
        assert!(Environment::new(variables).settings().unwrap().1.is_empty());
        let (_, others) =
            Environment::new([("FENCELOCK_PORTS", "1"), ("FENCELOCK_REDIS_PORT", "1")]).settings().unwrap();
        assert_eq!(others.len(), 2, "what is like them is not one of them");
    }

    #[test]
    fn debug_output_has_names_only() {
        let shown = format!("{:?}", Environment::new([("FENCELOCK_PASSWORD", "hunter2"), ("OTHER", "x")]));
        assert!(shown.contains("FENCELOCK_PASSWORD") && !shown.contains("hunter2") && !shown.contains("OTHER"));
    }
}
