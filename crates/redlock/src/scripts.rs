//! The scripts that run on each node.

use fencelock_redis::NodeScript;

#[derive(Debug)]
pub(crate) struct Scripts {
    pub(crate) acquire: NodeScript,
    pub(crate) propose: NodeScript,
    pub(crate) confirm: NodeScript,
    pub(crate) renew: NodeScript,
    pub(crate) free: NodeScript,
    pub(crate) inspect: NodeScript,
    pub(crate) force: NodeScript,
    pub(crate) seed: NodeScript,
    pub(crate) raise: NodeScript,
    pub(crate) record: NodeScript,
}

impl Scripts {
    pub(crate) fn new() -> Self {
        Self {
            acquire: NodeScript::new(include_str!("scripts/acquire.lua")),
            propose: NodeScript::new(include_str!("scripts/propose.lua")),
            confirm: NodeScript::new(include_str!("scripts/confirm.lua")),
            renew: NodeScript::new(include_str!("scripts/renew.lua")),
            free: NodeScript::new(include_str!("scripts/free.lua")),
            inspect: NodeScript::new(include_str!("scripts/inspect.lua")),
            force: NodeScript::new(include_str!("scripts/force.lua")),
            seed: NodeScript::new(include_str!("scripts/seed.lua")),
            raise: NodeScript::new(include_str!("scripts/raise.lua")),
            record: NodeScript::new(include_str!("scripts/record.lua")),
        }
    }
}
