//! A client in a process of its own, told what to do on its standard input.
//!
//! It prints `ready` once it is connected. Then for each line `TASKS SHARED MILLIS`
//! (SHARED is 1 if all tasks lock one name) it locks and unlocks in so many tasks
//! for so long, and prints one line: the processor time that this took it in
//! microseconds (`-` where it cannot tell), a `;`, the number of pairs that each
//! task had, a `;`, and all latencies in microseconds, `10.5*3` for three equal ones. It
//! ends with its input.

use super::Shape;
use crate::failure::Result;
use crate::measure::{Histogram, Round, cpu};
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// What to start: the program, its arguments, and what its environment has more.
#[derive(Clone, Debug, Default)]
pub(crate) struct Program {
    pub(crate) words: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
}

/// # Drop
/// Kills it.
pub(crate) struct Outside {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

const START: Duration = Duration::from_secs(30);

impl Outside {
    /// Starts it, with where the servers are as its last argument.
    pub(crate) async fn start(program: &Program, servers: &str) -> Result<Self> {
        let mut words = program.words.iter();
        let first = words.next().ok_or("no program")?;
        let mut command = Command::new(first);
        command.args(words).arg(servers).envs(program.environment.iter().cloned());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let input = child.stdin.take().ok_or("no input")?;
        let output = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        let mut outside = Self { child, input, output };
        let ready = outside.line(START).await?;
        if ready == "ready" { Ok(outside) } else { Err(format!("it did not start: {ready}").into()) }
    }

    async fn line(&mut self, limit: Duration) -> Result<String> {
        let line = timeout(limit, self.output.next_line()).await.map_err(|_| "it did not answer in time")??;
        Ok(line.ok_or("it ended")?)
    }

    pub(crate) fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Begins a round, whose result [`ended`](Self::ended) waits for.
    pub(crate) async fn begin(&mut self, shape: Shape, length: Duration) -> Result<()> {
        let order = format!("{} {} {}\n", shape.tasks, u8::from(shape.shared), length.as_millis());
        self.input.write_all(order.as_bytes()).await?;
        Ok(self.input.flush().await?)
    }

    pub(crate) async fn ended(&mut self, length: Duration) -> Result<Round> {
        let line = self.line(length * 3 + START).await?;
        Ok(parse(&line).ok_or_else(|| format!("no result: {line:.200}"))?)
    }

    pub(crate) async fn round(&mut self, shape: Shape, length: Duration) -> Result<Round> {
        let processes: Vec<u32> = self.id().into_iter().collect();
        let (used, started) = (cpu::of(&processes), Instant::now());
        self.begin(shape, length).await?;
        let mut round = self.ended(length).await?;
        round.elapsed = started.elapsed();
        if round.client.is_zero() {
            round.client = cpu::of(&processes).saturating_sub(used);
        }
        Ok(round)
    }
}

fn parse(line: &str) -> Option<Round> {
    let mut parts = line.split(';');
    let client = Duration::from_micros(parts.next()?.trim().parse().unwrap_or(0));
    let shares = parts.next()?.split_ascii_whitespace().map(|share| share.parse().ok()).collect::<Option<_>>()?;
    let mut latencies = Histogram::default();
    for latency in parts.next()?.split_ascii_whitespace() {
        let (us, times) = latency.split_once('*').unwrap_or((latency, "1"));
        latencies.add_times(Duration::try_from_secs_f64(us.parse::<f64>().ok()? / 1e6).ok()?, times.parse().ok()?);
    }
    Some(Round { client, shares, latencies, ..Round::default() })
}

/// A result as a process of our own prints it: equal latencies together, `LATENCY*TIMES`.
pub(crate) fn print(client: Duration, shares: &[u64], latencies: &Histogram) -> String {
    let shares: Vec<_> = shares.iter().map(u64::to_string).collect();
    let latencies: Vec<_> = latencies.counts().map(|(us, times)| format!("{us:.3}*{times}")).collect();
    format!("{};{};{}", client.as_micros(), shares.join(" "), latencies.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_understood() {
        let mut latencies = Histogram::default();
        latencies.add_times(Duration::from_micros(10), 3);
        latencies.add(Duration::from_millis(30));
        let round = parse(&print(Duration::from_micros(7), &[1, 3], &latencies)).unwrap();
        assert_eq!(round.latencies.counts().collect::<Vec<_>>(), latencies.counts().collect::<Vec<_>>());
        assert_eq!((round.client, round.shares, round.latencies.total()), (Duration::from_micros(7), vec![1, 3], 4));
        assert!(parse("-;;").unwrap().latencies.total() == 0);
        assert!(parse("").is_none() && parse("1;x;2").is_none() && parse("1;2;-5").is_none());
    }
}
