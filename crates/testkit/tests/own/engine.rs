//! The engine: polled, with every request answered by one step in the table.

use super::Flaw;
use super::lease::OwnLease;
use super::table::{Row, Table, key, step};
use async_trait::async_trait;
use fencelock_core::{
    Admin, Attempt, Capability, Claim, DistributedLock, Error, ErrorKind, FencingToken, Grant, Guarantees, HolderInfo,
    Liveness, LockName, Polling, Result, Scope, Waiter,
};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[derive(Clone, Debug)]
pub(crate) struct OwnLock {
    pub(crate) wire: Wire,
    polling: Polling,
}

/// The way to the table, which may be down.
#[derive(Clone, Debug)]
pub(crate) struct Wire {
    pub(crate) dir: PathBuf,
    pub(crate) flaw: Flaw,
    pub(crate) broken: Arc<AtomicBool>,
}

impl Wire {
    /// A round trip: waits while the service is down, then does the step, then the answer travels.
    pub(crate) async fn ask<T>(&self, change: impl FnOnce(&mut Table, u64) -> T) -> Result<T> {
        tokio::task::yield_now().await;
        let asked = Instant::now();
        while self.dir.join("down").exists() || self.broken.load(Ordering::SeqCst) {
            if self.flaw == Flaw::NeverReconnects {
                self.broken.store(true, Ordering::SeqCst);
            }
            if self.flaw == Flaw::BlocksItsThread {
                std::thread::sleep(Duration::from_secs(2));
            }
            if asked.elapsed() > Duration::from_secs(1) {
                return Err(Error::new(ErrorKind::Unavailable, "no answer in 1s"));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let done = step(&self.dir, change)?;
        tokio::task::yield_now().await;
        Ok(done)
    }

    pub(crate) fn key(&self, name: &LockName) -> String {
        key(name.as_str(), self.flaw)
    }
}

impl OwnLock {
    pub(crate) fn at(dir: &str, flaw: Flaw) -> Self {
        let mut dir = PathBuf::from(dir);
        if flaw == Flaw::KeepsToItself {
            dir.push(std::process::id().to_string());
            std::fs::create_dir_all(&dir).unwrap();
        }
        Self { wire: Wire { dir, flaw, broken: Arc::default() }, polling: Polling::new() }
    }
}

fn lives(flaw: Flaw, ttl: Duration) -> u64 {
    let nanos = u64::try_from(ttl.as_nanos()).unwrap();
    match flaw {
        Flaw::ExpiresLate => nanos * 20,
        Flaw::ExpiresEarly => nanos / 2,
        _ => nanos,
    }
}

pub(crate) fn expiry(flaw: Flaw, now: u64, ttl: Duration) -> u64 {
    now + lives(flaw, ttl)
}

#[async_trait]
impl DistributedLock for OwnLock {
    fn guarantees(&self) -> Arc<Guarantees> {
        let g = Guarantees::of("own", "a file", Scope::Host, Liveness::Lease).with_capability(Capability::Cohort);
        Arc::new(match self.wire.flaw {
            Flaw::ClaimsFifo => g.with_capability(Capability::Fifo),
            Flaw::ClaimsPushLoss => g.with_capability(Capability::PushLoss),
            _ => g,
        })
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt> {
        let flaw = self.wire.flaw;
        let request = claim.request();
        let mut sent_at = claim.now();
        let key = self.wire.key(claim.name());
        let ttl = if flaw == Flaw::IgnoresLockDelay { claim.ttl() } else { claim.server_ttl() };
        let answer = self.wire.ask(|table, now| acquire(table, now, flaw, &key, claim, ttl)).await?;
        if flaw == Flaw::CountsFromReceipt {
            sent_at = claim.now();
        }
        request.answered();
        Ok(match answer {
            Ok(token) => {
                let hold = self.polling.hold(claim.name());
                let lease = OwnLease::new(self.wire.clone(), claim.clone(), hold);
                let grant = Grant::new(claim, lease, sent_at, FencingToken::new(token));
                Attempt::Granted(grant.with_reserved(claim.reserve()))
            }
            Err((left, holder)) => Attempt::contended(Some(Duration::from_nanos(left)), Some(holder.into())),
        })
    }

    async fn acquire(&self, claim: &Claim) -> Result<Grant> {
        match self.wire.flaw {
            Flaw::WaitsInSilence | Flaw::NoLocalQueue => loop {
                if let Attempt::Granted(grant) = self.try_acquire(claim).await? {
                    return Ok(grant);
                }
                tokio::time::sleep(Duration::from_millis(fastrand::u64(10..60))).await;
            },
            _ => self.polling.acquire(self, None, claim).await,
        }
    }

    async fn abandon(&self, claim: &Claim) -> Result<()> {
        let (flaw, id, key) = (self.wire.flaw, claim.id(), self.wire.key(claim.name()));
        if flaw == Flaw::AbandonDoesNothing {
            return Ok(());
        }
        self.wire
            .ask(|table, _| {
                if flaw == Flaw::AbandonsAnybodys || table.rows.get(&key).is_some_and(|row| row.is(id)) {
                    table.rows.remove(&key);
                }
                if flaw != Flaw::AbandonDoesNotVoid {
                    table.voids.insert(id.to_string());
                }
            })
            .await
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<HolderInfo>> {
        let (flaw, key) = (self.wire.flaw, self.wire.key(name));
        self.wire
            .ask(|table, now| {
                if flaw != Flaw::ShowsTheDead {
                    table.expire(&key, now);
                }
                let row = table.rows.get(&key).filter(|row| row.is_held())?;
                let note = (!row.note.is_empty()).then(|| row.note.as_str().into());
                let holder = if flaw == Flaw::HidesTheHolder { "somebody" } else { &row.holder };
                let info = HolderInfo::new(holder, FencingToken::new(row.token)).with_note(note);
                let info = if flaw == Flaw::InventsWaiters {
                    info.with_waiting(vec![Waiter::new("?")]).with_waiters(2)
                } else {
                    info
                };
                Some(info.with_remaining(Duration::from_nanos(row.expires.saturating_sub(now))))
            })
            .await
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }
}

/// The token, or for how long who still has it.
fn acquire(
    table: &mut Table,
    now: u64,
    flaw: Flaw,
    key: &str,
    claim: &Claim,
    ttl: Duration,
) -> std::result::Result<u64, (u64, String)> {
    table.expire(key, now);
    let expires = expiry(flaw, now, ttl);
    if table.voids.contains(&claim.id().to_string()) {
        return Err((1_000_000, "nobody: the claim is void".to_owned()));
    }
    let last = table.tokens.get(key).copied().unwrap_or_default();
    let next = match flaw {
        Flaw::TokenStandsStill => last.max(1),
        Flaw::TokenFallsBack if last % 10 == 9 => last - 5,
        Flaw::TokenAtFirstTry => {
            let drawn = format!("{key}\u{1}{}", claim.id());
            let token = *table.tokens.entry(drawn).or_insert(last + 1);
            table.tokens.insert(key.to_owned(), last.max(token));
            token
        }
        _ => last + 1 + u64::from(claim.reserve()),
    };
    match table.rows.get_mut(key) {
        Some(row) if row.is(claim.id()) => {
            if flaw != Flaw::SameIdNotRearmed {
                row.expires = row.expires.max(expires);
            }
            if flaw == Flaw::SameIdNewToken || flaw == Flaw::ReservesAnew && claim.reserve() > 0 {
                row.token = next;
                table.tokens.insert(key.to_owned(), next);
            }
            return Ok(row.token);
        }
        Some(row) if flaw == Flaw::GrantsTheFirstTwo && !row.second && fastrand::u8(..4) == 0 => row.second = true,
        Some(row) if flaw == Flaw::TryLeavesAPlace => {
            let waiting = format!("{key}\u{1}next");
            let (left, holder) = (row.expires - now, row.holder.clone());
            table.rows.insert(waiting, Row::of(claim, next, expires));
            return Err((left, holder));
        }
        Some(row) if flaw != Flaw::GrantsAlways => return Err((row.expires - now, row.holder.clone())),
        _ => {}
    }
    let newest = match flaw {
        Flaw::TokenAtFirstTry => last.max(next),
        Flaw::ReservesNothing => last + 1,
        _ => next,
    };
    table.tokens.insert(key.to_owned(), newest);
    table.rows.insert(key.to_owned(), Row::of(claim, next, expires));
    Ok(next)
}

#[async_trait]
impl Admin for OwnLock {
    async fn list(&self, prefix: &str) -> Result<Vec<(LockName, HolderInfo)>> {
        let names: Vec<_> = self
            .wire
            .ask(|table, now| {
                let rows = table
                    .rows
                    .iter()
                    .filter(|(name, row)| name.starts_with(prefix) && row.is_held() && row.expires > now);
                rows.map(|(name, row)| (name.clone(), row.holder.clone(), row.token)).collect()
            })
            .await?;
        let info = |(name, holder, token): (String, String, u64)| {
            Ok((LockName::new(name)?, HolderInfo::new(holder, FencingToken::new(token))))
        };
        names.into_iter().map(info).collect()
    }

    async fn force_release(&self, name: &LockName) -> Result<bool> {
        self.force(name, None).await
    }

    async fn force_release_if(&self, name: &LockName, token: FencingToken) -> Result<bool> {
        match self.wire.flaw {
            Flaw::ForcesAnybody => self.force(name, None).await,
            Flaw::ForcesInTwoSteps => {
                let is_meant = |found: Option<HolderInfo>| found.is_some_and(|found| found.token == token);
                if !is_meant(self.inspect(name).await?) {
                    return Ok(false);
                }
                // The second step comes late: when another holds, if one comes to.
                for _ in 0..20 {
                    tokio::time::sleep(Duration::from_millis(3)).await;
                    if self.inspect(name).await?.is_some_and(|found| found.token != token) {
                        break;
                    }
                }
                self.force(name, None).await
            }
            _ => self.force(name, Some(token.get())).await,
        }
    }
}

impl OwnLock {
    async fn force(&self, name: &LockName, only: Option<u64>) -> Result<bool> {
        let (flaw, key) = (self.wire.flaw, self.wire.key(name));
        self.wire
            .ask(|table, now| {
                table.expire(&key, now);
                let meant = |row: &&Row| row.is_held() && only.is_none_or(|only| row.token == only);
                let Some(row) = table.rows.get(&key).filter(meant).cloned() else { return false };
                if row.delay == 0 || flaw == Flaw::ForcesAtOnce {
                    table.rows.remove(&key);
                } else {
                    table.rows.insert(key.clone(), row.closed(now));
                }
                true
            })
            .await
    }
}
