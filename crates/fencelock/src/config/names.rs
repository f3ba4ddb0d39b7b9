//! Tables and variables that belong to an engine: there must be such an engine.

use super::environment::Variable;
use super::keys;
use super::layer::invalid;
use crate::Registry;
use fencelock_core::{Result, did_you_mean};

/// Names that can only be judged when the engines are known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    /// Engines that have a table, and where.
    pub(super) tables: Vec<(String, String)>,
    pub(super) variables: Vec<Variable>,
}

impl Names {
    /// Refuses a table or a variable of an engine that does not exist.
    pub(crate) fn check(&self, registry: &Registry) -> Result<()> {
        let engines = registry.engines();
        for (table, place) in &self.tables {
            if !engines.iter().any(|engine| engine == table) {
                let hint = did_you_mean(table, engines.iter().map(String::as_str));
                return Err(invalid(format!("{place}: no engine has the table `[lock.{table}]`{hint}")));
            }
        }
        for variable in &self.variables {
            if !engines.iter().any(|engine| variable.key_of(engine).is_some()) {
                return Err(invalid(format!("unknown variable `{}`{}", variable.name, nearest(variable, &engines))));
            }
        }
        Ok(())
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
