//! Free ports on the loopback interface.

use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Mutex, PoisonError};

/// Below the range that the kernel gives to outgoing connections, so that none of those takes one before the server does.
const PORTS: Range<u16> = 12_000..32_000;
/// How many one process claims at a time.
const BLOCK: u16 = 50;

/// The blocks of this process. Between the choice of a port and the start of its server nobody listens on it, so that
/// another process would choose it too: whoever runs beside this one has other blocks.
static BLOCKS: Mutex<Blocks> = Mutex::new(Blocks { claimed: Vec::new(), left: 0..0 });

struct Blocks {
    claimed: Vec<UnixDatagram>,
    left: Range<u16>,
}

impl Blocks {
    fn next(&mut self) -> u16 {
        if let Some(port) = self.left.next() {
            return port;
        }
        for _ in 0..1_000 {
            let begin = fastrand::u16(PORTS.start / BLOCK..PORTS.end / BLOCK) * BLOCK;
            if let Some(claim) = claim(begin) {
                self.claimed.push(claim);
                self.left = begin + 1..begin + BLOCK;
                return begin;
            }
        }
        fastrand::u16(PORTS)
    }
}

/// A socket whose name no other process of this network can have meanwhile, and that is gone with this process.
fn claim(begin: u16) -> Option<UnixDatagram> {
    let name = SocketAddr::from_abstract_name(format!("fencelock-lab-ports-{begin}")).ok()?;
    UnixDatagram::bind_addr(&name).ok()
}

/// A port that nobody listens on now, and that no other process that asks here is given.
#[must_use]
pub fn free_port() -> u16 {
    for _ in 0..1_000 {
        let port = BLOCKS.lock().unwrap_or_else(PoisonError::into_inner).next();
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_given_twice() {
        let mut ports: Vec<_> = (0..200).map(|_| free_port()).collect();
        assert!(ports.iter().all(|port| PORTS.contains(port)), "{ports:?}");
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 200);
    }

    #[test]
    fn a_block_is_claimed_once() {
        let begin = (PORTS.start..PORTS.end).step_by(usize::from(BLOCK));
        let (at, claimed) = begin.into_iter().find_map(|at| Some((at, claim(at)?))).expect("a block is left");
        assert!(claim(at).is_none());
        drop(claimed);
        assert!(claim(at).is_some());
    }
}
