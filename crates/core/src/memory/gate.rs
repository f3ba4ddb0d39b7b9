//! A gate before data in memory.

use crate::sync::lock;
use crate::{Admission, FencingToken, Gate, LockName, Result, Stale};
use std::collections::HashMap;
use std::fmt;
use std::sync::Mutex;

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
    resources: Mutex<HashMap<LockName, Fenced<T>>>,
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
        let mut resources = lock(&self.resources);
        let fenced = resources.entry(resource.clone()).or_insert_with(|| Fenced { newest: token, value: T::default() });
        if token < fenced.newest {
            return Ok(Admission::Stale(Stale::new(fenced.newest)));
        }
        fenced.newest = token;
        Ok(Admission::Admitted(MemoryPass { gate: self, resource, token }))
    }
}

/// The way to one resource, for as long as no larger token has entered.
pub struct MemoryPass<'g, T> {
    gate: &'g MemoryGate<T>,
    resource: LockName,
    token: FencingToken,
}

impl<T: Default> MemoryPass<'_, T> {
    /// Reads or changes the value, in one step with the check of the token.
    pub fn apply<R>(&self, effect: impl FnOnce(&mut T) -> R) -> Admission<R> {
        let mut resources = lock(&self.gate.resources);
        let newest = self.token;
        let fenced = resources.entry(self.resource.clone()).or_insert_with(|| Fenced { newest, value: T::default() });
        if fenced.newest > self.token {
            return Admission::Stale(Stale::new(fenced.newest));
        }
        Admission::Admitted(effect(&mut fenced.value))
    }
}

impl<T> fmt::Debug for MemoryPass<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryPass").field("resource", &self.resource).field("token", &self.token).finish()
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
