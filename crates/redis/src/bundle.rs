//! Several scripts in one, so that many requests make one call.

use crate::failure::{Failure, Next};
use crate::link::failed;
use crate::post::{Leaving, NodeWords, Post};
use crate::router::Router;
use crate::script::{Call, LuaScript};
use crate::words::Words;
use fencelock_core::group::{Asking, Group, Together, Turn, Unanswered};
use fencelock_core::{Claim, Request};
use redis::{Cmd, Value};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use tokio::time::Instant;

/// The most requests in one call: as long as it runs, the server serves nobody else.
const MOST: usize = 128;

/// Calls that are under way before requests wait for each other: while one is
/// worked off, the next is made ready.
const TRIPS: usize = 2;

/// Unless so many requests are under way: a call costs both sides more than what is in it saves by leaving earlier.
const FEW: usize = 8;

/// The scripts by themselves, and all in one.
pub(crate) struct Bundle {
    scripts: Vec<LuaScript>,
    together: LuaScript,
    /// So many keys come first that all requests of a call have in common.
    shared: usize,
    /// The same for a node of a Cluster, where a message goes to the other nodes as well: nothing is told by what is done
    /// for many at once, which looks whether anybody listens here.
    one_by_one: LuaScript,
}

/// A script that may be one of many in a call. It answers with something, be it an error.
pub(crate) struct Verb {
    script: LuaScript,
    keys: usize,
    args: usize,
    many: Option<String>,
}

impl Verb {
    /// With as many keys of its own and arguments, which it names one by one, as `KEYS[1]`: those that are shared come first.
    pub(crate) fn new(script: LuaScript, keys: usize, args: usize) -> Self {
        Self { script, keys, args, many: None }
    }

    /// Beside it what does the same for several requests with few commands. It finds `n` requests after the k-th
    /// of the keys `K` and the a-th of the arguments `A`, and sets `answers[number + i]` for each that it has done, wholly
    /// and for good; the others are served by themselves afterwards.
    pub(crate) fn many(self, source: impl Into<String>) -> Self {
        Self { many: Some(source.into()), ..self }
    }
}

impl Bundle {
    /// The first so many keys of each request are the same for all that share a call, and are sent once.
    pub(crate) fn new(shared: usize, verbs: impl IntoIterator<Item = Verb>) -> Self {
        let (mut together, mut one_by_one, mut scripts) = (String::new(), String::new(), Vec::new());
        for Verb { script, keys, args, many } in verbs {
            let body = PLACES.iter().fold(script.source().to_owned(), |body, (from, to)| body.replace(from, to));
            let body = (1..=shared + keys).fold(body, |body, key| {
                let place = if key > shared { format!("K[k + {}]", key - shared) } else { format!("K[{key}]") };
                body.replace(&format!("KEYS[{key}]"), &place)
            });
            let verb = format!("{{{keys}, {args}, function(k, a)\n{body}\nend");
            let _ = writeln!(one_by_one, "{verb}}},");
            let _ = match many {
                Some(many) => writeln!(together, "{verb}, function(k, a, n, answers, number)\n{many}\nend}},"),
                None => writeln!(together, "{verb}}},"),
            };
            scripts.push(script);
        }
        let whole = |verbs: &str| {
            let source = include_str!("scripts/bundle.lua").replace("SHARED", &shared.to_string());
            LuaScript::splitting(source.replace("--VERBS--", verbs))
        };
        Self { scripts, together: whole(&together), shared, one_by_one: whole(&one_by_one) }
    }
}

/// Where a script finds in a bundle what it finds elsewhere when it is by itself.
const PLACES: [(&str, &str); 4] =
    [("redis.call('time')", "time()"), ("redis.call(", "call("), ("redis.pcall(", "try("), ("ARGV[", "A[a + ")];

/// Whereto a call goes on when it was sent away from where it was sent first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Wherever the keys are by now.
    Following,
    /// Nowhere: no request is sent twice, but for a script that the server does not know.
    Once,
}

/// Requests of one client to whoever has a slot, grouped.
pub(crate) struct Bundled(Group<Sender>);

struct Sender {
    router: Arc<Router>,
    bundle: Arc<Bundle>,
    manner: Manner,
}

/// A request that waits for others.
struct Asked {
    verb: usize,
    slot: u16,
    words: Arc<Words>,
    deadline: Instant,
    /// The claim which has to know of the request, if it could take a lock.
    claim: Option<Claim>,
    under_way: Option<Request>,
    /// Who is told, of what nobody waits for.
    post: Option<Post>,
    /// How often requests for its lock before it went the other way.
    pass: usize,
}

/// One request: a verb of the bundle, with as many keys and arguments as that has.
pub(crate) struct Wanted<'a> {
    pub(crate) verb: usize,
    pub(crate) slot: u16,
    /// Requests of one group may share a call: what they have in common is the same.
    pub(crate) group: u16,
    pub(crate) words: Arc<Words>,
    pub(crate) deadline: Instant,
    /// The claim which has to know of the request, if it could take a lock.
    pub(crate) claim: Option<&'a Claim>,
    /// The claim whose call waits for it, in its own future.
    pub(crate) of: Option<&'a Claim>,
}

impl Bundled {
    /// In the runtime of this thread.
    pub(crate) fn new(router: &Arc<Router>, bundle: &Arc<Bundle>, manner: Manner) -> Self {
        Self(Group::new(Sender { router: Arc::clone(router), bundle: Arc::clone(bundle), manner }))
    }

    /// Runs it: at once if nothing is under way, else with all that wait as well.
    ///
    /// # Cancel safety
    /// A request that has not left when the future is dropped never does.
    pub(crate) async fn run(&self, wanted: &Wanted<'_>) -> Result<Value, Failure> {
        let sends = self.0.sends();
        let asked = || Asked {
            verb: wanted.verb,
            slot: wanted.slot,
            words: Arc::clone(&wanted.words),
            deadline: wanted.deadline,
            claim: wanted.claim.cloned(),
            under_way: None,
            post: None,
            pass: 0,
        };
        match self.0.join(wanted.group, asked) {
            // Boxed, so that who travels with others has no room for it.
            Turn::Alone(trip) => Box::pin(sends.alone(wanted, trip)).await,
            Turn::Together(ticket) => match ticket.answer(wanted.deadline, wanted.of).await {
                // It was surely not done there: by itself it is sent on, or its keys one by one.
                Ok(Err(failure)) if sends.goes_on(&failure) => Box::pin(sends.alone(wanted, ())).await,
                Ok(outcome) => outcome,
                Err(Unanswered::NeverLeft) => Err(Failure::not_reached("too many requests were under way")),
                Err(_) => Err(Failure::no_answer()),
            },
        }
    }

    /// As [`run`](Self::run) for a server without slots; whoever posted it is told, and need not wait.
    pub(crate) fn post(&self, verb: usize, words: Arc<Words>, deadline: Instant, post: Post) {
        let post = Some(post);
        self.0.post(0, Asked { verb, slot: 0, words, deadline, claim: None, under_way: None, post, pass: 0 });
    }
}

impl Sender {
    /// Sends what has gathered, by itself if it is one.
    async fn gathered(&self, gathered: &[Asking<Self>]) -> Result<Vec<Value>, Failure> {
        let [Asking { asked, .. }] = gathered else { return self.together(gathered).await };
        let (Manner::Once, Some(script)) = (self.manner, self.bundle.scripts.get(asked.verb)) else {
            return self.together(gathered).await;
        };
        Ok(vec![self.router.run_once(asked.slot, script, &*asked.words, asked.deadline).await?])
    }

    /// Whether what was answered so may be answered better if it is sent again, by itself.
    fn goes_on(&self, failure: &Failure) -> bool {
        self.manner == Manner::Following && failure.settled && failure.next != Next::GiveUp
    }

    /// Sends a request by itself, and on to wherever it is to go; the trip ends with its first answer.
    async fn alone(&self, wanted: &Wanted<'_>, trip: impl Send) -> Result<Value, Failure> {
        let Wanted { verb, slot, words, deadline, claim, of, .. } = wanted;
        let Some(script) = self.bundle.scripts.get(*verb) else { return Err(Failure::odd_answer()) };
        let under_way = claim.map(Claim::request);
        let outcome = match self.manner {
            Manner::Following => {
                let answer = self.router.run_and_wait(*slot, script, &**words, 0, (*deadline, *of), trip).await;
                answer.map(|(answer, _)| answer)
            }
            Manner::Once => self.router.run_once(*slot, script, &**words, *deadline).await,
        };
        settle(under_way, &outcome);
        outcome
    }

    async fn together(&self, gathered: &[Asking<Self>]) -> Result<Vec<Value>, Failure> {
        let Some(Asking { asked: first, .. }) = gathered.first() else { return Ok(Vec::new()) };
        let (slot, call) = (first.slot, Gathered { all: gathered, shared: self.bundle.shared });
        let latest = gathered.iter().map(|asking| asking.asked.deadline).max().unwrap_or_else(Instant::now);
        let bundle = &self.bundle;
        let script = if self.router.is_cluster() { &bundle.one_by_one } else { &bundle.together };
        let answers = match self.manner {
            Manner::Following => self.router.call(slot, script, &call, latest).await?,
            Manner::Once => self.router.run_once(slot, script, &call, latest).await?,
        };
        match answers {
            Value::Array(answers) if answers.len() == gathered.len() => Ok(answers),
            _ => Err(Failure::odd_answer()),
        }
    }
}

/// Requests that make one call.
struct Gathered<'a> {
    all: &'a [Asking<Sender>],
    shared: usize,
}

impl Call for Gathered<'_> {
    fn key_count(&self) -> usize {
        let own = self.all.iter().map(|asking| asking.asked.words.key_count().saturating_sub(self.shared));
        own.sum::<usize>() + self.all.first().map_or(0, |first| first.asked.words.keys().take(self.shared).count())
    }

    fn room(&self) -> (usize, usize) {
        let each = self.all.iter().map(|asking| asking.asked.words.room());
        let (words, bytes) = each.fold((0, 0), |(words, bytes), (more, longer)| (words + more, bytes + longer));
        // Each verb and its number are a word.
        (words + 2 * self.all.len(), bytes + 8 * self.all.len())
    }

    fn write(&self, command: &mut Cmd) {
        let mut word = |word: &[u8]| {
            command.arg(word);
        };
        if let Some(first) = self.all.first() {
            first.asked.words.keys().take(self.shared).for_each(&mut word);
        }
        self.all.iter().for_each(|asking| asking.asked.words.keys().skip(self.shared).for_each(&mut word));
        // Of each verb which it is, and how many there are.
        for run in self.all.chunk_by(|one, next| one.asked.verb == next.asked.verb) {
            command.arg(run.first().map_or(0, |first| first.asked.verb + 1)).arg(run.len());
            for asking in run {
                asking.asked.words.args().for_each(|arg| {
                    command.arg(arg);
                });
            }
        }
    }
}

/// Lets the claim know what became of its request.
fn settle(under_way: Option<Request>, outcome: &Result<Value, Failure>) {
    if let Some(under_way) = under_way
        && outcome.as_ref().map_or_else(|failure| failure.settled, |_| true)
    {
        under_way.answered();
    }
}

impl Together for Sender {
    type Key = u16;
    type Asked = Asked;
    type Answer = Result<Value, Failure>;

    fn most(&self) -> usize {
        MOST
    }

    fn trips(&self) -> usize {
        TRIPS
    }

    fn few(&self) -> usize {
        FEW
    }

    fn leaves(&self, asked: &mut Asked, now: Instant) -> bool {
        asked.under_way = asked.claim.as_ref().map(Claim::request);
        // Who waits keeps its own time.
        let Some(post) = &mut asked.post else { return true };
        if now >= asked.deadline {
            return false;
        }
        match post.leaves() {
            Leaving::Posted => {}
            Leaving::Instead(verb, NodeWords(words)) => (asked.verb, asked.words) = (verb, words),
            Leaving::Not => return false,
        }
        true
    }

    async fn send(&self, _: u16, mut gathered: Vec<Asking<Self>>) {
        in_order(&mut gathered, self.manner);
        let outcomes: Vec<_> = match self.gathered(&gathered).await {
            Ok(answers) => answers.into_iter().map(failed).collect(),
            Err(failure) => {
                // Otherwise it was sent on already, as far as that goes.
                let failure = if failure.next == Next::TryAgain { failure } else { failure.at_last() };
                let copies: Vec<_> = (1..gathered.len()).map(|_| Err(failure.again())).collect();
                copies.into_iter().chain([Err(failure)]).collect()
            }
        };
        for (mut asking, outcome) in gathered.into_iter().zip(outcomes) {
            settle(asking.asked.under_way.take(), &outcome);
            match asking.asked.post.take() {
                Some(post) => post.tell(outcome),
                None => asking.tell(outcome),
            }
        }
    }
}

/// What takes memory first: once a script has written, Redis does not look any more whether there is some. But of
/// requests for one lock none of another verb overtakes another, as an acquire would the release that it follows.
fn in_order(gathered: &mut [Asking<Sender>], manner: Manner) {
    if gathered.is_sorted_by_key(|asking| asking.asked.verb) {
        return;
    }
    // Elsewhere a release is answered before the next acquire is asked.
    if manner == Manner::Once && may_pass(gathered.iter().map(|Asking { asked, .. }| (asked.words.tag, asked.verb))) {
        let passes = passes(gathered.iter().map(|Asking { asked, .. }| (asked.words.tag, asked.verb)));
        gathered.iter_mut().zip(passes).for_each(|(asking, pass)| asking.asked.pass = pass);
    }
    gathered.sort_by_key(|asking| (asking.asked.pass, asking.asked.verb));
}

/// Whether one of several requests may be about a lock that one of a later verb before it is about. Mostly none is, and that is
/// found out with less work than [`passes`] takes.
fn may_pass(requests: impl Iterator<Item = (u64, usize)>) -> bool {
    let (mut seen, mut last) = ([0_u64; 64], 0);
    for (tag, verb) in requests {
        let (word, bit) = (usize::from(tag.to_le_bytes()[0] & 63), 1 << (tag >> 58));
        let Some(word) = seen.get_mut(word) else { return true };
        if verb < last && *word & bit != 0 {
            return true;
        }
        *word |= bit;
        last = last.max(verb);
    }
    false
}

/// Of each of several requests, told by the tag of its lock and the verb, how often those for its lock went backwards until
/// then. Two locks of one tag count as the same, which costs no more than a pass.
fn passes(requests: impl Iterator<Item = (u64, usize)>) -> Vec<usize> {
    let mut last: HashMap<u64, (usize, usize)> = HashMap::with_capacity(requests.size_hint().0);
    requests
        .map(|(lock, verb)| {
            let before = last.entry(lock).or_insert((0, verb));
            *before = (before.0 + usize::from(before.1 > verb), verb);
            before.0
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::script::Scripts;

    /// What a script finds by another way than `KEYS[n]` would be another request's.
    #[test]
    fn a_bundle_leaves_no_script_its_own_places() {
        let bundle = Scripts::bundle(0);
        let code: String = bundle.together.source().lines().filter(|line| !line.trim().starts_with("--")).collect();
        assert_eq!((code.matches("KEYS").count(), code.matches("ARGV").count()), (1, 1), "{code}");
        assert!(["K[1]", "K[2]", "K[k + 1]", "K[k + 2]", "A[a + 7]"].iter().all(|place| code.contains(place)));
        assert!(!code.contains("K[k + 3]"), "no verb has three keys of its own");
    }

    #[test]
    fn no_request_overtakes_another_for_the_same_lock() {
        let (acquire, free) = (0, 3);
        let (a, b, c) = (1, 2, 3);
        let asked = [(a, free), (b, acquire), (a, acquire), (a, free), (b, free), (a, acquire), (c, acquire)];
        assert_eq!(super::passes(asked.into_iter()), [0, 0, 1, 1, 0, 2, 0]);
        assert!(super::may_pass(asked.into_iter()));
        assert!(!super::may_pass([(a, acquire), (a, free), (b, acquire), (c, free)].into_iter()));
    }
}
