//! The scripts that run on each node.

use fencelock_redis::{NodeBundle, NodeScript, NodeVerb};

/// What is grouped, by its place in the bundle: what takes memory first.
pub(crate) const ACQUIRE: usize = 0;
pub(crate) const PROPOSE: usize = 1;
pub(crate) const CONFIRM: usize = 2;
pub(crate) const FREE: usize = 3;
/// Frees the lock, and makes the id dead.
pub(crate) const FREE_DEAD: usize = 4;

const FREE_LUA: &str = include_str!("scripts/free.lua");

/// What looks into a hold.
fn reading(script: &str) -> String {
    script.replace("--READ--", include_str!("scripts/read.lua"))
}

/// A text as Lua reads it.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// `waiting` is the channel on which all who wait listen.
pub(crate) fn bundle(waiting: &str) -> NodeBundle {
    let free = |dead: &str| FREE_LUA.replace("--DEAD--\n", dead);
    NodeBundle::new([
        NodeVerb::new(reading(include_str!("scripts/acquire.lua")), 3, 3)
            .many(include_str!("scripts/acquire_many.lua")),
        NodeVerb::new(include_str!("scripts/propose.lua"), 2, 2),
        NodeVerb::new(include_str!("scripts/confirm.lua"), 1, 2),
        NodeVerb::new(free(""), 1, 1).many(include_str!("scripts/free_many.lua").replace("WAITING", &quoted(waiting))),
        NodeVerb::new(free(include_str!("scripts/dead.lua")), 2, 2),
    ])
}

/// What is sent by itself.
#[derive(Debug)]
pub(crate) struct Scripts {
    pub(crate) renew: NodeScript,
    pub(crate) inspect: NodeScript,
    pub(crate) force: NodeScript,
    pub(crate) seed: NodeScript,
    pub(crate) raise: NodeScript,
    pub(crate) record: NodeScript,
}

impl Scripts {
    pub(crate) fn new() -> Self {
        Self {
            renew: NodeScript::new(include_str!("scripts/renew.lua")),
            inspect: NodeScript::new(reading(include_str!("scripts/inspect.lua"))),
            force: NodeScript::new(reading(include_str!("scripts/force.lua"))),
            seed: NodeScript::new(include_str!("scripts/seed.lua")),
            raise: NodeScript::new(include_str!("scripts/raise.lua")),
            record: NodeScript::new(include_str!("scripts/record.lua")),
        }
    }
}

#[cfg(test)]
mod tests;
