//! What operators ask.

use crate::failure::{Failure, Next};
use crate::store::Store;
use fencelock_core::{Error, ErrorKind, FencingToken, HolderInfo, LockName, Result};
use redis::Value;
use std::collections::BTreeSet;
use std::time::Duration;

/// How many keys a step of the scan looks at.
const STEP: usize = 1_000;
/// The longest that listing may take in all.
const LIST: Duration = Duration::from_secs(30);

impl Store {
    /// Every held lock whose name begins with `prefix`, found by scanning all keys: a few seconds for a million.
    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<(LockName, HolderInfo)>> {
        match tokio::time::timeout(LIST, self.listed(prefix)).await {
            Ok(listed) => listed,
            Err(_) => Err(Failure::not_reached(format_args!("all of it in {LIST:?}")).into()),
        }
    }

    async fn listed(&self, prefix: &str) -> Result<Vec<(LockName, HolderInfo)>> {
        let pattern = self.keys.pattern(prefix);
        let mut names = BTreeSet::new();
        for master in self.router.masters(self.deadline()).await? {
            let mut cursor = "0".to_owned();
            loop {
                let mut scan = redis::cmd("SCAN");
                scan.arg(&cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(STEP);
                let (next, keys) = page(master.call(&scan, self.deadline()).await?)?;
                names.extend(keys.iter().filter_map(|key| self.keys.name_of(key)));
                cursor = next;
                if cursor == "0" {
                    break;
                }
            }
        }
        let mut holders = Vec::new();
        for name in names.into_iter().filter(|name| name.as_str().starts_with(prefix)) {
            if let Some(holder) = self.inspect(&name).await? {
                holders.push((name, holder));
            }
        }
        Ok(holders)
    }

    /// With `only`, frees no other hold than the one with this token.
    pub(crate) async fn force_release(&self, name: &LockName, only: Option<FencingToken>) -> Result<bool> {
        let keys = self.keys.of(name);
        let only = only.map_or_else(String::new, |token| token.to_string());
        let (all, what) = ([keys.lock(), keys.fence(), keys.queue()], [only]);
        let answer = match self.router.run(keys.slot(), &self.scripts.force, &all, &what, self.deadline()).await {
            // Some keys are here and others there.
            Err(failure) if failure.next == Next::TryAgain => {
                let lock = [keys.lock()];
                self.router.run(keys.slot(), &self.scripts.force_alone, &lock, &what, self.deadline()).await?
            }
            outcome => outcome?,
        };
        match answer {
            Value::Int(1) => Ok(true),
            Value::Int(0) => Ok(false),
            _ => {
                let message = "the key holds another program's value, which is never touched; delete it by hand";
                Err(Error::new(ErrorKind::Engine, message).with_engine("redis"))
            }
        }
    }
}

fn page(answer: Value) -> std::result::Result<(String, Vec<String>), Failure> {
    redis::from_redis_value(answer).map_err(|_| Failure::odd_answer())
}
