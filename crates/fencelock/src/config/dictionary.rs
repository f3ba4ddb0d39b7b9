//! The keys of the engines that are not the configured one, which nobody else could check.

use super::keys;
use std::collections::BTreeSet;
use toml::de::DeTable;

/// It has every key of every engine, which a test compares with what the engines know.
const REFERENCE: &str = include_str!("../../reference.toml");

/// The keys that the table of `engine` may have, if it is an engine of this workspace.
pub(super) fn keys_of(engine: &str) -> Option<BTreeSet<String>> {
    let root = DeTable::parse(REFERENCE).ok()?;
    let lock = root.get_ref().get("lock")?.get_ref().as_table()?;
    let table = lock.get(engine)?.get_ref().as_table()?;
    let own = table.keys().map(|key| key.get_ref().to_string());
    Some(own.chain(keys::CREDENTIALS.map(str::to_owned)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_file_is_the_dictionary() {
        let keys = keys_of("sqlite").unwrap();
        assert!(keys.contains("busy_timeout") && keys.contains("password_file") && !keys.contains("ttl"));
        assert_eq!(keys_of("mine"), None);
        assert_eq!(keys_of("ttl"), None, "it is no table");
    }
}
