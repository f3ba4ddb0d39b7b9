//! One server among several: what an engine that asks many Redis servers is built on.

use crate::bundle::{Bundle, Bundled, Manner, Verb, Wanted};
use crate::config::RedisConfig;
use crate::ears::Ears;
use crate::failure::Failure;
use crate::keys::Keys;
use crate::link::Events;
use crate::post::{NodeWords, Post, Posts};
use crate::router::Router;
use crate::script::LuaScript;
use crate::words::Words;
use fencelock_core::{Error, Hint, Result};
use redis::{Cmd, Value};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A Lua script that a [`Node`] runs: named by its digest once the server knows it.
pub struct NodeScript(LuaScript);

impl NodeScript {
    /// The script with this source.
    #[must_use]
    pub fn new(source: impl Into<String>) -> Self {
        Self(LuaScript::new(source))
    }
}

impl fmt::Debug for NodeScript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeScript").finish_non_exhaustive()
    }
}

/// A script of a [`NodeBundle`]. It answers with something, be it an error.
pub struct NodeVerb(Verb);

impl NodeVerb {
    /// The script with this source, and how many keys and arguments it has. It names them one by one, as `KEYS[1]`.
    #[must_use]
    pub fn new(source: impl Into<String>, keys: usize, args: usize) -> Self {
        Self(Verb::new(LuaScript::new(source), keys, args))
    }

    /// Beside it what does the same for several requests with few commands. It finds `n` requests after the k-th
    /// of the keys `K` and the a-th of the arguments `A`, has `redis.call` as `call`, `redis.pcall` as `try` and the server's
    /// `TIME` as `time()`, and sets `answers[number + i]` for each that it has done, wholly and for good. The
    /// others are served one by one after it.
    #[must_use]
    pub fn many(self, source: impl Into<String>) -> Self {
        Self(self.0.many(source))
    }
}

impl fmt::Debug for NodeVerb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeVerb").finish_non_exhaustive()
    }
}

/// Scripts that a [`Node`] runs many of in one call, if they are ready together.
#[derive(Clone)]
pub struct NodeBundle(Arc<Bundle>);

impl NodeBundle {
    /// Of these. One that fails does not keep the others from being run. Of what is sent together the
    /// first run first.
    #[must_use]
    pub fn new(verbs: impl IntoIterator<Item = NodeVerb>) -> Self {
        Self(Arc::new(Bundle::new(0, verbs.into_iter().map(|verb| verb.0))))
    }
}

impl fmt::Debug for NodeBundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeBundle").finish_non_exhaustive()
    }
}

/// A request to a [`Node`] that failed.
#[derive(Debug)]
#[non_exhaustive]
pub struct NodeFailure {
    /// What went wrong.
    pub error: Error,
    /// It was answered, or surely never left: it cannot be worked off any more.
    pub settled: bool,
    /// The node answered that it will not, as an ACL says or since it does not know the command.
    pub refused: bool,
}

impl NodeFailure {
    /// A failure of a request that surely never left, or was answered.
    #[must_use]
    pub fn settled(error: Error) -> Self {
        Self { error, settled: true, refused: false }
    }
}

impl From<Failure> for NodeFailure {
    fn from(failure: Failure) -> Self {
        Self { settled: failure.settled, refused: failure.is_refusal(), error: failure.error }
    }
}

impl From<NodeFailure> for Error {
    fn from(failure: NodeFailure) -> Self {
        failure.error
    }
}

/// One standalone server and the one connection to it, which comes back by itself
/// when it is needed.
///
/// It is a Redis as it is: neither its role nor the layout of its keys is looked
/// at. No request is sent twice, but for a script that the server said it does not know.
///
/// # Drop
/// The connection closes.
pub struct Node {
    config: Arc<RedisConfig>,
    router: Arc<Router>,
    bundled: Bundled,
    ears: Arc<Ears>,
}

impl Node {
    /// The server of a [standalone](RedisConfig::standalone) configuration, and what is
    /// [run together](Self::run_together) there. Does not connect yet; `up` is called whenever a connection was opened. Belongs to the runtime it is made in.
    ///
    /// # Errors
    /// `InvalidConfig` if a setting is wrong.
    pub fn new(config: RedisConfig, bundle: &NodeBundle, up: impl Fn() + Send + Sync + 'static) -> Result<Self> {
        config.check()?;
        let config = Arc::new(RedisConfig { as_it_is: true, ..config });
        let ears = Ears::new(Keys::new(config.prefix.as_str(), false), config.request_timeout);
        let events = Events { ears: Arc::downgrade(&ears), up: Some(Arc::new(up)) };
        let router = Router::new(&config, events);
        ears.attach(&router);
        let bundled = Bundled::new(&router, &bundle.0, Manner::Once);
        Ok(Self { config, router, bundled, ears })
    }

    /// Sends one command and waits for its answer, with the opening of a connection, for at most `limit`.
    ///
    /// # Errors
    /// What went wrong, and whether the command may still be worked off.
    ///
    /// # Cancel safety
    /// Dropping the future may leave the command under way.
    pub async fn call(&self, command: &Cmd, limit: Duration) -> std::result::Result<Value, NodeFailure> {
        let deadline = Instant::now() + limit;
        let link = self.router.route(0, deadline).await?;
        Ok(link.call(command, deadline).await?)
    }

    /// Runs a script and waits for its answer, with the opening of a connection, for at most `limit`.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    ///
    /// # Cancel safety
    /// Dropping the future may leave the script under way.
    pub async fn run<K: AsRef<[u8]>, A: AsRef<[u8]>>(
        &self,
        script: &NodeScript,
        keys: &[K],
        args: &[A],
        limit: Duration,
    ) -> std::result::Result<Value, NodeFailure> {
        Ok(self.router.run_once(0, &script.0, &(keys, args), Instant::now() + limit).await?)
    }

    /// Runs a script of the bundle, by its place there: at once if none is under way, else in one
    /// call with all that wait as well. Waits for its answer for at most `limit`.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    ///
    /// # Cancel safety
    /// Dropping the future may leave the script under way.
    pub async fn run_together<K: AsRef<[u8]> + Sync, A: AsRef<[u8]> + Sync>(
        &self,
        script: usize,
        keys: &[K],
        args: &[A],
        limit: Duration,
    ) -> std::result::Result<Value, NodeFailure> {
        let deadline = Instant::now() + limit;
        let words = Arc::new(Words::new(keys, args));
        Ok(self
            .bundled
            .run(&Wanted { verb: script, slot: 0, group: 0, words, deadline, claim: None, of: None })
            .await?)
    }

    /// Leaves a script of the bundle here, by its place there, to be run as [`run_together`](Self::run_together)
    /// does. `to` is told what came of it, as of the node at `place`, however silent the node is.
    ///
    /// A request that has not left by `deadline` never does: that is told when the call before it is over. One that has is told
    /// of when the call that it shares is over. Either is at the latest when the last of those who share that call has no more time.
    pub fn post(&self, script: usize, words: &NodeWords, deadline: Instant, to: Arc<dyn Posts>, place: usize) {
        self.bundled.post(script, Arc::clone(&words.0), deadline, Post::new(to, place));
    }

    /// Begins to listen on a channel: everything from the moment this returns is heard.
    ///
    /// # Errors
    /// `Unavailable` if the node could not be told within the request time-out.
    ///
    /// # Cancel safety
    /// Dropping the future, or what it returns, stops listening.
    pub async fn listen(&self, channel: &str) -> Result<Box<dyn Hint>> {
        self.ears.listen_on(channel.to_owned(), 0).await
    }

    /// The server's `host:port`.
    #[must_use]
    pub fn address(&self) -> String {
        match &self.config.deployment {
            crate::config::Deployment::Standalone((host, port)) if host.contains(':') => format!("[{host}]:{port}"),
            crate::config::Deployment::Standalone((host, port)) => format!("{host}:{port}"),
            _ => "not standalone".to_owned(),
        }
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.router.fmt(f)
    }
}
