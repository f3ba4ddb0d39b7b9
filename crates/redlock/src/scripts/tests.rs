//! What is done for many requests with few commands keeps what each promises alone: on a real server, with any requests.

use super::{ACQUIRE, FREE, bundle};
use fencelock_lab::Redis;
use fencelock_redis::redis::{self, Value};
use fencelock_redis::{Leaving, Node, NodeFailure, NodeWords, Posts, RedisConfig, WordsOf};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::Instant;

const ROUNDS: usize = 300;
const NAMES: usize = 24;
const SHARDS: usize = 6;
const LIMIT: Duration = Duration::from_secs(10);

/// Whoever is told, by the place of the request.
struct Told(UnboundedSender<(usize, Value)>);

impl Posts for Told {
    fn leaves(&self, _: usize) -> Leaving {
        Leaving::Posted
    }

    fn told(&self, at: usize, outcome: Result<Value, NodeFailure>) {
        let _ = self.0.send((at, outcome.unwrap_or_else(|failure| Value::SimpleString(failure.error.to_string()))));
    }
}

/// A request, with what it has to do with.
#[derive(Clone)]
struct Asked {
    name: usize,
    id: String,
    /// Nothing for a release.
    guess: Option<u64>,
}

fn lock(name: usize) -> String {
    format!("t:{{{}}}:lock:{name}", name % SHARDS)
}

fn fence(name: usize) -> String {
    format!("t:{{{}}}:fence", name % SHARDS)
}

impl Asked {
    fn words(&self) -> (usize, NodeWords) {
        let Some(guess) = self.guess else {
            return (FREE, WordsOf::with_room(2, 80).key(&[&lock(self.name)]).arg(&[&self.id]).all());
        };
        let words = WordsOf::with_room(6, 200).key(&[&lock(self.name)]).key(&[&fence(self.name)]);
        let words =
            words.key(&["t:void:", &self.id]).written(format_args!("{} {guess} 0 1 x", self.id)).arg(&["60000"]);
        let number = if guess == 0 { String::new() } else { guess.to_string() };
        (ACQUIRE, words.arg(&[&number]).all())
    }
}

/// The value of each key, and whether it has an end.
async fn shown(node: &Node, keys: &[String]) -> Vec<Option<String>> {
    let answer = node.call(redis::cmd("MGET").arg(keys), LIMIT).await.unwrap();
    redis::from_redis_value(answer).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_keep_what_each_promises() {
    let server = Redis::start().unwrap();
    let config = RedisConfig::standalone("127.0.0.1", server.address().port());
    let node = Node::new(config, &bundle("t:waiting"), || {}).unwrap();
    let fences: Vec<_> = (0..SHARDS).map(fence).collect();
    let locks: Vec<_> = (0..NAMES).map(lock).collect();
    for fence in &fences {
        server.command(&["SET", fence, "9"]).unwrap();
    }
    let (mut tokens, mut holds, mut ids) = (HashSet::new(), HashMap::new(), 0_u128);
    let (mut granted, mut freed) = (0, 0);
    for round in 0..ROUNDS {
        let before: Vec<u64> =
            shown(&node, &fences).await.into_iter().map(|counter| counter.unwrap().parse().unwrap()).collect();
        // Mostly of locks that are free or held so; some twice, of an equal number, of one that is too small, of none, or of a dead id.
        let asked: Vec<_> = (0..fastrand::usize(2..60))
            .map(|_| {
                let name = fastrand::usize(..NAMES);
                match holds.get(&name) {
                    Some(id) if fastrand::u8(..4) > 0 => Asked { name, id: String::clone(id), guess: None },
                    _ => {
                        ids += 1;
                        let guess = [0, before[name % SHARDS] + fastrand::u64(..7)][usize::from(fastrand::u8(..8) > 0)];
                        Asked { name, id: format!("{ids:032x}"), guess: Some(guess) }
                    }
                }
            })
            .collect();
        let dead: HashSet<_> = asked
            .iter()
            .filter(|one| one.guess.is_some() && fastrand::u8(..10) == 0)
            .map(|one| one.id.clone())
            .collect();
        for id in &dead {
            server.command(&["SET", &format!("t:void:{id}"), "", "PX", "60000"]).unwrap();
        }
        let (told, mut answers) = unbounded_channel();
        let told: Arc<dyn Posts> = Arc::new(Told(told));
        for (at, one) in asked.iter().enumerate() {
            let (script, words) = one.words();
            node.post(script, &words, Instant::now() + LIMIT, Arc::clone(&told), at);
        }
        let mut answered = vec![Value::Nil; asked.len()];
        for _ in 0..asked.len() {
            let (at, answer) = answers.recv().await.unwrap();
            answered[at] = answer;
        }
        let after: Vec<u64> =
            shown(&node, &fences).await.into_iter().map(|counter| counter.unwrap().parse().unwrap()).collect();
        let now = shown(&node, &locks).await;
        let id_of = |name: usize| now[name].as_deref().map(|hold| hold.split(' ').nth(1).unwrap().to_owned());
        for (one, answer) in asked.iter().zip(&answered) {
            let (shard, holds_now) = (one.name % SHARDS, id_of(one.name).as_deref() == Some(&*one.id));
            let why = format!("round {round}: {:?} of {} for {} was answered {answer:?}", one.guess, one.id, one.name);
            match (one.guess, answer) {
                (Some(guess), Value::Int(1)) => {
                    granted += 1;
                    assert!(
                        guess > before[shard] && guess <= after[shard],
                        "{why}: {} to {}",
                        before[shard],
                        after[shard]
                    );
                    assert!(tokens.insert((shard, guess)), "{why}: that number was another's");
                    assert!(!dead.contains(&one.id), "{why}: dead");
                    let noted = now[one.name].as_deref().and_then(|hold| hold.split(' ').nth(2)).unwrap_or_default();
                    assert!(holds_now && noted == guess.to_string(), "{why}, and not noted");
                }
                // Granted without its number.
                (Some(_), Value::Array(parts)) if parts.first() == Some(&Value::Int(1)) => assert!(holds_now, "{why}"),
                (Some(_), Value::Array(_)) => assert!(!holds_now, "{why}, and holds"),
                (None, Value::Int(told)) => {
                    freed += told;
                    assert!(!holds_now, "{why}, and holds");
                }
                _ => panic!("{why}"),
            }
        }
        assert!(before.iter().zip(&after).all(|(before, after)| before <= after), "a counter was lowered");
        holds = (0..NAMES).filter_map(|name| Some((name, id_of(name)?))).collect();
        for name in holds.keys() {
            let left = server.command(&["PTTL", &locks[*name]]).unwrap();
            assert!(left.starts_with(':') && !left.starts_with(":-"), "no end: {left}");
        }
    }
    assert!(granted > 500 && freed > 500, "{granted} granted and {freed} freed");
}
