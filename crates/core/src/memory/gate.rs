//! A gate before data in memory.

use crate::sync::lock;
use crate::{Admission, FencingToken, Gate, LockName, Result, Stale};
use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};

/// Values of type `T`, one a resource, reached only with a token that is not stale.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use fencelock_core::{FencingToken, Gate, memory::MemoryGate};
///
/// let stock = MemoryGate::<u32>::new();
/// let old = stock.enter((), "shoes", FencingToken::new(1)).await?.admitted()?;
/// let new = stock.enter((), "shoes", FencingToken::new(2)).await?.admitted()?;
/// assert!(old.apply(|pairs| *pairs += 1).is_stale());
/// new.apply(|pairs| *pairs += 1).admitted()?;
/// # Ok(())
/// # }
/// ```
pub struct MemoryGate<T> {
    resources: Mutex<HashMap<LockName, Arc<Mutex<Fenced<T>>>>>,
}

struct Fenced<T> {
    newest: FencingToken,
    value: T,
}

impl<T> MemoryGate<T> {
    /// A gate before nothing yet: each resource begins with `T`'s default.
    #[must_use]
    pub fn new() -> Self {
        Self { resources: Mutex::default() }
    }
}

impl<T> Default for MemoryGate<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for MemoryGate<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryGate").field("resources", &lock(&self.resources).len()).finish()
    }
}

impl<T: Default + Send> Gate for MemoryGate<T> {
    type Scope<'s>
        = ()
    where
        Self: 's;
    type Pass<'s>
        = MemoryPass<'s, T>
    where
        Self: 's;

    async fn enter<'s>(
        &'s self,
        _scope: (),
        resource: &'s str,
        token: FencingToken,
    ) -> Result<Admission<MemoryPass<'s, T>>> {
        let resource = LockName::new(resource)?;
        let fresh = || Arc::new(Mutex::new(Fenced { newest: token, value: T::default() }));
        let fenced = Arc::clone(lock(&self.resources).entry(resource).or_insert_with(fresh));
        let mut entering = lock(&fenced);
        if token < entering.newest {
            return Ok(Admission::Stale(Stale::new(entering.newest)));
        }
        entering.newest = token;
        drop(entering);
        Ok(Admission::Admitted(MemoryPass { fenced, token, gate: PhantomData }))
    }
}

/// The way to one resource, for as long as no larger token has entered.
pub struct MemoryPass<'g, T> {
    fenced: Arc<Mutex<Fenced<T>>>,
    token: FencingToken,
    gate: PhantomData<&'g MemoryGate<T>>,
}

impl<T> MemoryPass<'_, T> {
    /// Reads or changes the value, in one step with the check of the token.
    ///
    /// The resource is locked while `effect` runs: it must not enter or apply to
    /// the same resource, and others wait for it. If it panics, what it changed stays.
    pub fn apply<R>(&self, effect: impl FnOnce(&mut T) -> R) -> Admission<R> {
        let mut fenced = lock(&self.fenced);
        if fenced.newest > self.token {
            return Admission::Stale(Stale::new(fenced.newest));
        }
        Admission::Admitted(effect(&mut fenced.value))
    }
}

impl<T> fmt::Debug for MemoryPass<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryPass").field("token", &self.token).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn both_rules_hold() {
        let gate = MemoryGate::<Vec<u64>>::new();
        let enter = |token| gate.enter((), "r", FencingToken::new(token));
        let old = enter(1).await.unwrap().admitted().unwrap();
        assert_eq!(old.apply(|v| v.len()), Admission::Admitted(0));
        let new = enter(2).await.unwrap().admitted().unwrap();
        assert_eq!(enter(1).await.unwrap().admitted().unwrap_err().newest, FencingToken::new(2));
        assert!(old.apply(|v| v.push(1)).is_stale(), "it read before the newer token entered");
        assert!(!new.apply(|v| v.push(2)).is_stale());
        let again = enter(2).await.unwrap().admitted().unwrap();
        assert_eq!(again.apply(|v| v.clone()), Admission::Admitted(vec![2]));
        assert!(gate.enter((), "", FencingToken::new(3)).await.is_err());
    }
}
