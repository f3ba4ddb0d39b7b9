//! Free ports on the loopback interface.

use std::net::{Ipv4Addr, TcpListener};

/// A port that nobody listens on now, below the range that the kernel gives to
/// outgoing connections, so that none of those takes it before the server does.
#[must_use]
pub fn free_port() -> u16 {
    for _ in 0..1_000 {
        let port = fastrand::u16(12_000..32_000);
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    0
}
