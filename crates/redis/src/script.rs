//! A Lua script, named by its digest once the server knows it.

use crate::bundle::Bundle;
use redis::{Cmd, Script};

pub(crate) struct LuaScript {
    source: String,
    sha: String,
    /// Its several keys can be asked for one by one, as a slot that is being moved needs it.
    pub(crate) splits: bool,
}

impl LuaScript {
    pub(crate) fn new(source: impl Into<String>) -> Self {
        let source = source.into();
        let sha = Script::new(&source).get_hash().to_owned();
        Self { source, sha, splits: false }
    }

    pub(crate) fn splitting(source: impl Into<String>) -> Self {
        Self { splits: true, ..Self::new(source) }
    }

    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// By digest: short, and refused with `NOSCRIPT` by a server that has lost it.
    pub(crate) fn by_digest<K: AsRef<[u8]>, A: AsRef<[u8]>>(&self, keys: &[K], args: &[A]) -> Cmd {
        words("EVALSHA", &self.sha, keys, args)
    }

    /// In full, which also makes the server know it: one round trip, where loading it first takes two.
    pub(crate) fn in_full<K: AsRef<[u8]>, A: AsRef<[u8]>>(&self, keys: &[K], args: &[A]) -> Cmd {
        words("EVAL", &self.source, keys, args)
    }
}

fn words<K: AsRef<[u8]>, A: AsRef<[u8]>>(verb: &str, script: &str, keys: &[K], args: &[A]) -> Cmd {
    // Words and their lengths, so that nothing is copied while it grows.
    let bytes = keys.iter().map(|key| key.as_ref().len()).chain(args.iter().map(|arg| arg.as_ref().len()));
    let bytes = verb.len() + script.len() + 8 + bytes.sum::<usize>();
    let mut command = Cmd::with_capacity(keys.len() + args.len() + 3, bytes);
    command.arg(verb).arg(script).arg(keys.len());
    for key in keys {
        command.arg(key.as_ref());
    }
    for arg in args {
        command.arg(arg.as_ref());
    }
    command
}

/// The scripts of the lock itself.
pub(crate) struct Scripts {
    pub(crate) acquire: LuaScript,
    /// The same for a grant that reserves tokens for those to whom the lock passes on.
    pub(crate) reserve: LuaScript,
    pub(crate) renew: LuaScript,
    pub(crate) void: LuaScript,
    pub(crate) inspect: LuaScript,
    pub(crate) force: LuaScript,
}

/// What is grouped, by its place in the bundle: what takes memory first.
pub(crate) const ACQUIRE: usize = 0;
/// Frees the lock.
pub(crate) const FREE: usize = 1;
/// Frees the lock, and makes the id dead.
pub(crate) const FREE_DEAD: usize = 2;

/// A script of its own, so that who reserves nothing sends nothing more. The hold keeps the last token.
fn reserving(acquire: &str) -> String {
    acquire.replace("local token = math.max(", "local token = tonumber(ARGV[8]) + math.max(")
}

impl Scripts {
    pub(crate) fn bundle() -> Bundle {
        let free = || LuaScript::splitting(include_str!("scripts/free.lua"));
        Bundle::new([(LuaScript::new(include_str!("scripts/acquire.lua")), 3, 7), (free(), 1, 4), (free(), 2, 4)])
    }

    pub(crate) fn new() -> Self {
        Self {
            acquire: LuaScript::new(include_str!("scripts/acquire.lua")),
            reserve: LuaScript::new(reserving(include_str!("scripts/acquire.lua"))),
            renew: LuaScript::splitting(include_str!("scripts/renew.lua")),
            void: LuaScript::new(include_str!("scripts/void.lua")),
            inspect: LuaScript::new(include_str!("scripts/inspect.lua")),
            force: LuaScript::new(include_str!("scripts/force.lua")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_reserves_differs_in_the_token_alone() {
        let scripts = Scripts::new();
        assert_eq!(scripts.reserve.source().matches("ARGV[8]").count(), 1);
        assert_eq!(scripts.reserve.source().replace("tonumber(ARGV[8]) + ", ""), scripts.acquire.source());
    }
}
