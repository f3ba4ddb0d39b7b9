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

/// What is done for acquires that are granted, and for releases for which nobody waits.
const ACQUIRE: &str = include_str!("../src/scripts/acquire_many.lua");
const FREE: &str = include_str!("../src/scripts/free_many.lua");
/// Makes room for the next acquires.
const ROOM: &str = "local locks = {} for i = 1, n do locks[i] = K[3 * i - 2] end call('del', unpack(locks))";
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
            Self { keys: vec![key("lock")], args: args(&[&id, "30000", "0 20 some-host/bench:1234"]) },
            Self { keys: vec![key("lock"), key("wait")], args: args(&[&format!("{id} ")]) },
        ]
    }
}

/// One call for all of the names, acquires or releases, whose script does `body` for all of them.
fn together(which: usize, body: &str) -> Cmd {
    let all: Vec<_> = (0..TOGETHER).map(|at| Words::of(at).into_iter().nth(which).unwrap()).collect();
    // The token is not known here: any will do.
    let body = body.replace("#hold > 33", "true").replace("BASE", "0");
    let script = format!(
        "local K, A, call, try = KEYS, ARGV, redis.call, redis.pcall\nlocal function time() return call('time') end\n\
         local k, a, n, answers, number = 2, 0, {TOGETHER}, {{}}, 0\nlocal function many()\n{body}\nend\nmany()\nreturn answers"
    );
    let mut call = cmd("EVAL");
    call.arg(script).arg(2 + all.iter().map(|words| words.keys.len()).sum::<usize>());
    call.arg("fencelock:fence").arg("fencelock:dead");
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
    let _: redis::Value = cmd("SET").arg("fencelock:fence").arg(1).query(&mut connection).unwrap();
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
        ("the acquire's commands as well", calls(ACQUIRE, ROOM)),
        ("and the release's: all", calls(ACQUIRE, FREE)),
        ("SET NX, DEL", plain),
        ("SET NX, a script that looks whose it is", checked),
    ] {
        println!("{:5.2}  {what}", server(&redis, &mut connection, &pairs));
    }
}
