//! Lock URLs: `scheme://user:password@host1,host2:port/path?setting=value`.
//!
//! Written here and not taken from the `url` crate, which refuses several hosts
//! with ports in one authority.

use crate::{Error, ErrorKind, Result, Secret, Settings};
use std::fmt;

/// A lock URL taken apart. Neither prints its password nor keeps it in its error.
///
/// In a user or a password `/`, `?`, `@` and `#` are written `%2F`, `%3F`, `%40` and `%23`.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EngineUrl {
    /// The part before the first colon, in lower case: it picks the engine.
    pub scheme: String,
    /// The user, decoded.
    pub user: Option<String>,
    /// The password, decoded.
    pub password: Option<Secret>,
    /// The hosts between `//` and the path, as written; empty for `sqlite:PATH`.
    pub hosts: Vec<Host>,
    /// What follows the hosts up to `?`, decoded, with its leading slash where there are hosts.
    pub path: String,
    /// The parameters after `?`, decoded.
    pub settings: Settings,
}

/// One `host:port` of a lock URL.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Host {
    /// Name or address; an IPv6 address without its brackets.
    pub name: String,
    /// The port, if one was written.
    pub port: Option<u16>,
}

impl EngineUrl {
    /// Takes `url` apart.
    ///
    /// # Errors
    /// `InvalidConfig` says what is wrong with it, without repeating a password.
    pub fn parse(url: &str) -> Result<Self> {
        let Some((scheme, rest)) = url.split_once(':') else {
            return Err(invalid("a lock URL begins with its engine, as in `sqlite:locks.db`"));
        };
        let scheme = scheme.to_ascii_lowercase();
        if scheme.is_empty() || !scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+') {
            return Err(invalid("a lock URL begins with its engine, as in `sqlite:locks.db`"));
        }
        check_authority(rest)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut settings = Settings::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            settings.set(decode(key)?, decode(value)?, "URL parameter");
        }
        let Some(rest) = rest.strip_prefix("//") else {
            let path = decode(rest)?;
            return Ok(Self { scheme, user: None, password: None, hosts: Vec::new(), path, settings });
        };
        let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let (user, password, hosts) = match authority.rsplit_once('@') {
            Some((who, hosts)) => {
                let (user, password) = match who.split_once(':') {
                    Some((user, password)) => (user, Some(Secret::new(decode(password)?))),
                    None => (who, None),
                };
                ((!user.is_empty()).then(|| decode(user)).transpose()?, password, hosts)
            }
            None => (None, None, authority),
        };
        let hosts = hosts.split(',').filter(|host| !host.is_empty()).map(Host::parse).collect::<Result<_>>()?;
        Ok(Self { scheme, user, password, hosts, path: decode(path)?, settings })
    }
}

/// Refuses hosts that end before an `@`: a `/` or `?` in a password, written as
/// itself, ends them early, and the password would be taken for a port or a path.
fn check_authority(rest: &str) -> Result<()> {
    let Some(rest) = rest.strip_prefix("//") else { return Ok(()) };
    let (authority, after) = rest.find(['/', '?']).map_or((rest, ""), |at| rest.split_at(at));
    if authority.is_empty() || authority.contains('@') || !after.contains('@') {
        return Ok(());
    }
    Err(invalid(
        "an `@` follows the hosts of a lock URL, which end at the first `/` or `?`: in a user or password \
         write `%2F` for `/`, `%3F` for `?`, `%40` for `@`, `%23` for `#`; in a path or parameter write `%40` for `@`",
    ))
}

// Its errors repeat nothing: what looks like a host may be part of a password.
impl Host {
    fn parse(text: &str) -> Result<Self> {
        let (name, port) = if let Some(rest) = text.strip_prefix('[') {
            let Some((name, after)) = rest.split_once(']') else {
                return Err(invalid("an IPv6 address in a lock URL ends with `]`"));
            };
            (name, after.strip_prefix(':'))
        } else {
            text.rsplit_once(':').map_or((text, None), |(name, port)| (name, Some(port)))
        };
        let port = match port {
            Some(port) => match port.parse() {
                Ok(port) => Some(port),
                Err(_) => return Err(invalid("a port in a lock URL is a number from 0 to 65535")),
            },
            None => None,
        };
        Ok(Self { name: decode(name)?, port })
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.contains(':') {
            write!(f, "[{}]", self.name)?;
        } else {
            f.write_str(&self.name)?;
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl fmt::Debug for EngineUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineUrl")
            .field("scheme", &self.scheme)
            .field("user", &self.user)
            .field("password", &self.password)
            .field("hosts", &self.hosts)
            .field("path", &self.path)
            .field("settings", &self.settings)
            .finish()
    }
}

fn decode(text: &str) -> Result<String> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let digits = [bytes.next(), bytes.next()].map(|digit| digit.and_then(|d| char::from(d).to_digit(16)));
        match digits {
            [Some(high), Some(low)] => decoded.push(u8::try_from(high * 16 + low).unwrap_or(0)),
            _ => {
                return Err(invalid(
                    "a `%` in a lock URL is followed by two hexadecimal digits; write `%25` for itself",
                ));
            }
        }
    }
    String::from_utf8(decoded).map_err(|_| invalid("a lock URL is UTF-8 when its `%` codes are decoded"))
}

fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidConfig, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_hosts_with_ports() {
        let url = EngineUrl::parse("etcd://us%40er:p%3Aw@a:1,[::1]:2,c/app?ttl=30s&x=").unwrap();
        assert_eq!((url.scheme.as_str(), url.user.as_deref(), url.path.as_str()), ("etcd", Some("us@er"), "/app"));
        assert_eq!(url.password.as_ref().unwrap().reveal(), "p:w");
        assert_eq!(url.hosts.iter().map(ToString::to_string).collect::<Vec<_>>(), ["a:1", "[::1]:2", "c"]);
        assert!(!format!("{url:?}").contains("p:w"));
    }

    #[test]
    fn paths_without_hosts() {
        for (text, path) in
            [("sqlite:locks.db", "locks.db"), ("sqlite:/a b", "/a b"), ("SQLite:a%20b", "a b"), ("memory:", "")]
        {
            let url = EngineUrl::parse(text).unwrap();
            assert_eq!((url.path.as_str(), url.hosts.len()), (path, 0), "{text}");
        }
        assert_eq!(EngineUrl::parse("sqlite:///abs/file").unwrap().path, "/abs/file");
    }

    #[test]
    fn what_is_no_url_is_refused() {
        for bad in
            ["", "locks.db", ":x", "a b:x", "redis://h:99999", "redis://[::1", "sqlite:%", "sqlite:%zz", "sqlite:%ff"]
        {
            assert_eq!(EngineUrl::parse(bad).unwrap_err().kind(), ErrorKind::InvalidConfig, "{bad}");
        }
    }

    #[test]
    fn a_password_that_is_not_encoded_is_refused_and_not_repeated() {
        for bad in [
            "redis://user:hunter2/x@host",
            "redis://user:hunter2?x@host",
            "redis://hunter2/@host",
            "redis://host/?user=me@host",
            "redis://user:x@host:hunter2",
            "redis://user:x@[hunter2",
            "redis://user:hunter2",
        ] {
            let e = EngineUrl::parse(bad).unwrap_err();
            assert!(!format!("{e} {e:?}").contains("hunter2"), "{e}");
        }
        let e = EngineUrl::parse("redis://user:a/b@host").unwrap_err();
        assert!(["%2F", "%3F", "%40", "%23"].iter().all(|code| e.message().contains(code)), "{e}");
        for fine in ["sqlite:a@b", "sqlite:///a/b@c", "redis://u:p%2Fw@host/a@b?c@d=e", "redis://host/a%40b"] {
            assert!(EngineUrl::parse(fine).is_ok(), "{fine}");
        }
    }
}
