//! `fencelock choose`: a few questions, and what to lock with; or that no lock is needed.

use crate::exit::{self, Failure, Outcome};
use crate::output::{answer, answer_json};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use fencelock::{DoubleRun, Level, Need, Recommendation, ResourceCheck, Service, recommend};
use serde_json::{Value, json};
use std::io::{self, BufRead, IsTerminal, Write};
use std::time::Duration;

#[derive(Args, Debug)]
pub(crate) struct Choose {
    /// What it costs when the work is done twice, or by two at once: nothing, time and money, or wrong data.
    #[arg(long, value_name = "COST", value_parser = double_run())]
    double_run: Option<DoubleRun>,
    /// What the resource that is changed can check: a fencing token, a unique key, one transaction in a database, or
    /// nothing.
    #[arg(long, value_name = "WHAT", value_parser = check())]
    check: Option<ResourceCheck>,
    /// The services that run already, separated by commas; `none` for none.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = service())]
    servers: Option<Vec<Named>>,
    /// How long the work takes as a rule.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    work: Option<Duration>,
    /// Whether everyone who contends is on one host.
    #[arg(long, value_name = "YES|NO", value_parser = yes_or_no())]
    one_host: Option<bool>,
    /// Whether the lock service must go on when a server of it is lost.
    #[arg(long, value_name = "YES|NO", value_parser = yes_or_no())]
    stay_up: Option<bool>,
    #[command(flatten)]
    json: crate::args::Json,
}

/// A service, or none.
type Named = Option<Service>;

fn double_run() -> impl TypedValueParser<Value = DoubleRun> {
    PossibleValuesParser::new(DoubleRun::ALL.map(DoubleRun::as_str))
        .try_map(|text| DoubleRun::ALL.into_iter().find(|cost| cost.as_str() == text).ok_or("no such cost"))
}

fn check() -> impl TypedValueParser<Value = ResourceCheck> {
    PossibleValuesParser::new(ResourceCheck::ALL.map(ResourceCheck::as_str))
        .try_map(|text| ResourceCheck::ALL.into_iter().find(|check| check.as_str() == text).ok_or("no such check"))
}

fn service() -> impl TypedValueParser<Value = Named> {
    PossibleValuesParser::new(Service::ALL.map(Service::as_str).into_iter().chain(["none"]))
        .map(|text| Service::ALL.into_iter().find(|service| service.as_str() == text))
}

fn yes_or_no() -> impl TypedValueParser<Value = bool> {
    PossibleValuesParser::new(["yes", "no"]).map(|text| text == "yes")
}

/// Asks what was not said, if there is a terminal to ask on, and recommends.
pub(crate) fn choose(args: &Choose) -> Outcome {
    let advised = recommend(&need(args, &mut Questions::on_terminal())?);
    if args.json.wanted {
        answer_json(&as_json(&advised))?;
    } else {
        answer(&as_text(&advised))?;
    }
    Ok(exit::OK)
}

/// Somebody to ask.
struct Questions<R, W> {
    /// `None` where nobody would answer.
    on: Option<(R, W)>,
}

impl Questions<io::StdinLock<'static>, io::Stderr> {
    fn on_terminal() -> Self {
        let there = io::stdin().is_terminal() && io::stderr().is_terminal();
        Self { on: there.then(|| (io::stdin().lock(), io::stderr())) }
    }
}

impl<R: BufRead, W: Write> Questions<R, W> {
    /// Asks until the answer can be read. `option` is what says the same on the command line.
    fn ask<T>(&mut self, option: &str, question: &str, read: impl Fn(&str) -> Option<T>) -> Result<T, Failure> {
        let Some((answers, out)) = &mut self.on else {
            let message = format!("`choose` asks on a terminal, and there is none; say {option} and the other options");
            return Err(Failure::new(exit::USAGE, message));
        };
        loop {
            write!(out, "{question}\n> ").and_then(|()| out.flush())?;
            let mut line = String::new();
            if answers.read_line(&mut line)? == 0 {
                return Err(Failure::new(exit::USAGE, "no answer"));
            }
            if let Some(answer) = read(line.trim()) {
                return Ok(answer);
            }
            writeln!(out, "`{}` is none of the answers.\n", crate::output::clean(line.trim()))?;
        }
    }

    /// One of `options`, by its number or its name.
    fn pick<T: Copy>(&mut self, option: &str, question: &str, options: &[(T, &str, &str)]) -> Result<T, Failure> {
        let lines = options.iter().enumerate().map(|(at, (_, name, about))| format!("\n  {}  {name}: {about}", at + 1));
        let text = format!("{question}{}", lines.collect::<String>());
        self.ask(option, &text, |said| one_of(said, options))
    }
}

fn one_of<T: Copy>(said: &str, options: &[(T, &str, &str)]) -> Option<T> {
    let numbered = said.parse::<usize>().ok().and_then(|number| options.get(number.checked_sub(1)?));
    let found = numbered.or_else(|| options.iter().find(|(_, name, _)| *name == said));
    found.map(|(option, ..)| *option)
}

const COSTS: [(DoubleRun, &str, &str); 3] = [
    (DoubleRun::Harmless, "harmless", "nothing; the second run changes nothing"),
    (DoubleRun::Waste, "waste", "time or money, and the result is right all the same"),
    (DoubleRun::Wrong, "wrong", "wrong data, or something that cannot be undone"),
];

const CHECKS: [(ResourceCheck, &str, &str); 4] = [
    (ResourceCheck::Token, "token", "a number that comes with each write, and refuse smaller ones"),
    (ResourceCheck::UniqueKey, "unique-key", "a unique key for what must happen once"),
    (ResourceCheck::Transaction, "transaction", "it is in a database, and the work is one transaction there"),
    (ResourceCheck::Nothing, "nothing", "none of these"),
];

const SERVICES: [(Named, &str, &str); 8] = [
    (Some(Service::Postgres), "postgres", "PostgreSQL"),
    (Some(Service::MySql), "mysql", "MySQL or MariaDB"),
    (Some(Service::Redis), "redis", "one Redis without replicas"),
    (Some(Service::RedisFailover), "redis-failover", "Redis with replicas, Sentinel or Cluster"),
    (Some(Service::RedisNodes), "redis-nodes", "three or more independent Redis servers"),
    (Some(Service::Etcd), "etcd", "etcd"),
    (Some(Service::ZooKeeper), "zookeeper", "Apache ZooKeeper"),
    (None, "none", "none of these"),
];

fn need<R: BufRead, W: Write>(args: &Choose, questions: &mut Questions<R, W>) -> Result<Need, Failure> {
    let double_run = match args.double_run {
        Some(cost) => cost,
        None => {
            questions.pick("--double-run", "What does it cost if the work is done twice, or by two at once?", &COSTS)?
        }
    };
    let mut need = Need::new(double_run);
    if double_run == DoubleRun::Harmless {
        return Ok(need);
    }
    let check = match args.check {
        Some(check) => check,
        None => questions.pick("--check", "What can the resource that is changed check?", &CHECKS)?,
    };
    need = need.with_check(check);
    if double_run == DoubleRun::Wrong && check == ResourceCheck::UniqueKey {
        return Ok(need);
    }
    let yes = |said: &str| match said {
        "yes" | "y" => Some(true),
        "no" | "n" => Some(false),
        _ => None,
    };
    let one_host = match args.one_host {
        Some(one_host) => one_host,
        None => questions.ask("--one-host", "Is everyone who contends on one host? (yes, no)", yes)?,
    };
    let stays_up = match args.stay_up {
        Some(stays_up) => stays_up,
        None => questions.ask("--stay-up", "Must locking go on when a server of it is lost? (yes, no)", yes)?,
    };
    let servers = match &args.servers {
        Some(servers) => servers.clone(),
        None => questions.ask("--servers", &servers_question(), several)?,
    };
    let work = match args.work {
        Some(work) => work,
        None => questions.ask("--work", "How long does the work take as a rule? (such as 200ms, 30s, 1h)", |said| {
            humantime::parse_duration(said).ok()
        })?,
    };
    need = servers.into_iter().flatten().fold(need.with_work(work), Need::with_service);
    need = if one_host { need.on_one_host() } else { need };
    Ok(if stays_up { need.staying_up() } else { need })
}

fn servers_question() -> String {
    let lines = SERVICES.iter().enumerate().map(|(at, (_, name, about))| format!("\n  {}  {name}: {about}", at + 1));
    format!("Which of these run already? Several are separated by commas.{}", lines.collect::<String>())
}

fn several(said: &str) -> Option<Vec<Named>> {
    said.split(',').map(|one| one_of(one.trim(), &SERVICES)).collect()
}

fn as_text(advised: &Recommendation) -> String {
    let mut text = String::new();
    if let (Some(engine), Some(level), Some(found)) = (advised.engine(), advised.level(), advised.deployment()) {
        text.push_str(&format!("{engine}, level {level}\n"));
        if level > Level::Advisory {
            text.push_str(&format!("set up as: {}\n", found.deployment().replace('`', "")));
        }
        text.push('\n');
    }
    for said in advised.advice() {
        text.push_str(&format!("- {}\n", said.replace('`', "")));
    }
    if advised.needs_lock() {
        let (toml, dependency, code) = (advised.toml(), advised.dependency(), advised.code());
        text.push_str(&format!("\n# fencelock.toml\n{toml}\n# Cargo.toml\n{dependency}\n\n// Rust\n{code}"));
    }
    text
}

fn as_json(advised: &Recommendation) -> Value {
    json!({
        "lock": advised.needs_lock(),
        "engine": advised.engine(),
        "level": advised.level().map(Level::as_str),
        "deployment": advised.deployment().map(crate::check::as_json),
        "advice": advised.advice(),
        "fencelock.toml": advised.toml(),
        "Cargo.toml": advised.dependency(),
        "code": advised.code(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Choose = Choose {
        double_run: None,
        check: None,
        servers: None,
        work: None,
        one_host: None,
        stay_up: None,
        json: crate::args::Json { wanted: false },
    };

    fn asked(said: &str) -> (Result<Need, Failure>, String) {
        let mut questions = Questions { on: Some((said.as_bytes(), Vec::new())) };
        let need = need(&NOTHING, &mut questions);
        let (_, out) = questions.on.unwrap();
        (need, String::from_utf8(out).unwrap())
    }

    #[test]
    fn answers_are_numbers_or_names() {
        let (by_number, asked_of) = asked("3\n1\nno\nyes\n1, 6\n1h\n");
        let (by_name, _) = asked("wrong\ntoken\nn\ny\npostgres,etcd\n1h\n");
        let expected = Need::new(DoubleRun::Wrong)
            .with_check(ResourceCheck::Token)
            .with_service(Service::Postgres)
            .with_service(Service::Etcd)
            .with_work(Duration::from_secs(3_600))
            .staying_up();
        assert_eq!((by_number.unwrap(), by_name.unwrap()), (expected.clone(), expected));
        assert!(asked_of.contains("3  wrong") && asked_of.contains("8  none"), "{asked_of}");
    }

    #[test]
    fn what_is_no_answer_is_asked_again_and_no_answer_ends_it() {
        let (need, asked_of) = asked("maybe\n0\nharmless\n");
        assert_eq!(need.unwrap(), Need::new(DoubleRun::Harmless));
        assert!(asked_of.contains("`maybe` is none of the answers"), "{asked_of}");
        assert_eq!(asked("wrong\n").0.unwrap_err().code, exit::USAGE);
    }

    #[test]
    fn without_a_terminal_the_missing_option_is_named() {
        let mut nobody = Questions::<&[u8], Vec<u8>> { on: None };
        let e = need(&NOTHING, &mut nobody).unwrap_err();
        assert!(e.code == exit::USAGE && e.message.contains("--double-run"), "{e:?}");
    }

    #[test]
    fn names_on_the_command_line_and_in_questions_are_the_same() {
        assert!(COSTS.iter().all(|(cost, name, _)| cost.as_str() == *name) && COSTS.len() == DoubleRun::ALL.len());
        assert!(CHECKS.iter().all(|(check, name, _)| check.as_str() == *name));
        assert!(SERVICES.iter().filter_map(|(s, n, _)| Some((s.as_ref()?, n))).all(|(s, n)| s.as_str() == *n));
    }
}
