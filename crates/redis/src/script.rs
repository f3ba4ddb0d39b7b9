//! A Lua script, named by its digest once the server knows it.

use crate::bundle::{Bundle, Verb};
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
    pub(crate) fn by_digest(&self, call: &impl Call) -> Cmd {
        command("EVALSHA", &self.sha, call)
    }

    /// In full, which also makes the server know it: one round trip, where loading it first takes two.
    pub(crate) fn in_full(&self, call: &impl Call) -> Cmd {
        command("EVAL", &self.source, call)
    }
}

/// What a script is called with.
pub(crate) trait Call {
    fn key_count(&self) -> usize;

    /// No more than so many words of so many bytes, so that nothing is copied while it grows.
    fn room(&self) -> (usize, usize);

    /// The keys, then the arguments.
    fn write(&self, command: &mut Cmd);
}

impl<K: AsRef<[u8]>, A: AsRef<[u8]>> Call for (&[K], &[A]) {
    fn key_count(&self) -> usize {
        self.0.len()
    }

    fn room(&self) -> (usize, usize) {
        let bytes = self.0.iter().map(|key| key.as_ref().len()).chain(self.1.iter().map(|arg| arg.as_ref().len()));
        (self.0.len() + self.1.len(), bytes.sum())
    }

    fn write(&self, command: &mut Cmd) {
        for key in self.0 {
            command.arg(key.as_ref());
        }
        for arg in self.1 {
            command.arg(arg.as_ref());
        }
    }
}

fn command(verb: &str, script: &str, call: &impl Call) -> Cmd {
    let (words, bytes) = call.room();
    let mut command = Cmd::with_capacity(words + 3, verb.len() + script.len() + 8 + bytes);
    command.arg(verb).arg(script).arg(call.key_count());
    call.write(&mut command);
    command
}

/// The scripts of the lock itself.
pub(crate) struct Scripts {
    pub(crate) acquire: LuaScript,
    /// The same for a grant that reserves tokens for those to whom the lock passes on.
    pub(crate) reserve: LuaScript,
    /// The same for a grant that is waited for, in the lock's queue.
    pub(crate) wait: LuaScript,
    pub(crate) renew: LuaScript,
    /// What frees the lock in a slot that is being moved.
    pub(crate) free_alone: LuaScript,
    pub(crate) void: LuaScript,
    pub(crate) inspect: LuaScript,
    pub(crate) force: LuaScript,
    pub(crate) force_alone: LuaScript,
}

/// What is grouped, by its place in the bundle: what takes memory first.
pub(crate) const ACQUIRE: usize = 0;
/// The same with an id that may have been sent before.
pub(crate) const ACQUIRE_AGAIN: usize = 1;
/// Takes the lock, or a place in its queue.
pub(crate) const WAIT: usize = 2;
/// Frees the lock.
pub(crate) const FREE: usize = 3;
/// Frees the lock, and makes the id dead.
pub(crate) const FREE_DEAD: usize = 4;

const ACQUIRE_LUA: &str = include_str!("scripts/acquire.lua");
const FREE_LUA: &str = include_str!("scripts/free.lua");
const KILL_LUA: &str = include_str!("scripts/kill.lua");

/// What all requests of a call have in common: the counter, and the ids that are dead.
const SHARED: usize = 2;

/// What is granted again and again is never told more than it needs.
fn acquiring(script: &str, base: u64) -> String {
    script.replace("--SPENT--\n", "").replace("BASE", &base.to_string())
}

/// An acquire whose id may have been sent before.
fn spending(acquire: &str) -> String {
    [KILL_LUA, &acquire.replace("--SPENT--\n", include_str!("scripts/spent.lua"))].concat()
}

/// A script of its own, so that who reserves nothing sends nothing more. The hold keeps the last token.
fn reserving(acquire: &str) -> String {
    spending(acquire).replace("local token = math.max(", "local token = tonumber(ARGV[5]) + math.max(")
}

/// An acquire that takes its place in the queue where it is contended, and leaves it with the grant.
fn waiting(acquire: &str) -> String {
    let acquire = reserving(acquire)
        .replace("rest:sub(1, size) or false}", "rest:sub(1, size) or false, queue()}")
        // What is handed over is asked for once more where an answer did not come: what that answered must take nothing later.
        .replace(
            "    return tonumber(held:match(",
            "    if ARGV[4] ~= '0' then pcall(kill, KEYS[2], ARGV[1], ARGV[4]) end\n    return tonumber(held:match(",
        )
        .replace("\nreturn tonumber(", "\npcall(leave, KEYS[4], ARGV[1])\nreturn tonumber(");
    [include_str!("scripts/leave.lua"), include_str!("scripts/queue.lua"), &acquire].concat()
}

/// What frees the lock hands it on.
fn handing(script: &str) -> String {
    script.replace("--HAND--", concat!(include_str!("scripts/leave.lua"), include_str!("scripts/hand.lua")))
}

/// The same for what may also close it for some time.
fn forcing(script: &str) -> String {
    let parts = concat!(include_str!("scripts/hand.lua"), include_str!("scripts/nudge.lua"));
    reading(script).replace("--HAND--", parts)
}

/// What looks into a hold.
fn reading(script: &str) -> String {
    script.replace("--READ--", include_str!("scripts/read.lua"))
}

impl Scripts {
    /// Of clients whose tokens are larger than `base`.
    pub(crate) fn bundle(base: u64) -> Bundle {
        let acquire = |script: &str| LuaScript::new(acquiring(script, base));
        let free = |dead: &str| handing(&FREE_LUA.replace("--DEAD--\n", dead));
        // What the release itself does is done whether or not the id can be made dead, which is told.
        let dead = free(include_str!("scripts/dead.lua"))
            .replace("\nreturn freed", "\nif not killed then error(why, 0) end\nreturn freed");
        let dead = [KILL_LUA, &dead].concat();
        Bundle::new(
            SHARED,
            [
                Verb::new(acquire(ACQUIRE_LUA), 1, 3).many(acquiring(include_str!("scripts/acquire_many.lua"), base)),
                Verb::new(acquire(&spending(ACQUIRE_LUA)), 1, 4),
                Verb::new(acquire(&waiting(ACQUIRE_LUA)), 2, 7),
                Verb::new(LuaScript::splitting(free("")), 2, 1).many(include_str!("scripts/free_many.lua")),
                Verb::new(LuaScript::splitting(dead), 2, 2),
            ],
        )
    }

    /// Of clients whose tokens are larger than `base`.
    pub(crate) fn new(base: u64) -> Self {
        let acquire = |script: &str| LuaScript::new(acquiring(script, base));
        Self {
            acquire: acquire(&spending(ACQUIRE_LUA)),
            reserve: acquire(&reserving(ACQUIRE_LUA)),
            wait: acquire(&waiting(ACQUIRE_LUA)),
            free_alone: LuaScript::new(include_str!("scripts/free_alone.lua")),
            renew: LuaScript::splitting(include_str!("scripts/renew.lua")),
            void: LuaScript::new([KILL_LUA, include_str!("scripts/void.lua")].concat()),
            inspect: LuaScript::new(reading(include_str!("scripts/inspect.lua"))),
            force: LuaScript::splitting(forcing(include_str!("scripts/force.lua"))),
            force_alone: LuaScript::new(reading(include_str!("scripts/force.lua"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_reserves_differs_in_the_token_alone() {
        let scripts = Scripts::new(7);
        assert_eq!(scripts.reserve.source().matches("ARGV[5]").count(), 1);
        assert_eq!(scripts.reserve.source().replace("tonumber(ARGV[5]) + ", ""), scripts.acquire.source());
    }

    #[test]
    fn what_waits_queues_where_it_is_contended_and_leaves_with_the_grant() {
        let scripts = Scripts::new(0);
        let wait = scripts.wait.source();
        for (what, times) in [
            (", queue()}", 1),
            ("pcall(leave,", 1),
            ("pcall(kill, KEYS[2], ARGV[1], ARGV[4])", 2),
            ("local function", 4),
            ("ARGV[5]", 2),
        ] {
            assert_eq!(wait.matches(what).count(), times, "{what}");
        }
        assert!(scripts.force.source().contains("local function hand("));
    }
}
