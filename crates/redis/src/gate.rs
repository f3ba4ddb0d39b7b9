//! The gate before data in Redis.

use crate::config::RedisConfig;
use crate::failure::Failure;
use crate::keys::{Keys, NameKeys};
use crate::link::{Events, Link};
use crate::router::Router;
use crate::script::LuaScript;
use fencelock_core::{Admission, Error, ErrorKind, FencingToken, Gate, LockName, Result, Stale, check_runtime};
use redis::{FromRedisValue, Value};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Checks tokens in the same script that reads or changes the data.
///
/// ```no_run
/// # async fn f(token: fencelock_core::FencingToken) -> Result<(), Box<dyn std::error::Error>> {
/// use fencelock_core::Gate as _;
/// use fencelock_redis::{Effect, RedisConfig, RedisGate};
///
/// let gate = RedisGate::connect(RedisConfig::standalone("127.0.0.1", 6379)).await?;
/// let take = Effect::new("return redis.call('decrby', KEYS[1], ARGV[1])");
/// let pass = gate.enter((), "stock/shoes", token).await?.admitted()?;
/// let left: i64 = pass.run(&take, &[pass.key("left")], &["2"]).await?.admitted()?;
/// # Ok(()) }
/// ```
///
/// What the gate knows is as durable as the server that it is on: a Redis that
/// forgets on a restart forgets the largest token together with the data.
pub struct RedisGate {
    keys: Keys,
    router: Arc<Router>,
    enter: LuaScript,
    limit: Duration,
}

/// What is done to the data: the body of a Lua function of `KEYS` and `ARGV`.
///
/// Redis runs it in one step with the check of the token. Values go into `ARGV`,
/// never into the text. It must not be longer than Redis should stand still.
pub struct Effect(LuaScript);

impl Effect {
    /// The effect with this body, as in `return redis.call('get', KEYS[1])`.
    #[must_use]
    pub fn new(body: &str) -> Self {
        Self(LuaScript::new(include_str!("scripts/effect.lua").replace("--EFFECT--", body)))
    }
}

impl RedisGate {
    /// A gate with a connection of its own to the Redis of `config`, where the data is.
    ///
    /// # Errors
    /// As for [`RedisLock::connect`](crate::RedisLock::connect).
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn connect(config: RedisConfig) -> Result<Self> {
        here()?;
        config.check()?;
        let config = Arc::new(config);
        let router = Router::new(&config, Events::default());
        let limit = config.request_timeout;
        let deadline = Instant::now() + config.connect_timeout + limit;
        let mut asked = JoinSet::new();
        for master in router.masters(deadline).await? {
            asked.spawn(async move { master.call(&redis::cmd("PING"), deadline).await });
        }
        let (mut there, mut missing) = (false, None);
        while let Some(answer) = asked.join_next().await {
            match answer.unwrap_or_else(|_| Err(Failure::not_reached("the opening was given up"))) {
                Ok(_) => there = true,
                // One node of a Cluster that is away keeps nobody from the others.
                Err(failure) if failure.error.kind() == ErrorKind::Unavailable => missing = Some(failure),
                Err(failure) => return Err(failure.into()),
            }
        }
        if let Some(failure) = missing.filter(|_| !there) {
            return Err(failure.into());
        }
        let enter = LuaScript::new(include_str!("scripts/enter.lua"));
        Ok(Self { keys: Keys::new(config.prefix.as_str(), config.is_cluster()), router, enter, limit })
    }
}

impl RedisGate {
    fn deadline(&self) -> Instant {
        Instant::now() + self.limit
    }
}

impl Gate for RedisGate {
    type Scope<'s> = ();
    type Pass<'s> = RedisPass<'s>;

    async fn enter<'s>(
        &'s self,
        _scope: (),
        resource: &'s str,
        token: FencingToken,
    ) -> Result<Admission<RedisPass<'s>>> {
        here()?;
        let keys = self.keys.of(&LockName::new(resource)?);
        let answer =
            self.router.run(keys.slot(), &self.enter, &[keys.gate()], &[token.to_string()], self.deadline()).await;
        Ok(match admission(answer.map_err(told)?)? {
            Admission::Admitted(_) => Admission::Admitted(RedisPass { gate: self, keys, token }),
            Admission::Stale(stale) => Admission::Stale(stale),
        })
    }
}

/// The way to one resource's data, for as long as no larger token has entered.
pub struct RedisPass<'g> {
    gate: &'g RedisGate,
    keys: NameKeys,
    token: FencingToken,
}

impl RedisPass<'_> {
    /// A key of the caller's own that lies in the resource's slot: `{<shard>}:<resource>:<part>`.
    ///
    /// In the resource `%` and `:` are written `%25` and `%3A`, so that no two
    /// resources have a key in common. Outside a Cluster any other key will do as well.
    #[must_use]
    pub fn key(&self, part: &str) -> String {
        let resource = self.keys.name().as_str().replace('%', "%25").replace(':', "%3A");
        format!("{}:{resource}:{part}", self.keys.tag())
    }

    /// Runs the effect, in one step with the check that no larger token has entered.
    ///
    /// Sent again only where the server said that it was not begun.
    ///
    /// # Errors
    /// What the effect itself failed with, of kind `Engine`: what it did before that
    /// stays done. `Unavailable` if no answer came, and it may have been done;
    /// `Engine` too if the answer is no `T`.
    ///
    /// # Cancel safety
    /// Dropping the future may leave the effect done.
    pub async fn run<T: FromRedisValue>(
        &self,
        effect: &Effect,
        keys: &[String],
        args: &[&str],
    ) -> Result<Admission<T>> {
        here()?;
        let keys: Vec<_> = std::iter::once(self.keys.gate()).chain(keys.iter().cloned()).collect();
        let token = self.token.to_string();
        let args: Vec<_> = std::iter::once(token.as_str()).chain(args.iter().copied()).collect();
        let (router, slot) = (&self.gate.router, self.keys.slot());
        let answer = router.run(slot, &effect.0, &keys, &args, self.gate.deadline()).await;
        if let Ok(Value::Array(parts)) = &answer
            && let [Value::Int(2), Value::BulkString(message)] = parts.as_slice()
            && String::from_utf8_lossy(message).contains("READONLY")
        {
            // One that was a master may still know the token. Nothing was written there.
            router.known(slot).inspect(Link::leave);
            return Err(told(Failure::of_answer("READONLY", "")));
        }
        Ok(match admission(answer.map_err(told)?)? {
            Admission::Admitted(value) => {
                Admission::Admitted(redis::from_redis_value(value).map_err(|_| told(Failure::odd_answer()))?)
            }
            Admission::Stale(stale) => Admission::Stale(stale),
        })
    }
}

/// Connections are tended by tasks, and bounds are kept by timers.
fn here() -> Result<()> {
    check_runtime().map_err(|e| e.with_engine("redis"))
}

fn told(failure: Failure) -> Error {
    Error::from(failure).with_operation("enter")
}

fn admission(answer: Value) -> Result<Admission<Value>> {
    let Value::Array(parts) = answer else { return Err(told(Failure::odd_answer())) };
    let mut parts = parts.into_iter();
    match (parts.next(), parts.next()) {
        (Some(Value::Int(1)), value) => Ok(Admission::Admitted(value.unwrap_or(Value::Nil))),
        (Some(Value::Int(2)), Some(message)) => {
            let message: String = redis::from_redis_value(message).unwrap_or_default();
            Err(Error::new(ErrorKind::Engine, format!("the effect failed: {message}"))
                .with_engine("redis")
                .with_operation("enter"))
        }
        (Some(Value::Int(0)), Some(newest)) => {
            let newest: u64 = redis::from_redis_value(newest).map_err(|_| told(Failure::odd_answer()))?;
            Ok(Admission::Stale(Stale::new(FencingToken::new(newest))))
        }
        _ => Err(told(Failure::odd_answer())),
    }
}

impl fmt::Debug for RedisGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisGate").field("router", &self.router).finish_non_exhaustive()
    }
}

impl fmt::Debug for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Effect").finish_non_exhaustive()
    }
}

impl fmt::Debug for RedisPass<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisPass").field("resource", self.keys.name()).field("token", &self.token).finish()
    }
}
