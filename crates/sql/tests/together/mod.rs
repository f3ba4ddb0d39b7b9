//! What travels in one statement is answered as if each had come alone, on every database.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "each test uses some of it, and tests may panic"
)]

use fencelock_core::{
    Admin as _, Attempt, Claim, DistributedLock as _, ErrorKind, FencingToken, Grant, HolderInfo, LockName, Result,
    Terms,
};
use fencelock_sql::SqlLock;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(300);
/// Whatever a name may hold, and any other text besides.
const NAME: &str = "it's \"odd\" \\ $1 {now} ?2 -- é \u{1F512}";
const TEXT: &str = "it's \"odd\" \\ $1 {now} ?2 -- é \u{1F512}\n\t/*";

/// In what state a lock is found, and the claim that asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Found {
    New,
    Freed,
    RanOut,
    Held,
    /// By the claim that asks.
    Ours,
    /// It has had it, and gave it back.
    Released,
    /// It has had it, and it ran out.
    OursRanOut,
    /// It was undone, and another has the lock or nobody.
    Void,
    VoidHeld,
    /// It never had it.
    VoidFree,
    /// Another's was freed by force, at once or after a delay.
    Forced,
    Closed,
    /// The claim's own was.
    OursForced,
    OursClosed,
    /// And the delay is over.
    OursOpenAgain,
}

use Found::{
    Closed, Forced, Freed, Held, New, Ours, OursClosed, OursForced, OursOpenAgain, OursRanOut, RanOut, Released, Void,
    VoidFree, VoidHeld,
};

const ALL: [Found; 15] = [
    New,
    Freed,
    RanOut,
    Held,
    Ours,
    Released,
    OursRanOut,
    Void,
    VoidHeld,
    VoidFree,
    Forced,
    Closed,
    OursForced,
    OursClosed,
    OursOpenAgain,
];

fn terms(name: &str, ttl: Duration) -> Terms {
    Terms::new(LockName::new(name).unwrap(), ttl)
}

fn odd(name: &str, ttl: Duration) -> Terms {
    terms(name, ttl).with_holder(TEXT).with_note(TEXT)
}

async fn granted(engine: &SqlLock, claim: &Claim) -> Grant {
    match engine.try_acquire(claim).await.unwrap() {
        Attempt::Granted(grant) => grant,
        other => panic!("{}: {other:?}", claim.name()),
    }
}

/// The claim that is to ask for a lock that it finds so, and the token that it has.
async fn prepared(ours: &SqlLock, other: &SqlLock, found: Found, name: &str) -> (Claim, Option<FencingToken>) {
    let closing = |delay| terms(name, LONG).with_lock_delay(delay).mint().unwrap();
    let another = if found == Closed { closing(LONG) } else { terms(name, LONG).mint().unwrap() };
    let claim = match found {
        OursRanOut => odd(name, SHORT).mint().unwrap(),
        OursClosed => closing(LONG),
        OursOpenAgain => closing(SHORT),
        _ => odd(name, LONG).mint().unwrap(),
    };
    match found {
        New => {}
        Freed => granted(other, &another).await.lease.release().await.unwrap(),
        RanOut => drop(granted(other, &terms(name, SHORT).mint().unwrap()).await),
        Held => drop(granted(other, &another).await),
        Ours => {
            let token = granted(ours, &claim).await.token;
            return (claim, Some(token));
        }
        Released => granted(ours, &claim).await.lease.release().await.unwrap(),
        OursRanOut => drop(granted(ours, &claim).await),
        Void | VoidHeld => {
            drop(granted(ours, &claim).await);
            ours.abandon(&claim).await.unwrap();
            if found == VoidHeld {
                drop(granted(other, &another).await);
            }
        }
        VoidFree => {
            let grant = granted(other, &another).await;
            assert!(matches!(ours.try_acquire(&claim).await, Ok(Attempt::Contended { .. })));
            ours.abandon(&claim).await.unwrap();
            grant.lease.release().await.unwrap();
        }
        Forced | Closed => {
            drop(granted(other, &another).await);
            assert!(ours.force_release(claim.name()).await.unwrap());
        }
        OursForced | OursClosed | OursOpenAgain => {
            drop(granted(ours, &claim).await);
            assert!(other.force_release(claim.name()).await.unwrap());
        }
    }
    (claim, None)
}

/// What a try came to, in words that are the same for all locks that are found so.
async fn outcome(other: &SqlLock, (claim, had): (&Claim, Option<FencingToken>), outcome: &Result<Attempt>) -> String {
    let info: Option<HolderInfo> = other.inspect(claim.name()).await.unwrap();
    let has_it = info.as_ref().is_some_and(|info| info.claim == Some(claim.id()));
    assert_eq!(has_it, matches!(outcome, Ok(Attempt::Granted(_))), "{}: told {outcome:?}", claim.name());
    match outcome {
        Ok(Attempt::Granted(grant)) => {
            let info = info.unwrap();
            assert_eq!(info.token, grant.token, "{}: told another's token", claim.name());
            assert!(had.is_none_or(|had| had == grant.token), "{}: another token than it had", claim.name());
            let (holder, note) = (&info.holder, info.note.as_deref());
            format!("granted to {holder:?}, {note:?}")
        }
        Ok(Attempt::Contended { retry_after, holder, .. }) => {
            assert!(
                retry_after.is_some_and(|left| left > LONG / 2 && left <= LONG * 2),
                "{}: {retry_after:?}",
                claim.name()
            );
            format!("contended, {holder:?}")
        }
        Err(e) => format!("{}", e.kind()),
        other => format!("{other:?}"),
    }
}

/// Each claim's try, all in the same moment.
async fn all_at_once(engine: &Arc<SqlLock>, claims: &[Claim]) -> Vec<Result<Attempt>> {
    let mut tries = JoinSet::new();
    for (at, claim) in claims.iter().enumerate() {
        let (engine, claim) = (Arc::clone(engine), claim.clone());
        tries.spawn(async move { (at, engine.try_acquire(&claim).await) });
    }
    let mut outcomes = tries.join_all().await;
    outcomes.sort_by_key(|(at, _)| *at);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

/// Locks in every state that there is, asked for one by one and all at once: the outcomes are the same.
pub(crate) async fn each_is_answered_as_by_itself(ours: Arc<SqlLock>, other: Arc<SqlLock>) {
    let mut outcomes = BTreeMap::new();
    for (company, times) in [("alone", 1), ("together", 4)] {
        let mut claims = Vec::new();
        // Whoever is void would send the others of its statement to ask by themselves.
        for without_void in [false, true] {
            for found in ALL.iter().filter(|found| !without_void || !matches!(found, Void | VoidHeld | VoidFree)) {
                for time in 0..times {
                    let name = format!("{company}/{without_void}/{found:?}/{time}/{NAME}");
                    claims.push((*found, prepared(&ours, &other, *found, &name).await));
                }
            }
            tokio::time::sleep(SHORT * 2).await;
            let (states, prepared): (Vec<_>, Vec<_>) = claims.drain(..).unzip();
            let (asked, had): (Vec<_>, Vec<_>) = prepared.into_iter().unzip();
            let tried = match company {
                "alone" => {
                    let mut tried = Vec::new();
                    for claim in &asked {
                        tried.push(ours.try_acquire(claim).await);
                    }
                    tried
                }
                _ => all_at_once(&ours, &asked).await,
            };
            for ((found, claim), tried) in states.into_iter().zip(asked.iter().zip(had)).zip(&tried) {
                let came_to = outcome(&other, claim, tried).await;
                let claim = claim.0;
                let before = outcomes.entry(found).or_insert_with(|| came_to.clone());
                assert_eq!(*before, came_to, "{company}: {}", claim.name());
            }
        }
    }
    for (found, came_to) in &outcomes {
        println!("{found:?}: {came_to}");
        let is_granted = matches!(found, New | Freed | RanOut | Ours | Forced);
        assert_eq!(came_to.starts_with("granted"), is_granted, "{found:?}: {came_to}");
        assert_eq!(came_to.starts_with("contended"), matches!(found, Held | Closed), "{found:?}: {came_to}");
    }
}

/// Of names that are asked for twice one gets the lock; and the tokens of a name grow, also where they outran the clock.
pub(crate) async fn of_two_for_one_name_one_is_granted(ours: Arc<SqlLock>) {
    let mut last = BTreeMap::new();
    for _ in 0..6 {
        let claims: Vec<_> = (0..48).map(|n| terms(&format!("twice {}", n % 24), LONG).mint().unwrap()).collect();
        let mut grants = Vec::new();
        for (claim, outcome) in claims.iter().zip(all_at_once(&ours, &claims).await) {
            match outcome.unwrap() {
                Attempt::Granted(grant) => {
                    let before = last.insert(claim.name().to_string(), grant.token);
                    assert!(before < Some(grant.token), "{}: {} after {before:?}", claim.name(), grant.token);
                    grants.push(grant);
                }
                Attempt::Contended { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(grants.len(), 24, "one for each name");
        let mut releases = JoinSet::new();
        for grant in grants {
            releases.spawn(grant.lease.release());
        }
        assert!(releases.join_all().await.into_iter().all(|released| released.is_ok()));
        assert!(ours.list("").await.unwrap().is_empty());
    }
}

/// Some have lost their locks when all are given back at once: they are told so, and the others that they had them.
pub(crate) async fn each_release_is_answered_as_by_itself(ours: Arc<SqlLock>, other: Arc<SqlLock>) {
    let (mut held, mut claims) = (Vec::new(), Vec::new());
    for n in 0..60 {
        let ttl = if n % 5 == 0 { SHORT } else { LONG };
        let claim = terms(&format!("given back {n}"), ttl).mint().unwrap();
        held.push((n, granted(&ours, &claim).await));
        claims.push(claim);
    }
    tokio::time::sleep(SHORT * 2).await;
    let name = |n: i32| LockName::new(format!("given back {n}")).unwrap();
    for n in 0..60 {
        match n % 5 {
            // It has run out, and another has it now.
            0 if n % 2 == 0 => drop(granted(&other, &terms(name(n).as_str(), LONG).mint().unwrap()).await),
            1 => assert!(other.force_release(&name(n)).await.unwrap()),
            _ => {}
        }
    }
    let mut releases = JoinSet::new();
    for (n, grant) in held {
        releases.spawn(async move { (n, grant.lease.release().await) });
    }
    for (n, released) in releases.join_all().await {
        let lost = n % 5 == 1 || n % 10 == 0;
        match released {
            Ok(()) => assert!(!lost, "{n} was another's"),
            Err(e) => assert!(lost && e.kind() == ErrorKind::Lost, "{n}: {e}"),
        }
        let left = other.inspect(&name(n)).await.unwrap();
        assert_eq!(left.is_some(), n % 10 == 0, "{n}: {left:?}");
    }
    // Whoever gave its lock back, or lost it, is dead.
    for (claim, tried) in claims.iter().zip(all_at_once(&ours, &claims).await) {
        match tried {
            Err(e) => assert_eq!(e.kind(), ErrorKind::Lost, "{}: {e}", claim.name()),
            Ok(Attempt::Contended { .. }) => assert!(other.inspect(claim.name()).await.unwrap().is_some()),
            Ok(other) => panic!("{}: {other:?}", claim.name()),
        }
    }
}
