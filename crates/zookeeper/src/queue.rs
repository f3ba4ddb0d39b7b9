//! The recipe: a place in the queue, and who stands before it.
//!
//! It is that of the ZooKeeper documentation ("Recipes and Solutions: Locks"),
//! with the claim's id in the node's name, so that a creation whose answer was
//! lost is found again, and with what is said below about sessions.

use crate::failure::Failure;
use crate::keys::{self, Data, Entry};
use crate::line::Told;
use crate::session::Session;
use crate::voids::Voids;
use crate::watching;
use fencelock_core::{Claim, Error, ErrorKind, Obstacle, Result};
use std::cmp::Ordering;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::time::Instant;
use zookeeper_client::CreateMode;

/// How often the parent may be removed between its creation and ours.
const TRIES: u32 = 10;
/// How long a waiter relies on its watch before it looks by itself.
const SAFETY: Duration = if cfg!(test) { Duration::from_millis(200) } else { Duration::from_secs(20) };
/// How long one waits before it asks who holds the lock.
const NAMED_AFTER: Duration = Duration::from_millis(50);

/// A claim's node.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) path: String,
    pub(crate) entry: Entry,
    /// The transaction that made it: the hold's token.
    pub(crate) czxid: i64,
    /// When it was made, by the server's clock in milliseconds.
    pub(crate) since: i64,
}

/// Who stands before a place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nobody.
    First,
    /// The one directly before, and the first of all.
    Behind { before: Entry, first: Entry },
    /// The place itself is not there any more.
    Gone,
}

/// The first of all entries, wherever the counting has wrapped around.
pub(crate) fn first(entries: &[Entry]) -> Option<&Entry> {
    entries.iter().min_by(|a, b| a.order(b))
}

pub(crate) fn standing(place: &Entry, entries: &[Entry]) -> Standing {
    if !entries.contains(place) {
        return Standing::Gone;
    }
    let before = entries.iter().filter(|entry| entry.is_before(place)).max_by(|a, b| a.order(b));
    match (before, first(entries)) {
        (Some(before), Some(first)) => Standing::Behind { before: before.clone(), first: first.clone() },
        _ => Standing::First,
    }
}

fn dead() -> Error {
    Error::new(ErrorKind::Lost, "this claim was abandoned or released")
}

/// Takes a place for the claim, or finds the one that it has, and tells who else stands in the queue.
///
/// # Cancel safety
/// Dropping the future may leave a node, which `Session::purge` removes.
pub(crate) async fn join(session: &Session, claim: &Claim, voids: &Voids) -> Result<(Place, Vec<Entry>)> {
    let queue = session.keys.queue(claim.name());
    if claim.was_sent() {
        let entries = session.list_synced(&queue).await?;
        if let Some(found) = keep_one(session, claim, &queue, entries).await? {
            return if voids.contains(claim.id()) { Err(dead()) } else { Ok(found) };
        }
    }
    let mut parent_is_missing = false;
    for _ in 0..TRIES {
        if voids.contains(claim.id()) {
            return Err(dead());
        }
        session.connected().await?;
        match create(session, claim, &queue, parent_is_missing).await {
            Err(Failure::NoNode) => parent_is_missing = true,
            outcome => return Ok(outcome?),
        }
    }
    Err(Error::new(ErrorKind::Unavailable, "the parent node was removed again and again"))
}

/// Creation and listing leave together: one round trip.
async fn create(
    session: &Session,
    claim: &Claim,
    queue: &str,
    parent_is_missing: bool,
) -> Result<(Place, Vec<Entry>), Failure> {
    let (client, prefix) = (&session.client, format!("{queue}/{}", keys::prefix(claim.id())));
    let (data, mode) = (Data::of(claim).write(), session.with_mode(CreateMode::EphemeralSequential));
    let request = claim.request();
    // The client sends when a future is made, in that order, and the server answers in that order.
    let parent = parent_is_missing.then(|| client.create(queue, &[], &session.with_mode(CreateMode::Container)));
    let creation = client.create(&prefix, &data, &mode);
    let listing = client.list_children(queue);
    let made = async {
        match parent {
            Some(parent) => session.call(parent).await.map(|_| ()),
            None => Ok(()),
        }
    };
    // A heartbeat travels along when the last one is not quite new.
    let (made, created, listed, beaten) =
        tokio::join!(made, session.call(creation), session.call(listing), session.fresh(session.tempo.patience()));
    if created.as_ref().map_or_else(Failure::is_answer, |_| true) {
        request.answered();
    }
    match (made, &created) {
        (Ok(()) | Err(Failure::Exists), _) | (_, Ok(_)) => {}
        (Err(e), Err(_)) => return Err(e),
    }
    let (stat, sequence) = created?;
    session.heard_the_hour(stat.ctime);
    beaten?;
    let path = format!("{prefix}{sequence}");
    if !session.owns(stat.ephemeral_owner) {
        session.end("a node was made under another session's number");
        session.gone(client.delete(&path, None)).await?;
        return Err(Failure::Unknown("the session had been replaced by another".to_owned()));
    }
    let nodes = listed?;
    let entries: Vec<_> = nodes.iter().filter_map(|node| Entry::parse(node)).collect();
    let node = path.rsplit('/').next().unwrap_or_default();
    let entry = Entry::parse(node).ok_or_else(|| Failure::Refused(format!("the server named a node {node}")))?;
    Ok((Place { path, entry, czxid: stat.czxid, since: stat.ctime }, entries))
}

/// Of the claim's nodes keeps the first that this session owns, and deletes all
/// others: one that an earlier session left would vanish with that session.
async fn keep_one(
    session: &Session,
    claim: &Claim,
    queue: &str,
    entries: Vec<Entry>,
) -> Result<Option<(Place, Vec<Entry>)>, Failure> {
    let (mut mine, mut others): (Vec<_>, Vec<_>) = entries.into_iter().partition(|entry| entry.is_of(claim.id()));
    mine.sort_by(Entry::order);
    let mut kept: Option<Place> = None;
    for entry in mine {
        let path = format!("{queue}/{}", entry.node);
        match session.call(session.client.check_stat(&path)).await? {
            Some(stat) if kept.is_none() && session.owns(stat.ephemeral_owner) => {
                others.push(entry.clone());
                kept = Some(Place { path, entry, czxid: stat.czxid, since: stat.ctime });
            }
            Some(_) => {
                session.gone(session.client.delete(&path, None)).await?;
            }
            None => {}
        }
    }
    Ok(kept.map(|place| (place, others)))
}

/// Waits until the one before may have gone. The watch is on that node alone.
pub(crate) async fn wait(
    session: &Session,
    claim: &Claim,
    queue: &str,
    before: &Entry,
    first: &Entry,
) -> Result<(), Failure> {
    let path = format!("{queue}/{}", before.node);
    let (data, stat, watcher) = match session.call(session.client.get_and_watch_data(&path)).await {
        Ok(watched) => watched,
        Err(Failure::NoNode) => return Ok(()),
        Err(e) => return Err(e),
    };
    let data = Data::read(&data);
    let is_first = before.order(first) == Ordering::Equal;
    let holder = (is_first && !before.is_closure()).then_some(data.holder);
    claim.met(Obstacle::Held(holder.map(Into::into)));
    tokio::select! {
        event = watching::changed(session, watching::told(watcher)) => {
            let event = event?;
            tracing::trace!(target: "fencelock", event = "woken", name = %claim.name(), claim = %claim.id(),
                by = %event.event_type, "woken");
            Ok(())
        }
        opened = reopen(session, &path, stat.czxid, data.delay), if before.is_closure() => opened,
        () = name_the_holder(session, claim, queue, first), if !is_first => Ok(()),
        () = out_of_patience(|| 1) => Ok(()),
    }
}

/// The same behind a claim of this client, which tells itself when it is done: true if it was first, and left
/// this one's place the first.
///
/// Whatever becomes of that claim, be it only its end, is told ([`Spot`](crate::line::Spot)), so nothing has to be
/// asked on that account, however many wait.
pub(crate) async fn wait_to_be_told(
    session: &Session,
    claim: &Claim,
    queue: &str,
    first: &Entry,
    mut told: Told<'_>,
) -> Result<bool, Failure> {
    claim.met(Obstacle::Held(None));
    let waiting = told.waiting();
    tokio::select! {
        first = told.heard() => Ok(first),
        () = session.until_ended() => Err(Failure::Unknown("the session has ended".to_owned())),
        () = name_the_holder(session, claim, queue, first) => Ok(false),
        () = out_of_patience(|| waiting.load(Relaxed)) => Ok(false),
    }
}

/// Ends when one of so `many` who rely on being told looks by itself: all together look as often as one would alone.
async fn out_of_patience(many: impl Fn() -> usize) {
    let (began, spread) = (Instant::now(), 1.0 + fastrand::f64() / 2.0);
    loop {
        let due = SAFETY.saturating_mul(u32::try_from(many()).unwrap_or(u32::MAX)).mul_f64(spread);
        let left = due.saturating_sub(began.elapsed());
        if left.is_zero() {
            return;
        }
        // The others may leave meanwhile, and then it is due sooner.
        tokio::time::sleep(left.min(SAFETY * 8)).await;
    }
}

/// Asks once who holds the lock, for whoever gives up waiting; never ends. Most are served before it is asked.
async fn name_the_holder(session: &Session, claim: &Claim, queue: &str, first: &Entry) {
    if !first.is_closure() {
        tokio::time::sleep(NAMED_AFTER).await;
        let holder = before(session, queue, first, 0).await.holder;
        claim.met(Obstacle::Held(holder.map(Into::into)));
    }
    std::future::pending().await
}

/// Opens a closed queue once the lock delay has passed since now, which is later
/// than when it was closed: the servers' own time for it may be longer.
pub(crate) async fn reopen(session: &Session, path: &str, czxid: i64, delay: Duration) -> Result<(), Failure> {
    tokio::time::sleep(delay + delay / 50).await;
    if session.call(session.client.check_stat(path)).await?.is_some_and(|stat| stat.czxid == czxid) {
        session.gone(session.client.delete(path, None)).await?;
    }
    Ok(())
}

/// What stands in the way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Before {
    /// Who holds the lock, if that is to be had.
    pub(crate) holder: Option<String>,
    /// What is left of a lock delay, by the servers' clock.
    pub(crate) closed_for: Option<Duration>,
}

/// What the first entry says, at `now` by the servers' clock.
pub(crate) async fn before(session: &Session, queue: &str, first: &Entry, now: i64) -> Before {
    let path = format!("{queue}/{}", first.node);
    let Ok((data, stat)) = session.call(session.client.get_data(&path)).await else { return Before::default() };
    let data = Data::read(&data);
    if !first.is_closure() {
        return Before { holder: Some(data.holder), closed_for: None };
    }
    let gone_by = Duration::from_millis(u64::try_from(now.saturating_sub(stat.ctime)).unwrap_or_default());
    Before { holder: None, closed_for: Some(data.delay.saturating_sub(gone_by)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: u8, sequence: i64) -> Entry {
        Entry::parse(&format!("{id:032x}-{sequence:010}")).unwrap()
    }

    #[test]
    fn the_one_directly_before_is_watched() {
        let queue = [entry(3, 7), entry(1, 4), entry(2, 5)];
        assert_eq!(standing(&queue[1], &queue), Standing::First);
        let behind = Standing::Behind { before: queue[2].clone(), first: queue[1].clone() };
        assert_eq!(standing(&queue[0], &queue), behind);
        assert_eq!(standing(&entry(1, 5), &queue), Standing::Gone);
        assert_eq!(first(&[]), None);
    }

    #[test]
    fn the_order_holds_where_the_counting_wraps() {
        let (max, min) = (i64::from(i32::MAX), i64::from(i32::MIN));
        let queue = [entry(1, min + 1), entry(2, max), entry(3, min), entry(4, max - 1)];
        assert_eq!(first(&queue), Some(&queue[3]));
        let behind = Standing::Behind { before: queue[2].clone(), first: queue[3].clone() };
        assert_eq!(standing(&queue[0], &queue), behind);
        assert_eq!(standing(&queue[3], &queue), Standing::First);
    }
}
