//! Grants that come by themselves: whoever frees a lock hands it to the head of its queue, and tells that client.

use crate::keys::{Keys, NameKeys};
use crate::link::lock;
use crate::store::Store;
use fencelock_core::{ClaimId, FencingToken, Moment, Result};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// How often a grant that nobody waits for is given back, if no answer comes. Then it runs out.
const TRIES: u32 = 6;

/// Where one client is told of its grants.
pub(crate) struct Mail {
    /// Tells this client from every other.
    client: String,
    /// Its channel, where it has but one.
    channel: Arc<str>,
    keys: Keys,
    claims: Mutex<HashMap<ClaimId, Box<Entry>>>,
    store: OnceLock<Weak<Store>>,
}

#[derive(Default)]
struct Entry {
    places: usize,
    handed: Option<Handed>,
    told: Arc<Notify>,
}

/// A grant as it was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handed {
    pub(crate) token: FencingToken,
    /// When the request left that the queue had last of this claim. It had arrived before the grant was made.
    pub(crate) sent: Moment,
}

/// A message.
struct Letter<'m> {
    id: ClaimId,
    handed: Handed,
    /// The lock's key.
    lock: &'m str,
}

impl<'m> Letter<'m> {
    fn read(message: &'m [u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(message).ok()?.splitn(4, ' ');
        let id = ClaimId::from_bytes(u128::from_str_radix(words.next()?, 16).ok()?.to_be_bytes());
        let token = FencingToken::new(words.next()?.parse().ok()?);
        let sent = Moment::from_nanos(words.next()?.parse().ok()?);
        Some(Self { id, handed: Handed { token, sent }, lock: words.next()? })
    }
}

impl Mail {
    pub(crate) fn new(keys: Keys) -> Result<Arc<Self>> {
        let client = ClaimId::random()?.to_string();
        let channel = keys.mail(&client).into();
        Ok(Arc::new(Self { client, channel, keys, claims: Mutex::default(), store: OnceLock::new() }))
    }

    /// From here on what nobody waits for is given back.
    pub(crate) fn attach(&self, store: Weak<Store>) {
        let _ = self.store.set(store);
    }

    /// The channel on which this client is told, and the slot whose node tells it: one channel for all, in a
    /// Cluster one for each shard.
    pub(crate) fn channel(&self, name: &NameKeys, is_cluster: bool) -> (Arc<str>, u16) {
        if is_cluster { (name.mail(&self.client).into(), name.slot()) } else { (Arc::clone(&self.channel), 0) }
    }

    /// A place for what is told of `id`.
    pub(crate) fn place(self: &Arc<Self>, id: ClaimId) -> Place {
        let mut claims = lock(&self.claims);
        let entry = claims.entry(id).or_default();
        entry.places += 1;
        Place { mail: Arc::clone(self), id, told: Arc::clone(&entry.told) }
    }

    /// A message has come. What nobody here waits for or holds is given back at once.
    pub(crate) fn delivered(&self, message: &[u8]) {
        let Some(letter) = Letter::read(message) else { return };
        if let Some(entry) = lock(&self.claims).get_mut(&letter.id) {
            entry.handed = Some(letter.handed);
            entry.told.notify_one();
            return;
        }
        let (Some(store), Some(name)) = (self.store.get().and_then(Weak::upgrade), self.keys.name_of(letter.lock))
        else {
            return;
        };
        let (id, token) = (letter.id, letter.handed.token);
        if let Ok(home) = Handle::try_current() {
            home.spawn(async move {
                let (keys, mut pause) = (store.keys.of(&name), Duration::from_millis(50));
                for _ in 0..TRIES {
                    if store.give_back(id, &keys, token).await.is_ok() {
                        return;
                    }
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
            });
        }
    }
}

/// As long as it lives, grants of its claim are somebody's. Dropping the last one of a claim ends that.
pub(crate) struct Place {
    mail: Arc<Mail>,
    pub(crate) id: ClaimId,
    told: Arc<Notify>,
}

impl Place {
    /// What was told and not taken.
    pub(crate) fn take(&self) -> Option<Handed> {
        lock(&self.mail.claims).get_mut(&self.id)?.handed.take()
    }

    /// Ends when there is something to take.
    pub(crate) async fn handed(&self) {
        loop {
            if lock(&self.mail.claims).get(&self.id).is_some_and(|entry| entry.handed.is_some()) {
                return;
            }
            self.told.notified().await;
        }
    }

    /// Another of the same claim.
    pub(crate) fn again(&self) -> Self {
        self.mail.place(self.id)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut claims = lock(&self.mail.claims);
        if let Some(entry) = claims.get_mut(&self.id) {
            entry.places = entry.places.saturating_sub(1);
            if entry.places == 0 {
                claims.remove(&self.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_kept_for_who_has_a_place() {
        let mail = Mail::new(Keys::new("fencelock", false)).unwrap();
        let id = ClaimId::from_bytes([7; 16]);
        let place = mail.place(id);
        let lease = place.again();
        mail.delivered(format!("{id} 12 345 fencelock:{{1}}:lock:a b").as_bytes());
        let expected = Handed { token: FencingToken::new(12), sent: Moment::from_nanos(345) };
        assert_eq!((place.take(), place.take()), (Some(expected), None));
        drop(place);
        assert_eq!(lock(&mail.claims).len(), 1, "it is held");
        drop(lease);
        assert!(lock(&mail.claims).is_empty());
        // Of no claim of ours, and no message at all.
        mail.delivered(format!("{id} 12 345 fencelock:{{1}}:lock:a").as_bytes());
        for odd in ["", "x", "07", "07 1", "07 1 2", "07 -1 2 k", "07 1 2.5 k"] {
            mail.delivered(odd.as_bytes());
        }
        mail.delivered(&[0xff, b' ']);
    }
}
