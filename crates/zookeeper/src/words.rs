//! The four-letter words: what a server says of itself on its client port, in plain text.

use crate::config::ZooKeeperConfig;
use crate::tempo::Ticks;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// How long all servers together may take to answer.
const LIMIT: Duration = Duration::from_secs(1);
/// Nobody says more than this of himself.
const LONGEST: u64 = 64 * 1024;

/// Asks all servers at once. What none of them tells is taken from the configuration.
pub(crate) async fn ticks(config: &ZooKeeperConfig) -> Ticks {
    let mut told = Vec::new();
    // With TLS the words would have to be asked through it; servers there are configured by hand.
    if config.tls.is_none() {
        let mut asking = JoinSet::new();
        for address in config.addresses() {
            asking.spawn(async move {
                let answers = async { tokio::join!(ask(&address, "srvr"), ask(&address, "conf")) };
                let (srvr, conf) = tokio::time::timeout(LIMIT, answers).await.unwrap_or_default();
                read(&srvr.unwrap_or_default(), &conf.unwrap_or_default())
            });
        }
        told = asking.join_all().await.into_iter().flatten().collect();
    }
    together(&told, config)
}

async fn ask((host, port): &(String, u16), word: &str) -> Option<String> {
    let mut stream = TcpStream::connect((host.as_str(), *port)).await.ok()?;
    stream.write_all(word.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.take(LONGEST).read_to_string(&mut answer).await.ok()?;
    Some(answer)
}

/// What one server told; `None` if it did not answer.
fn read(srvr: &str, conf: &str) -> Option<Ticks> {
    let standalone = value(srvr, "Mode:")?.trim() == "standalone";
    let tick = value(conf, "tickTime=").and_then(|millis| millis.trim().parse().ok()).map(Duration::from_millis);
    let sync_limit = value(conf, "syncLimit=").and_then(|ticks| ticks.trim().parse().ok());
    Some(Ticks { tick, sync_limit, standalone })
}

fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(key))
}

/// The slowest server counts, and one that is not alone means that none is.
fn together(told: &[Ticks], config: &ZooKeeperConfig) -> Ticks {
    Ticks {
        tick: told.iter().filter_map(|t| t.tick).max().or(config.tick_time),
        sync_limit: told.iter().filter_map(|t| t.sync_limit).max().or(config.sync_limit),
        standalone: !told.is_empty() && told.iter().all(|t| t.standalone),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSED: &str = "conf is not executed because it is not in the whitelist.\n";

    #[test]
    fn what_is_told_counts_over_the_configuration() {
        let config = ZooKeeperConfig::new([]).with_ticks(Duration::from_secs(2), 5);
        let one = read("Zxid: 0x0\nMode: leader\n", "tickTime=200\nsyncLimit=10\n").unwrap();
        let other = read("Mode: follower\n", "tickTime=300\nsyncLimit=4\n").unwrap();
        let silent = read("Mode: follower\n", REFUSED).unwrap();
        let all = together(&[one, other, silent], &config);
        assert_eq!(all.lag(), Some(Duration::from_millis(3_300)));
        assert_eq!(together(&[silent], &config).lag(), Some(Duration::from_secs(12)));
        assert_eq!(together(&[], &config).lag(), Some(Duration::from_secs(12)));
        assert_eq!(together(&[silent], &ZooKeeperConfig::new([])).lag(), None);
    }

    #[test]
    fn alone_is_who_says_so() {
        let alone = read("Mode: standalone\n", REFUSED).unwrap();
        let config = ZooKeeperConfig::new([]);
        assert_eq!(together(&[alone], &config).lag(), Some(Duration::ZERO));
        let follower = read("Mode: follower\n", REFUSED).unwrap();
        assert_eq!(together(&[alone, follower], &config).lag(), None);
        assert!(read("This ZooKeeper instance is not currently serving requests\n", "").is_none());
    }
}
