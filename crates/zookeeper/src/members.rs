//! The servers, each asked by itself before any session relies on it.
//!
//! A session's time-out is negotiated anew with every server that it comes to,
//! and shortened by one that gives less, even if that server's answer is lost on
//! its way back. So the smallest that any of them gives has to be known before;
//! a server of which nothing is known is not connected to.

use crate::config::{ZooKeeperConfig, invalid};
use crate::link::{self, Purpose};
use crate::tempo::Ticks;
use crate::words::{self, Words};
use fencelock_core::{Error, ErrorKind, Result};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

/// How long those that have not answered are waited for once one has.
const GRACE: Duration = Duration::from_secs(1);
/// How long a server that is coming up is left alone before it is asked again.
const PAUSE: Duration = Duration::from_millis(50);

type Address = (String, u16);

/// What one server, or all behind one name, told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) ticks: Ticks,
    /// What it gives a session that asks for the configured time-out.
    pub(crate) session: Duration,
}

impl Told {
    /// The slowest of both, and unknown what one of them does not tell.
    fn and(self, other: Self) -> Self {
        let (a, b) = (self.ticks, other.ticks);
        let ticks = Ticks {
            tick: a.tick.zip(b.tick).map(|(a, b)| a.max(b)),
            sync_limit: a.sync_limit.zip(b.sync_limit).map(|(a, b)| a.max(b)),
            standalone: a.standalone && b.standalone,
        };
        Self { ticks, session: self.session.min(other.session) }
    }
}

/// All servers of which something is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Members(BTreeMap<Address, Told>);

impl Members {
    /// Asks all servers at once. Of those that do not answer, what they told `before` still counts.
    ///
    /// # Errors
    /// If nothing is known of any.
    pub(crate) async fn ask(config: &ZooKeeperConfig, before: &Self) -> Result<Self> {
        let mut members = before.clone();
        let mut end = Instant::now() + config.connect_timeout / 2;
        let (mut asking, mut failure) = (JoinSet::new(), None);
        for address in config.addresses() {
            let config = config.clone();
            asking.spawn(async move { (ask(&config, &address).await, address) });
        }
        while let Ok(Some(answered)) = timeout_at(end, asking.join_next()).await {
            match answered {
                Ok((Ok(told), address)) => {
                    members.0.insert(address, told);
                    end = end.min(Instant::now() + GRACE);
                }
                Ok((Err(e), _)) => failure = Some(e),
                Err(_) => {}
            }
        }
        for (host, port) in config.addresses().filter(|address| !members.0.contains_key(address)) {
            tracing::warn!(target: "fencelock", event = "left_out", server = format!("{host}:{port}"),
                "a server did not answer, and is not connected to by sessions that are opened now");
        }
        if members.0.is_empty() {
            return Err(failure.unwrap_or_else(|| Error::new(ErrorKind::Unavailable, "no server answered")));
        }
        Ok(members)
    }

    /// The servers as the client library wants them.
    pub(crate) fn cluster(&self) -> String {
        self.0.keys().map(host_port).collect::<Vec<_>>().join(",")
    }

    /// The time-out that every server gives at least.
    pub(crate) fn session(&self) -> Duration {
        self.0.values().map(|told| told.session).min().unwrap_or_default()
    }

    /// Whether there is no leader that a server could be cut off from.
    pub(crate) fn is_standalone(&self) -> bool {
        !self.0.is_empty() && self.0.values().all(|told| told.ticks.standalone)
    }

    /// How long a server that is cut off may go on answering: the longest that
    /// one of them told or that is configured; `None` if one did not tell and nothing is configured.
    pub(crate) fn lag(&self, config: &ZooKeeperConfig) -> Option<Duration> {
        if self.is_standalone() {
            return Some(Duration::ZERO);
        }
        let configured = Ticks { tick: config.tick_time, sync_limit: config.sync_limit, standalone: false };
        let lags = self.0.values().map(|told| {
            let (tick, sync_limit) = (told.ticks.tick, told.ticks.sync_limit);
            let ticks = Ticks {
                tick: tick.or(configured.tick),
                sync_limit: sync_limit.or(configured.sync_limit),
                standalone: false,
            };
            Some(ticks.lag()?.max(configured.lag().unwrap_or_default()))
        });
        lags.collect::<Option<Vec<_>>>()?.into_iter().max()
    }
}

fn host_port((name, port): &Address) -> String {
    if name.contains(':') { format!("[{name}]:{port}") } else { format!("{name}:{port}") }
}

/// Asks one server, or all that a name stands for.
async fn ask(config: &ZooKeeperConfig, address: &Address) -> Result<Told> {
    let (name, port) = address;
    let unavailable = |e: std::io::Error| Error::new(ErrorKind::Unavailable, format!("{name}:{port}: {e}"));
    let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), *port)).await.map_err(unavailable)?.collect();
    if config.tls.is_some() {
        // A certificate is for a name, so one that several servers share does not lead to each of them.
        let most = found.iter().filter(|at| at.is_ipv4()).count().max(found.iter().filter(|at| at.is_ipv6()).count());
        if most > 1 {
            return Err(invalid(format!("{name} stands for {most} servers: with TLS name each of them")));
        }
        let session = measure(config, &host_port(address)).await?;
        return Ok(Told { ticks: Ticks::default(), session });
    }
    let (mut all, mut failure) = (None, None);
    for at in found {
        match ask_one(config, at).await {
            Ok(told) => all = Some(all.map_or(told, |all: Told| all.and(told))),
            Err(e) => failure = Some(e),
        }
    }
    all.ok_or_else(|| failure.unwrap_or_else(|| Error::new(ErrorKind::Unavailable, format!("{name} has no address"))))
}

async fn ask_one(config: &ZooKeeperConfig, at: SocketAddr) -> Result<Told> {
    loop {
        let words = words::ask(at).await;
        let words = words.map_err(|e| Error::new(ErrorKind::Unavailable, format!("{at}: {e}")))?;
        if words.not_yet {
            tokio::time::sleep(PAUSE).await;
            continue;
        }
        let Words { ticks, bounds, .. } = words;
        let session = match bounds {
            Some((least, most)) => config.session.max(least).min(most),
            None => measure(config, &at.to_string()).await?,
        };
        return Ok(Told { ticks, session });
    }
}

/// Opens a session and sees what time-out it has.
async fn measure(config: &ZooKeeperConfig, server: &str) -> Result<Duration> {
    let open = || link::open(config, server, config.session, Purpose::Measure);
    let opened = match open().await {
        // The first that a server hears of TLS may take it longer than the client library waits.
        Err(e) if e.kind() == ErrorKind::Unavailable && config.tls.is_some() => open().await,
        opened => opened,
    };
    Ok(opened?.session_timeout())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(tick: Option<u64>, sync_limit: Option<u32>, standalone: bool, session: u64) -> Told {
        let tick = tick.map(Duration::from_millis);
        Told { ticks: Ticks { tick, sync_limit, standalone }, session: Duration::from_secs(session) }
    }

    fn members(told: &[Told]) -> Members {
        Members(told.iter().zip(0..).map(|(told, port)| (("h".to_owned(), port), *told)).collect())
    }

    #[test]
    fn the_slowest_server_and_the_shortest_session_count() {
        let config = ZooKeeperConfig::new([]);
        let all = members(&[member(Some(200), Some(10), false, 30), member(Some(300), Some(4), false, 20)]);
        assert_eq!(all.lag(&config), Some(Duration::from_millis(2_200)));
        assert_eq!(all.session(), Duration::from_secs(20));
        assert_eq!(all.cluster(), "h:0,h:1");
    }

    #[test]
    fn what_one_does_not_tell_is_not_known_unless_it_is_configured() {
        let silent = member(None, None, false, 30);
        let all = members(&[member(Some(200), Some(10), false, 30), silent]);
        assert_eq!(all.lag(&ZooKeeperConfig::new([])), None);
        let small = ZooKeeperConfig::new([]).with_ticks(Duration::from_millis(100), 4);
        assert_eq!(all.lag(&small), Some(Duration::from_millis(2_200)), "the larger counts");
        let large = ZooKeeperConfig::new([]).with_ticks(Duration::from_secs(2), 5);
        assert_eq!(all.lag(&large), Some(Duration::from_secs(12)));
        assert_eq!(members(&[silent]).lag(&large), Some(Duration::from_secs(12)));
        assert_eq!(members(&[]).lag(&large), None);
    }

    #[test]
    fn alone_is_who_says_so() {
        let config = ZooKeeperConfig::new([]);
        let alone = member(None, None, true, 30);
        assert_eq!(members(&[alone]).lag(&config), Some(Duration::ZERO));
        assert_eq!(members(&[alone, member(None, None, false, 30)]).lag(&config), None);
        assert!(!members(&[]).is_standalone());
        assert_eq!(alone.and(member(Some(1), None, false, 4)), member(None, None, false, 4));
    }
}
