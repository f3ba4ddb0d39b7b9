//! Where the server's time goes when 32 acquires and 32 releases come together, beside locks without a token.
//!
//! `cargo bench -p fencelock-redis --bench server`; it takes ten seconds and starts its own server.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, missing_docs, reason = "a benchmark")]

use fencelock_lab::Redis;
use redis::{Cmd, Connection, Pipeline, Script, cmd};

/// Requests in a call, as with 64 tasks half of which acquire while the others release.
const TOGETHER: usize = 32;
const CALLS: usize = 500;
const ROUNDS: usize = 7;

/// The commands of an acquire that is granted, for each of the names.
const ACQUIRE: &str = "
    redis.call('exists', KEYS[k], KEYS[k + 2])
    local token = math.max((tonumber(redis.call('get', KEYS[k + 1])) or 0) + 1, now[1] * 1000000 + now[2], tonumber(ARGV[a + 4]) + 1)
    token = string.format('%.0f', token)
    redis.call('set', KEYS[k + 1], token)
    redis.call('hset', KEYS[k], 'id', ARGV[a], 'token', token, 'holder', ARGV[a + 2], 'note', ARGV[a + 3], 'at', now[1], 'delay', ARGV[a + 5])
    redis.call('pexpire', KEYS[k], ARGV[a + 1])";
/// And of a release for which nobody waits.
const FREE: &str = "
    if redis.call('hmget', KEYS[k], 'id', 'token')[1] == ARGV[a] then redis.call('del', KEYS[k]) end
    redis.call('exists', KEYS[k + 2])
    redis.call('publish', ARGV[a + 2], '')";
const OWNED: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

struct Words {
    keys: Vec<String>,
    args: Vec<String>,
}

impl Words {
    fn of(at: usize) -> [Self; 2] {
        let (tag, id) = (format!("fencelock:{{{at}}}:"), format!("{:032x}", at + 1));
        let key = |what: &str| format!("{tag}{what}:bench/{at}");
        let args = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        [
            Self {
                keys: vec![key("lock"), format!("{tag}fence"), format!("{tag}void:{id}")],
                args: args(&[&id, "30000", "some-host/bench:1234", "", "0", "0", "0"]),
            },
            Self {
                keys: vec![key("lock"), format!("{tag}fence"), key("wait")],
                args: args(&[&id, "1764500000000000", &key("free"), "0"]),
            },
        ]
    }
}

/// One call for all of the names, acquires or releases, whose script does `body` for each.
fn together(which: usize, body: &str) -> Cmd {
    let all: Vec<_> = (0..TOGETHER).map(|at| Words::of(at).into_iter().nth(which).unwrap()).collect();
    let (keys, args) = (all[0].keys.len(), all[0].args.len());
    let script = format!(
        "local now = redis.call('time')\nlocal k, a = 1, 1\nfor i = 1, {TOGETHER} do\n{body}\nk, a = k + {keys}, a + {args}\nend\nreturn 1"
    );
    let mut call = cmd("EVAL");
    call.arg(script).arg(keys * TOGETHER);
    all.iter().for_each(|words| {
        call.arg(&words.keys);
    });
    all.iter().for_each(|words| {
        call.arg(&words.args);
    });
    call
}

/// The least that a pair took of the server in any round, in microseconds.
fn server(redis: &Redis, connection: &mut Connection, pairs: &Pipeline) -> f64 {
    let used = || {
        let info = redis.command(&["INFO", "cpu"]).unwrap();
        let of =
            |what: &str| info.lines().find_map(|line| line.strip_prefix(what)?.trim().parse::<f64>().ok()).unwrap();
        of("used_cpu_user_main_thread:") + of("used_cpu_sys_main_thread:")
    };
    let round = |_| {
        let before = used();
        for _ in 0..CALLS {
            let _: Vec<redis::Value> = pairs.query(connection).unwrap();
        }
        (used() - before) * 1e6 / f64::from(u32::try_from(CALLS * TOGETHER).unwrap())
    };
    (0..ROUNDS).map(round).min_by(f64::total_cmp).unwrap()
}

fn main() {
    let redis = Redis::start().unwrap();
    let client = redis::Client::open(format!("redis://{}", redis.address())).unwrap();
    let mut connection = client.get_connection().unwrap();
    let calls = |acquire: &str, free: &str| {
        let mut calls = Pipeline::new();
        calls.add_command(together(0, acquire)).add_command(together(1, free));
        calls
    };
    let owned = Script::new(OWNED);
    owned.prepare_invoke().load(&mut connection).unwrap();
    let (mut plain, mut checked) = (Pipeline::new(), Pipeline::new());
    for at in 0..TOGETHER {
        let (key, id) = (format!("bench/{at}"), format!("{at:032x}"));
        let set = || {
            let mut set = cmd("SET");
            set.arg(&key).arg(&id).arg("NX").arg("PX").arg(30_000);
            set
        };
        let (mut del, mut check) = (cmd("DEL"), cmd("EVALSHA"));
        del.arg(&key);
        check.arg(owned.get_hash()).arg(1).arg(&key).arg(&id);
        plain.add_command(set()).add_command(del);
        checked.add_command(set()).add_command(check);
    }
    println!("microseconds of the server for a pair of acquire and release");
    for (what, pairs) in [
        ("the words of ours, and a script that does nothing", calls("", "")),
        ("the acquire's commands as well", calls(ACQUIRE, "redis.call('del', KEYS[k])")),
        ("and the release's: all", calls(ACQUIRE, FREE)),
        ("SET NX, DEL", plain),
        ("SET NX, a script that looks whose it is", checked),
    ] {
        println!("{:5.2}  {what}", server(&redis, &mut connection, &pairs));
    }
}
