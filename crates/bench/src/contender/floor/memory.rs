//! In one process: tokio's own mutex, found by name. It has no expiry, no token, and tells of no loss.

use crate::contender::{Contender, Task};
use crate::failure::Result;
use async_trait::async_trait;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::OwnedMutexGuard;

type Lock = Arc<tokio::sync::Mutex<()>>;

#[derive(Default)]
pub(super) struct Floor {
    locks: Arc<Mutex<HashMap<String, Lock>>>,
}

struct Floored {
    locks: Arc<Mutex<HashMap<String, Lock>>>,
    name: String,
    guard: Option<OwnedMutexGuard<()>>,
}

#[async_trait]
impl Contender for Floor {
    async fn task(&self, name: &str) -> Result<Box<dyn Task>> {
        Ok(Box::new(Floored { locks: Arc::clone(&self.locks), name: name.to_owned(), guard: None }))
    }
}

impl Floored {
    fn lock(&self) -> Lock {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lock) = locks.get(&self.name) {
            return Arc::clone(lock);
        }
        Arc::clone(locks.entry(self.name.clone()).or_default())
    }
}

#[async_trait]
impl Task for Floored {
    async fn acquire(&mut self) -> Result<()> {
        self.guard = Some(self.lock().lock_owned().await);
        Ok(())
    }

    async fn release(&mut self) -> Result<()> {
        self.guard = None;
        Ok(())
    }

    async fn attempt(&mut self) -> Result<bool> {
        self.guard = self.lock().try_lock_owned().ok();
        Ok(self.guard.is_some())
    }
}
