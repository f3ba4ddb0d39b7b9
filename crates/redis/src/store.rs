//! What is asked of Redis, typed.

use crate::bundle::{Bundled, Manner, Wanted};
use crate::config::RedisConfig;
use crate::ears::Ears;
use crate::failure::{Failure, Next};
use crate::keys::{Keys, NameKeys};
use crate::link::Events;
use crate::mail::Mail;
use crate::router::Router;
use crate::script::{ACQUIRE, ACQUIRE_AGAIN, FREE, FREE_DEAD, Scripts, WAIT};
use crate::standing::{self, Standing};
use crate::words::Words;
use async_trait::async_trait;
use fencelock_core::group::{Renewed, Renewing, RenewsTogether};
use fencelock_core::{Claim, ClaimId, Error, FencingToken, HolderInfo, LockName, Moment, Renewal, Result};
use redis::Value;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// The shortest time for which an id stays dead.
const VOID: Duration = Duration::from_secs(60);

/// However short the ttls in a queue are, who waits there does not look more often by itself.
const LEAST_LOOK: Duration = Duration::from_secs(1);

pub(crate) struct Store {
    pub(crate) config: Arc<RedisConfig>,
    pub(crate) keys: Keys,
    pub(crate) scripts: Scripts,
    pub(crate) router: Arc<Router>,
    /// What is sent together if it is ready together.
    pub(crate) bundled: Bundled,
    pub(crate) ears: Arc<Ears>,
    pub(crate) mail: Arc<Mail>,
    pub(crate) standing: Standing,
}

/// What an acquire was answered.
pub(crate) enum Answer {
    /// With how many replicas acknowledged it, where they were asked.
    Granted(FencingToken, std::result::Result<u32, Failure>),
    Contended {
        left: Option<Duration>,
        holder: Option<Arc<str>>,
        /// It has a place in the lock's queue.
        is_queued: bool,
    },
    Dead,
}

impl Store {
    pub(crate) async fn connect(config: RedisConfig) -> Result<Arc<Self>> {
        config.check()?;
        let config = Arc::new(config);
        let keys = Keys::new(config.prefix.as_str(), config.is_cluster());
        let ears = Ears::new(keys.clone(), config.request_timeout);
        let itself: Arc<OnceLock<Weak<Self>>> = Arc::default();
        let store = Arc::clone(&itself);
        let up = move || {
            if let Some(store) = store.get().and_then(Weak::upgrade) {
                standing::probe_again(&store);
            }
        };
        let events = Events { ears: Arc::downgrade(&ears), up: Some(Arc::new(up)) };
        let router = Router::new(&config, events);
        ears.attach(&router);
        let mail = Mail::new(keys.clone())?;
        ears.deliver_to(&mail);
        let (scripts, standing) = (Scripts::new(config.token_base), Standing::default());
        let bundled = Bundled::new(&router, &Arc::new(Scripts::bundle(config.token_base)), Manner::Following);
        let store = Arc::new(Self { config, keys, scripts, router, bundled, ears, mail, standing });
        store.mail.attach(Arc::downgrade(&store));
        let told = |e: Error| e.with_engine("redis").with_operation("connect");
        store.probe_first().await.map_err(told)?;
        // From here on what is found anew after a reconnect counts.
        let _ = itself.set(Arc::downgrade(&store));
        if !store.standing.is_known() {
            standing::probe_again(&store);
        }
        Ok(store)
    }

    /// Sends one acquire, made at `sent`. The claim knows of it before it leaves. With a queue it takes a place
    /// there where it is contended, to be told of its turn on that channel.
    pub(crate) async fn acquire(
        &self,
        claim: &Claim,
        keys: &NameKeys,
        sent: Moment,
        queue: Option<&str>,
    ) -> std::result::Result<Answer, Failure> {
        let id = claim.id();
        let (holder, note) = (claim.holder(), claim.note().map_or("", |note| note));
        let mut words = Words::with_room(11, 512);
        keys.begin(&mut words);
        if queue.is_some() {
            keys.queue_key(&mut words);
        }
        words.arg(&[id.to_digits()]);
        words.written(format_args!("{}", millis(claim.server_ttl())));
        words.written(format_args!("{} {} {holder}{note}", millis(claim.lock_delay()), holder.len()));
        let (replicas, reserves) = (self.config.wait_replicas, claim.reserve() > 0);
        let mut script = (&self.scripts.acquire, Some(ACQUIRE));
        if claim.is_unanswered() || reserves || queue.is_some() || replicas > 0 {
            // What was sent before may still arrive, and must find nothing to take once this hold is over.
            words.written(format_args!("{}", if claim.is_unanswered() { void_ttl(claim) } else { 0 }));
            script.1 = Some(ACQUIRE_AGAIN);
        }
        if reserves || queue.is_some() {
            words.written(format_args!("{}", claim.reserve()));
            script = (&self.scripts.reserve, None);
        }
        if let Some(channel) = queue {
            words.arg(&[channel.as_bytes()]);
            words.written(format_args!("{}", sent.as_nanos()));
            script = (&self.scripts.wait, Some(WAIT));
        }
        let (slot, deadline) = (self.slot(keys), self.deadline());
        if let (Some(verb), 0) = (script.1, replicas) {
            let (words, group, of, claim) = (Arc::new(words), keys.group(), self.far(claim), Some(claim));
            let wanted = Wanted { verb, slot, group, words, deadline, claim, of };
            return answer(&self.bundled.run(&wanted).await?, Ok(0));
        }
        let under_way = claim.request();
        let outcome =
            Box::pin(self.router.run_and_wait(slot, script.0, &words, replicas, (deadline, self.far(claim)), ())).await;
        if outcome.as_ref().map_or_else(|failure| failure.settled, |_| true) {
            under_way.answered();
        }
        let (value, replicas) = outcome?;
        answer(&value, replicas)
    }

    /// Renews holds of one slot, or of any slots outside a Cluster, in one command; true for each that was still held.
    pub(crate) async fn renew(
        &self,
        holds: &[Renewing<'_>],
        deadline: Instant,
    ) -> std::result::Result<Vec<bool>, Failure> {
        let Some(first) = holds.first() else { return Ok(Vec::new()) };
        let slot = self.slot(&self.keys.of(first.claim.name()));
        let keys: Vec<_> = holds.iter().map(|hold| self.keys.of(hold.claim.name()).lock()).collect();
        let args: Vec<_> = holds
            .iter()
            .flat_map(|hold| [hold_of(hold.claim.id(), hold.token), millis(hold.server_ttl).to_string()])
            .collect();
        let answer = self.router.run(slot, &self.scripts.renew, &keys, &args, deadline).await?;
        let Value::Array(answers) = answer else { return Err(Failure::odd_answer()) };
        if answers.len() != holds.len() {
            return Err(Failure::odd_answer());
        }
        Ok(answers.iter().map(|answer| *answer == Value::Int(1)).collect())
    }

    /// Frees the lock if the claim holds it, with this token if one is given, and makes the id dead if `void`;
    /// true if it held.
    pub(crate) async fn free(
        &self,
        claim: &Claim,
        keys: &NameKeys,
        token: Option<FencingToken>,
        void: bool,
    ) -> Result<bool> {
        self.free_id(claim.id(), keys, token, void.then(|| void_ttl(claim)), None).await
    }

    /// The same for the lease of the claim, whose release waits for it.
    pub(crate) async fn release(&self, claim: &Claim, keys: &NameKeys, token: FencingToken) -> Result<bool> {
        let void = claim.is_unanswered().then(|| void_ttl(claim));
        self.free_id(claim.id(), keys, Some(token), void, self.far(claim)).await
    }

    /// Gives back what was handed to a claim for which nobody waits.
    pub(crate) async fn give_back(&self, id: ClaimId, keys: &NameKeys, token: FencingToken) -> Result<bool> {
        self.free_id(id, keys, Some(token), None, None).await
    }

    async fn free_id(
        &self,
        id: ClaimId,
        keys: &NameKeys,
        token: Option<FencingToken>,
        void: Option<u64>,
        of: Option<&Claim>,
    ) -> Result<bool> {
        let (slot, deadline) = (self.slot(keys), self.deadline());
        let mut words = Words::with_room(6, 384);
        keys.begin(&mut words);
        keys.queue_key(&mut words);
        match token {
            Some(token) => words.written(format_args!("{id} {token} ")),
            None => words.written(format_args!("{id} ")),
        }
        let verb = match void {
            Some(ttl) => {
                words.written(format_args!("{ttl}"));
                FREE_DEAD
            }
            None => FREE,
        };
        let wanted = Wanted { verb, slot, group: keys.group(), words: Arc::new(words), deadline, claim: None, of };
        let outcome = self.bundled.run(&wanted).await;
        let answer = match outcome {
            Err(failure) if failure.next == Next::TryAgain => {
                // Some keys are here and others there. Dead first: nothing may come in between.
                if let Some(ttl) = void {
                    let (dead, what) = ([keys.dead()], [id.to_string(), ttl.to_string()]);
                    Box::pin(self.router.run(slot, &self.scripts.void, &dead, &what, deadline)).await?;
                }
                let args: Vec<_> = wanted.words.args().collect();
                Box::pin(self.router.run(slot, &self.scripts.free_alone, &[keys.lock()], &args, deadline)).await?
            }
            outcome => outcome?,
        };
        Ok(answer == Value::Int(1))
    }

    pub(crate) async fn inspect(&self, name: &LockName) -> Result<Option<HolderInfo>> {
        let keys = self.keys.of(name);
        let args: [&str; 0] = [];
        let inspect = &self.scripts.inspect;
        let answer = self.router.run(self.slot(&keys), inspect, &[keys.lock()], &args, self.deadline()).await?;
        Ok(holder(&answer)?)
    }

    /// Where the keys lie; outside of a Cluster that is of no interest.
    pub(crate) fn slot(&self, keys: &NameKeys) -> u16 {
        if self.router.is_cluster() { keys.slot() } else { 0 }
    }

    fn far<'c>(&self, claim: &'c Claim) -> Option<&'c Claim> {
        claim.far(self.config.request_timeout)
    }

    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.config.request_timeout
    }
}

#[async_trait]
impl RenewsTogether for Store {
    fn kind(&self, claim: &Claim) -> u16 {
        if self.router.is_cluster() { self.slot(&self.keys.of(claim.name())) } else { 0 }
    }

    fn longest(&self) -> Duration {
        self.config.request_timeout
    }

    async fn renew(&self, holds: &[Renewing<'_>], limit: Duration) -> Renewed {
        let outcome = |held: bool| Some(if held { Renewal::Renewed } else { Renewal::Refused });
        match Store::renew(self, holds, Instant::now() + limit).await {
            Ok(held) => Renewed::Told(held.into_iter().map(outcome).collect(), None),
            // In the middle of a slot's move a single key is found, and several are not.
            Err(failure) if failure.next == Next::TryAgain && holds.len() > 1 => Renewed::Apart,
            Err(failure) => Renewed::Told(Vec::new(), Some(failure.error)),
        }
    }
}

/// Rounded up, so that the server never counts less than was asked for.
fn millis(ttl: Duration) -> u64 {
    ttl.as_secs().saturating_mul(1_000).saturating_add(u64::from(ttl.subsec_nanos().div_ceil(1_000_000)))
}

/// What a hold begins with.
fn hold_of(id: ClaimId, token: FencingToken) -> String {
    format!("{id} {token} ")
}

/// For how long a claim's id stays dead.
fn void_ttl(claim: &Claim) -> u64 {
    millis(claim.server_ttl().max(VOID))
}

fn answer(value: &Value, replicas: std::result::Result<u32, Failure>) -> std::result::Result<Answer, Failure> {
    let parts = match value {
        Value::Int(0) => return Ok(Answer::Dead),
        Value::Int(token) => {
            let token = u64::try_from(*token).map_err(|_| Failure::odd_answer())?;
            return Ok(Answer::Granted(FencingToken::new(token), replicas));
        }
        Value::Array(parts) => parts,
        _ => return Err(Failure::odd_answer()),
    };
    match parts.as_slice() {
        [Value::Int(left), holder, least @ ..] => {
            let least = match least.first() {
                Some(Value::Int(least @ 1..)) => duration(*least),
                _ => None,
            };
            // Whoever was handed the lock meanwhile may not have lived for as long as its holder of now.
            let shortest = least.map(|least| least.max(LEAST_LOOK));
            Ok(Answer::Contended {
                left: duration(*left).into_iter().chain(shortest).min(),
                holder: text(holder).filter(|holder| !holder.is_empty()),
                is_queued: least.is_some(),
            })
        }
        _ => Err(Failure::odd_answer()),
    }
}

fn holder(value: &Value) -> std::result::Result<Option<HolderInfo>, Failure> {
    let Value::Array(parts) = value else { return Err(Failure::odd_answer()) };
    let with_remaining = |info: HolderInfo, left: i64| match duration(left) {
        Some(left) => info.with_remaining(left),
        None => info,
    };
    match parts.as_slice() {
        [] => Ok(None),
        [Value::Int(left)] => {
            let info = HolderInfo::new("a key of another program", FencingToken::new(0));
            Ok(Some(with_remaining(info, *left)))
        }
        [Value::Int(left), id, token, holder, note, Value::Int(held_for)] => {
            let info = HolderInfo::new(text(holder).unwrap_or_default(), number(token)?)
                .with_note(text(note).filter(|note| !note.is_empty()))
                .with_held_for(Duration::from_millis(u64::try_from(*held_for).unwrap_or(0)));
            let id = text(id).and_then(|id| u128::from_str_radix(&id, 16).ok()).map(u128::to_be_bytes);
            let info = match id {
                Some(id) => info.with_claim(ClaimId::from_bytes(id)),
                None => info,
            };
            Ok(Some(with_remaining(info, *left)))
        }
        _ => Err(Failure::odd_answer()),
    }
}

/// Milliseconds left; a key without an end has none.
fn duration(left: i64) -> Option<Duration> {
    u64::try_from(left).ok().map(Duration::from_millis)
}

fn text(value: &Value) -> Option<Arc<str>> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into()),
        _ => None,
    }
}

fn number(value: &Value) -> std::result::Result<FencingToken, Failure> {
    let Value::BulkString(bytes) = value else { return Err(Failure::odd_answer()) };
    let token = std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()).ok_or_else(Failure::odd_answer)?;
    Ok(FencingToken::new(token))
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("config", &self.config)
            .field("router", &self.router)
            .field("ears", &self.ears)
            .finish_non_exhaustive()
    }
}
