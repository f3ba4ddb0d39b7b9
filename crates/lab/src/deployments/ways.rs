//! Ways of its own for each worker to the servers, so that one worker can be cut off.

use crate::fault::Fault;
use fencelock_lab::{Failure, Mood, Proxy};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

#[derive(Debug, Default)]
pub(super) struct Ways(HashMap<u32, Vec<Proxy>>);

impl Ways {
    /// The port of the worker's way to `server`.
    pub(super) fn to(&mut self, server: SocketAddr, worker: u32) -> Result<u16, Failure> {
        let way = Proxy::before(server)?;
        let port = way.port();
        self.0.entry(worker).or_default().push(way);
        Ok(port)
    }

    /// `host:port` of the worker's way to each of the servers, separated by commas, as in a URL.
    pub(super) fn all_to(
        &mut self,
        servers: impl IntoIterator<Item = SocketAddr>,
        worker: u32,
    ) -> Result<String, Failure> {
        let ways = servers.into_iter().map(|server| Ok(format!("127.0.0.1:{}", self.to(server, worker)?)));
        Ok(ways.collect::<Result<Vec<_>, Failure>>()?.join(","))
    }

    /// All ways but one lead to `server` from now on.
    pub(super) fn turn_to(&self, server: SocketAddr, except: Option<u32>) {
        self.0.iter().filter(|(of, _)| Some(**of) != except).for_each(|(_, ways)| {
            ways.iter().for_each(|way| way.turn_to(server));
        });
    }

    /// Begins a fault of one worker's ways; false if it is none.
    pub(super) fn hurt(&self, fault: Fault, worker: u32) -> bool {
        if fault == Fault::VotesSplit {
            self.split();
            return true;
        }
        let (mood, all) = match fault {
            Fault::HolderCut => (Mood::Refuse, false),
            Fault::RepliesDropped => (Mood::DropReplies, false),
            Fault::RequestsDelayed => (Mood::DelayRequests(Duration::from_millis(700)), false),
            Fault::RepliesLate => {
                // Shorter than the patience with a renewal, which is a fifth of its ttl.
                let late = Duration::from_millis(150);
                let own = self.0.get(&worker).into_iter().flatten();
                // The second time, nothing more arrives.
                let is_late = own.into_iter().any(|way| way.mood() == Mood::DelayReplies(late));
                (if is_late { Mood::DelayRepliesHoldRequests(late) } else { Mood::DelayReplies(late) }, false)
            }
            Fault::RequestsTwice => (Mood::RequestsTwice(Duration::from_millis(400)), true),
            _ => return false,
        };
        for (_, ways) in self.0.iter().filter(|(of, _)| all || **of == worker) {
            ways.iter().for_each(|way| way.set(mood));
        }
        true
    }

    /// Of those who ask at the same time one half is first at a minority of the servers, and the other at the rest.
    fn split(&self) {
        for (worker, ways) in &self.0 {
            let few = ways.len() / 2;
            let late = ways.iter().enumerate().filter(|(at, _)| (*at < few) == (worker % 2 == 0));
            late.for_each(|(_, way)| way.set(Mood::DelayRequests(Duration::from_millis(20))));
        }
    }

    pub(super) fn mend(&self) {
        self.0.values().flatten().for_each(|way| way.set(Mood::Honest));
    }
}
