//! What the workers guard: a few values behind gates, served by the lab itself, so
//! that a worker's death loses nothing of them and no fault reaches them.

use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

/// A request, a line of JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub(crate) enum Ask {
    /// Raise the newest token, before the first read.
    Enter {
        resource: String,
        token: u64,
    },
    Read {
        resource: String,
    },
    Write {
        resource: String,
        value: Vec<u64>,
        check: Check,
    },
}

/// What a write is checked by.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Check {
    /// Nothing: whoever comes writes.
    None,
    /// The token must be the newest that entered.
    Entered { token: u64 },
    /// Nobody entered; the write alone raises the newest token and refuses smaller ones.
    WriteOnly { token: u64 },
}

/// The answer, a line of JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Told {
    pub(crate) accepted: bool,
    pub(crate) value: Vec<u64>,
}

#[derive(Debug, Default)]
struct Resource {
    newest: u64,
    value: Vec<u64>,
}

type Resources = Arc<Mutex<HashMap<String, Resource>>>;

/// The store's server.
#[derive(Debug)]
pub(crate) struct Store {
    port: u16,
    resources: Resources,
}

impl Store {
    pub(crate) fn start() -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let resources = Resources::default();
        let shared = Arc::clone(&resources);
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || serve(connection, &shared));
            }
        });
        Ok(Self { port, resources })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// What is there now, by resource.
    pub(crate) fn values(&self) -> Vec<(String, Vec<u64>)> {
        let resources = self.resources.lock().unwrap_or_else(PoisonError::into_inner);
        resources.iter().map(|(name, resource)| (name.clone(), resource.value.clone())).collect()
    }
}

fn serve(connection: TcpStream, resources: &Resources) {
    let _ = connection.set_nodelay(true);
    let Ok(mut answers) = connection.try_clone() else { return };
    for line in BufReader::new(connection).lines() {
        let Ok(ask) = line.map_err(serde_json::Error::io).and_then(|line| serde_json::from_str(&line)) else { return };
        let told = answer(&mut resources.lock().unwrap_or_else(PoisonError::into_inner), ask);
        let Ok(mut line) = serde_json::to_vec(&told) else { return };
        line.push(b'\n');
        if answers.write_all(&line).is_err() {
            return;
        }
    }
}

fn answer(resources: &mut HashMap<String, Resource>, ask: Ask) -> Told {
    match ask {
        Ask::Enter { resource, token } => {
            let resource = resources.entry(resource).or_default();
            let accepted = token >= resource.newest;
            resource.newest = resource.newest.max(token);
            Told { accepted, value: Vec::new() }
        }
        Ask::Read { resource } => Told { accepted: true, value: resources.entry(resource).or_default().value.clone() },
        Ask::Write { resource, value, check } => {
            let resource = resources.entry(resource).or_default();
            let accepted = match check {
                Check::None => true,
                Check::Entered { token } => token == resource.newest,
                Check::WriteOnly { token } => token >= resource.newest,
            };
            if accepted {
                if let Check::WriteOnly { token } = check {
                    resource.newest = token;
                }
                resource.value = value;
            }
            Told { accepted, value: Vec::new() }
        }
    }
}
