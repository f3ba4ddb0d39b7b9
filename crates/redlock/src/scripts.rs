//! The scripts that run on each node.

use fencelock_redis::{NodeBundle, NodeScript, NodeVerb};

/// What is grouped, by its place in the bundle: what takes memory first.
pub(crate) const ACQUIRE: usize = 0;
pub(crate) const PROPOSE: usize = 1;
pub(crate) const CONFIRM: usize = 2;
pub(crate) const FREE: usize = 3;

pub(crate) fn bundle() -> NodeBundle {
    NodeBundle::new([
        NodeVerb::new(include_str!("scripts/acquire.lua"), 3, 6).many(include_str!("scripts/acquire_many.lua")),
        NodeVerb::new(include_str!("scripts/propose.lua"), 2, 2),
        NodeVerb::new(include_str!("scripts/confirm.lua"), 1, 2),
        NodeVerb::new(include_str!("scripts/free.lua"), 2, 3).many(include_str!("scripts/free_many.lua")),
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
            inspect: NodeScript::new(include_str!("scripts/inspect.lua")),
            force: NodeScript::new(include_str!("scripts/force.lua")),
            seed: NodeScript::new(include_str!("scripts/seed.lua")),
            raise: NodeScript::new(include_str!("scripts/raise.lua")),
            record: NodeScript::new(include_str!("scripts/record.lua")),
        }
    }
}
