//! Which master of a Cluster has which slots.

use crate::config::Address;
use crate::failure::Failure;
use redis::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The last slot of each range, and its master.
#[derive(Default)]
pub(crate) struct SlotMap {
    ranges: BTreeMap<u16, (u16, Address)>,
}

impl SlotMap {
    pub(crate) fn find(&self, slot: u16) -> Option<Address> {
        let (_, (first, address)) = self.ranges.range(slot..).next()?;
        (*first <= slot).then(|| address.clone())
    }

    /// Cuts the one slot out of its range.
    pub(crate) fn moved(&mut self, slot: u16, to: Address) {
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

    /// Every master that has a slot.
    pub(crate) fn masters(&self) -> BTreeSet<Address> {
        self.ranges.values().map(|(_, address)| address.clone()).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

/// Which master has which slots, and every node that was named.
pub(crate) type Slots = (SlotMap, Vec<Address>);

/// The answer to `CLUSTER SLOTS`: first, last, master, replicas of each range.
pub(crate) fn slots(answer: &Value, asked: &Address) -> Result<Slots, Failure> {
    let (mut map, mut nodes) = (SlotMap::default(), Vec::new());
    for range in array(answer)? {
        let [first, last, master, replicas @ ..] = array(range)? else { return Err(Failure::odd_answer()) };
        let master = address(master, asked)?;
        map.ranges.insert(number(last)?, (number(first)?, master.clone()));
        nodes.push(master);
        for replica in replicas {
            nodes.push(address(replica, asked)?);
        }
    }
    Ok((map, nodes))
}

fn address(node: &Value, asked: &Address) -> Result<Address, Failure> {
    let [host, port, ..] = array(node)? else { return Err(Failure::odd_answer()) };
    let host = match host {
        Value::BulkString(host) if !host.is_empty() && host != b"?" => String::from_utf8_lossy(host).into_owned(),
        _ => asked.0.clone(),
    };
    Ok((host, number(port)?))
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
