//! Which server has a lock: always the same one, or by slot.

use crate::config::{Address, Deployment, RedisConfig};
use crate::failure::{Failure, Next};
use crate::link::{Events, Link, lock};
use crate::open::Opener;
use crate::script::LuaScript;
use redis::{Cmd, Value};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How often a request is sent on before its failure is told.
const HOPS: u32 = 6;
/// What lies between two looks at who is master.
const PAUSE: Duration = Duration::from_millis(25);

pub(crate) struct Router {
    config: Arc<RedisConfig>,
    events: Events,
    links: Mutex<HashMap<Address, Link>>,
    /// The one link, except in a Cluster.
    master: Option<Link>,
    map: Mutex<SlotMap>,
    /// Only one asks for the slots at a time.
    asking: tokio::sync::Mutex<Option<Instant>>,
}

/// The last slot of each range, and its master.
#[derive(Default)]
struct SlotMap {
    ranges: BTreeMap<u16, (u16, Address)>,
}

impl SlotMap {
    fn find(&self, slot: u16) -> Option<Address> {
        let (_, (first, address)) = self.ranges.range(slot..).next()?;
        (*first <= slot).then(|| address.clone())
    }

    /// Cuts the one slot out of its range.
    fn moved(&mut self, slot: u16, to: Address) {
        let range = self.ranges.range(slot..).next().map(|(last, (first, address))| (*first, *last, address.clone()));
        if let Some((first, last, address)) = range.filter(|(first, ..)| *first <= slot) {
            self.ranges.remove(&last);
            if first < slot {
                self.ranges.insert(slot - 1, (first, address.clone()));
            }
            if slot < last {
                self.ranges.insert(last, (slot + 1, address));
            }
        }
        self.ranges.insert(slot, (slot, to));
    }
}

impl Router {
    pub(crate) fn new(config: &Arc<RedisConfig>, events: Events) -> Self {
        let master = match config.deployment {
            Deployment::Cluster(_) => None,
            Deployment::Standalone(_) | Deployment::Sentinel { .. } => {
                Some(Link::new(Opener::to_master(config), events.clone()))
            }
        };
        let (links, map, asking) = Default::default();
        Self { config: Arc::clone(config), events, links, master, map, asking }
    }

    pub(crate) fn is_cluster(&self) -> bool {
        self.master.is_none()
    }

    fn link_to(&self, address: &Address) -> Link {
        let open = || Link::new(Opener::to(&self.config, address.clone()), self.events.clone());
        lock(&self.links).entry(address.clone()).or_insert_with(open).clone()
    }

    /// The link to whoever has `slot`.
    pub(crate) async fn route(&self, slot: u16, deadline: Instant) -> Result<Link, Failure> {
        Ok(self.route_with_address(slot, deadline).await?.0)
    }

    async fn route_with_address(&self, slot: u16, deadline: Instant) -> Result<(Link, Option<Address>), Failure> {
        if let Some(master) = &self.master {
            return Ok((master.clone(), None));
        }
        let known = lock(&self.map).find(slot);
        let address = match known {
            Some(address) => address,
            None => {
                self.ask_for_slots(deadline).await?;
                lock(&self.map).find(slot).ok_or_else(|| Failure::not_reached("no node of the Cluster has the slot"))?
            }
        };
        Ok((self.link_to(&address), Some(address)))
    }

    /// Where `slot` is in a Cluster.
    pub(crate) async fn address_of(&self, slot: u16, deadline: Instant) -> Result<Option<Address>, Failure> {
        Ok(self.route_with_address(slot, deadline).await?.1)
    }

    /// Every master there is.
    pub(crate) async fn masters(&self, deadline: Instant) -> Result<Vec<Link>, Failure> {
        if let Some(master) = &self.master {
            return Ok(vec![master.clone()]);
        }
        self.ask_for_slots(deadline).await?;
        let mut addresses: Vec<_> = lock(&self.map).ranges.values().map(|(_, address)| address.clone()).collect();
        addresses.sort();
        addresses.dedup();
        Ok(addresses.iter().map(|address| self.link_to(address)).collect())
    }

    async fn ask_for_slots(&self, deadline: Instant) -> Result<(), Failure> {
        let asked = Instant::now();
        let Ok(mut last) = tokio::time::timeout_at(deadline, self.asking.lock()).await else {
            return Err(Failure::not_reached("the Cluster's slots are being asked for"));
        };
        if last.is_some_and(|last| last >= asked) {
            return Ok(());
        }
        let mut nodes: Vec<Address> = lock(&self.links).keys().cloned().collect();
        if let Deployment::Cluster(seeds) = &self.config.deployment {
            nodes.extend(seeds.iter().cloned());
        }
        nodes.dedup();
        let mut failure = Failure::not_reached("no node of the Cluster is known");
        for (at, node) in nodes.iter().enumerate() {
            // A node that hangs must leave time for the others.
            let now = Instant::now();
            let share = deadline.saturating_duration_since(now) / u32::try_from((nodes.len() - at).min(3)).unwrap_or(1);
            let mut command = redis::cmd("CLUSTER");
            command.arg("SLOTS");
            match self.link_to(node).call(&command, now + share).await.and_then(|slots| slot_map(&slots, node)) {
                Ok(map) if map.ranges.is_empty() => failure = Failure::of_answer("CLUSTERDOWN", ""),
                Ok(map) => {
                    let named: Vec<_> = map.ranges.values().map(|(_, address)| address.clone()).collect();
                    *lock(&self.map) = map;
                    lock(&self.links).retain(|address, _| named.contains(address) || address == node);
                    *last = Some(Instant::now());
                    return Ok(());
                }
                Err(failed) => failure = failed,
            }
        }
        Err(failure)
    }

    /// Runs a script on keys of one slot, wherever they are by now.
    ///
    /// Sent on only when it surely was not done where it was sent before.
    pub(crate) async fn run<K: AsRef<[u8]> + Sync, A: AsRef<[u8]> + Sync>(
        &self,
        slot: u16,
        script: &LuaScript,
        keys: &[K],
        args: &[A],
        limit: Duration,
    ) -> Result<Value, Failure> {
        let deadline = Instant::now() + limit;
        let mut in_full = false;
        let mut ask = None;
        let mut hop = 0;
        loop {
            let command = if in_full { script.in_full(keys, args) } else { script.by_digest(keys, args) };
            let failure = match self.send(slot, &command, ask.take(), deadline).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            hop += 1;
            let pauses = matches!(failure.next, Next::TryAgain | Next::Rediscover);
            let over = hop >= HOPS || Instant::now() + if pauses { PAUSE } else { Duration::ZERO } >= deadline;
            if !failure.settled || failure.next == Next::GiveUp || over {
                return Err(failure);
            }
            match failure.next.clone() {
                Next::SendScript => in_full = true,
                Next::Ask(to) => ask = Some(to),
                Next::Moved(slot, to) => lock(&self.map).moved(slot, to),
                Next::TryAgain => sleep(PAUSE).await,
                Next::Rediscover | Next::GiveUp => {
                    sleep(PAUSE).await;
                    if self.is_cluster() {
                        self.ask_for_slots(deadline).await?;
                    }
                }
            }
        }
    }

    async fn send(&self, slot: u16, command: &Cmd, ask: Option<Address>, deadline: Instant) -> Result<Value, Failure> {
        if let Some(address) = ask {
            return self.link_to(&address).call_asking(command, deadline).await;
        }
        let (link, asked) = self.route_with_address(slot, deadline).await?;
        let mut outcome = link.call(command, deadline).await;
        if let Err(failure) = &mut outcome {
            // A node that does not know its own name means itself.
            if let (Next::Moved(_, (host, _)) | Next::Ask((host, _)), Some((asked, _))) = (&mut failure.next, asked)
                && host.is_empty()
            {
                *host = asked;
            }
            if !failure.settled && self.is_cluster() {
                // Who did not answer may not be the master for long: look before the next request.
                lock(&self.map).ranges.clear();
            }
        }
        outcome
    }
}

/// The answer to `CLUSTER SLOTS`: first, last, master, replicas of each range.
fn slot_map(answer: &Value, asked: &Address) -> Result<SlotMap, Failure> {
    let mut map = SlotMap::default();
    for range in array(answer)? {
        let range = array(range)?;
        let [first, last, master, ..] = range else { return Err(Failure::odd_answer()) };
        let [host, port, ..] = array(master)? else { return Err(Failure::odd_answer()) };
        let host = match host {
            Value::BulkString(host) if !host.is_empty() && host != b"?" => String::from_utf8_lossy(host).into_owned(),
            _ => asked.0.clone(),
        };
        map.ranges.insert(number(last)?, (number(first)?, (host, number(port)?)));
    }
    Ok(map)
}

fn array(value: &Value) -> Result<&[Value], Failure> {
    match value {
        Value::Array(values) => Ok(values),
        _ => Err(Failure::odd_answer()),
    }
}

fn number(value: &Value) -> Result<u16, Failure> {
    match value {
        Value::Int(number) => u16::try_from(*number).map_err(|_| Failure::odd_answer()),
        _ => Err(Failure::odd_answer()),
    }
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.master {
            Some(link) => link.fmt(f),
            None => f.debug_set().entries(lock(&self.links).values()).finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> Address {
        ("h".to_owned(), port)
    }

    #[test]
    fn a_moved_slot_is_cut_out_of_its_range() {
        let mut map = SlotMap::default();
        map.ranges.insert(99, (0, at(1)));
        map.ranges.insert(199, (150, at(2)));
        assert_eq!(map.find(0), Some(at(1)));
        assert_eq!((map.find(120), map.find(200)), (None, None));
        for slot in [0, 50, 99, 120] {
            map.moved(slot, at(3));
        }
        let found: Vec<_> = [0, 1, 49, 50, 51, 98, 99, 120, 121, 150, 199].map(|slot| map.find(slot)).into();
        let expected = [Some(3), Some(1), Some(1), Some(3), Some(1), Some(1), Some(3), Some(3), None, Some(2), Some(2)];
        assert_eq!(found, expected.map(|port| port.map(at)));
    }
}
