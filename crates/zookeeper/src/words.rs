//! The four-letter words: what a server says of itself on its client port, in plain text.

use crate::tempo::Ticks;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Nobody says more than this of himself.
const LONGEST: u64 = 64 * 1024;

/// What one server says of itself. Each part may be missing: most words have to be allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Words {
    pub(crate) ticks: Ticks,
    /// It answers, and serves nobody yet.
    pub(crate) not_yet: bool,
    /// The least and the most that it gives a session.
    pub(crate) bounds: Option<(Duration, Duration)>,
}

/// Asks one server.
///
/// # Errors
/// If there is no connection.
pub(crate) async fn ask(address: SocketAddr) -> std::io::Result<Words> {
    let (srvr, conf) = tokio::join!(word(address, "srvr"), word(address, "conf"));
    // A server that does not like the words may close the connection on them.
    Ok(read(&srvr?, &conf.unwrap_or_default()))
}

async fn word(address: SocketAddr, word: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let mut answer = Vec::new();
    if stream.write_all(word.as_bytes()).await.is_ok() {
        let _ = stream.take(LONGEST).read_to_end(&mut answer).await;
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn read(srvr: &str, conf: &str) -> Words {
    let millis = |key: &str| value(conf, key).and_then(|v| v.trim().parse().ok()).map(Duration::from_millis);
    Words {
        ticks: Ticks {
            tick: millis("tickTime="),
            sync_limit: value(conf, "syncLimit=").and_then(|ticks| ticks.trim().parse().ok()),
            standalone: value(srvr, "Mode:").is_some_and(|mode| mode.trim() == "standalone"),
        },
        not_yet: srvr.contains("not currently serving"),
        bounds: millis("minSessionTimeout=").zip(millis("maxSessionTimeout=")),
    }
}

fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_read_and_what_is_not_is_missing() {
        let conf = "clientPort=1\ntickTime=200\nminSessionTimeout=400\nmaxSessionTimeout=4000\nsyncLimit=10\n";
        let words = read("Zxid: 0x0\nMode: leader\n", conf);
        assert_eq!(words.ticks.lag(), Some(Duration::from_millis(2_200)));
        assert_eq!(words.bounds, Some((Duration::from_millis(400), Duration::from_secs(4))));
        assert!(!words.not_yet);
        let refused = read("Mode: follower\n", "conf is not executed because it is not in the whitelist.\n");
        assert_eq!(refused, Words::default());
        assert!(read("This ZooKeeper instance is not currently serving requests\n", "").not_yet);
        assert_eq!(read("Mode: standalone\n", "").ticks.lag(), Some(Duration::ZERO));
    }
}
