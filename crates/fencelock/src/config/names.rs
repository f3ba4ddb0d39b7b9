//! Tables and variables of engines that are not the configured one: there must be such an engine, and such keys.

use super::document::Table;
use super::environment::Variable;
use super::layer::invalid;
use super::{dictionary, keys};
use crate::Registry;
use fencelock_core::{Result, did_you_mean};

/// Names that can only be judged when the engines are known. What is the
/// configured engine's is not among them: it judges that itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    pub(super) tables: Vec<Table>,
    pub(super) variables: Vec<Variable>,
}

impl Names {
    /// Refuses a table or a variable of an engine that does not exist, or with a
    /// key that the engine does not have. The keys of engines that are not of this
    /// workspace only they know.
    pub(crate) fn check(&self, registry: &Registry) -> Result<()> {
        let engines = registry.engines();
        for Table { engine, place, layer } in &self.tables {
            if !engines.contains(engine) {
                let hint = did_you_mean(engine, engines.iter().map(String::as_str));
                return Err(invalid(format!("{place}: no engine has the table `[lock.{engine}]`{hint}")));
            }
            for key in layer.settings.keys() {
                check_key(registry, engine, key, layer.origins.of(key).unwrap_or(place))?;
            }
        }
        for variable in &self.variables {
            let found = engines.iter().find_map(|engine| Some((engine, variable.key_of(engine)?)));
            let Some((engine, key)) = found else {
                return Err(invalid(format!("unknown variable `{}`{}", variable.name, nearest(variable, &engines))));
            };
            check_key(registry, engine, &key, &variable.name)?;
        }
        Ok(())
    }
}

fn check_key(registry: &Registry, engine: &str, key: &str, place: &str) -> Result<()> {
    match dictionary::keys_of(engine).filter(|_| registry.is_builtin(engine)) {
        Some(known) if !known.contains(key) => {
            let hint = did_you_mean(key, known.iter().map(String::as_str));
            Err(invalid(format!("{place}: unknown setting `{key}`{hint}")))
        }
        _ => Ok(()),
    }
}

/// The nearest variable; of an engine's, only its beginning is known here.
fn nearest(variable: &Variable, engines: &[String]) -> String {
    let mut right: Vec<_> = keys::names().map(|key| keys::variable(None, key)).collect();
    right.extend(keys::OTHER_VARIABLES.map(str::to_owned));
    let words: Vec<_> = variable.name.split('_').collect();
    for engine in engines {
        let beginning = keys::variable(Some(engine), "");
        let length = beginning.split('_').count().saturating_sub(1);
        if let Some(rest) = words.get(length..).filter(|rest| !rest.is_empty()) {
            right.push(format!("{beginning}{}", rest.join("_")));
        }
    }
    did_you_mean(&variable.name, right.iter().map(String::as_str))
}
