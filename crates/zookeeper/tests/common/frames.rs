//! A proxy that knows where messages begin and end, and cuts the connection at a chosen one.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Request,
    Answer,
}

/// Where a connection is cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    pub(crate) way: Way,
    /// How many messages of that way pass before.
    pub(crate) after: usize,
    /// Whether the message itself still arrives.
    pub(crate) arrives: bool,
}

#[derive(Default)]
struct State {
    armed: Option<Cut>,
    /// How many messages have passed, by way, since it was armed.
    passed: [usize; 2],
    live: Vec<(TcpStream, TcpStream)>,
}

/// Listens on a free loopback port until the test's process ends.
#[derive(Clone)]
pub(crate) struct Frames {
    pub(crate) port: u16,
    state: Arc<Mutex<State>>,
}

impl Frames {
    pub(crate) fn before(target: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let frames = Self { port: listener.local_addr().unwrap().port(), state: Arc::default() };
        let accepting = frames.clone();
        std::thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let Ok(server) = TcpStream::connect(target) else { continue };
                let _ = (client.set_nodelay(true), server.set_nodelay(true));
                let pair = (client.try_clone().unwrap(), server.try_clone().unwrap());
                accepting.state.lock().unwrap().live.push(pair);
                accepting.pump(Way::Request, client.try_clone().unwrap(), server.try_clone().unwrap());
                accepting.pump(Way::Answer, server, client);
            }
        });
        frames
    }

    /// Counts from now on, and cuts once.
    pub(crate) fn arm(&self, cut: Cut) {
        let mut state = self.state.lock().unwrap();
        state.armed = Some(cut);
        state.passed = [0; 2];
    }

    /// Whether it is still to come to the cut; it will not come any more.
    pub(crate) fn disarm(&self) -> bool {
        self.state.lock().unwrap().armed.take().is_some()
    }

    fn pump(&self, way: Way, mut from: TcpStream, mut to: TcpStream) {
        let frames = self.clone();
        std::thread::spawn(move || {
            let _ = frames.pass(way, &mut from, &mut to);
            let _ = (to.shutdown(Shutdown::Both), from.shutdown(Shutdown::Both));
        });
    }

    fn pass(&self, way: Way, from: &mut TcpStream, to: &mut TcpStream) -> std::io::Result<()> {
        loop {
            let mut message = vec![0; 4];
            from.read_exact(&mut message)?;
            let Ok(length @ ..0x10_0000) =
                u32::from_be_bytes([message[0], message[1], message[2], message[3]]).try_into()
            else {
                // One of the four-letter words, or the answer to one.
                to.write_all(&message)?;
                std::io::copy(from, to)?;
                return Ok(());
            };
            let length: usize = length;
            message.resize(4 + length, 0);
            from.read_exact(&mut message[4..])?;
            let Some(cut) = self.counts(way) else {
                to.write_all(&message)?;
                continue;
            };
            if cut.arrives {
                to.write_all(&message)?;
                // What arrives is acted upon, even if nobody hears the answer.
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            for (client, server) in self.state.lock().unwrap().live.drain(..) {
                let _ = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
            }
            return Ok(());
        }
    }

    /// Counts a message; the cut, if it is to be made at this one.
    fn counts(&self, way: Way) -> Option<Cut> {
        let mut state = self.state.lock().unwrap();
        let at = state.passed[usize::from(way == Way::Answer)];
        state.passed[usize::from(way == Way::Answer)] += 1;
        state.armed.take_if(|cut| cut.way == way && cut.after == at)
    }
}
