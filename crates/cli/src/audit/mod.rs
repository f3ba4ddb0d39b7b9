//! `fencelock audit FILE…`: logs of several processes, laid side by side.

mod advice;
mod html;
mod judge;
mod read;
mod report;
#[cfg(test)]
mod tests;

use crate::exit::{self, Failure, Outcome};
use crate::output::{answer, answer_json};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Args, Debug)]
pub(crate) struct Audit {
    /// Logs as JSON lines, of one process or more each; `-` is standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Answer in JSON.
    #[arg(long)]
    json: bool,
    /// Write a time line into this file, as one HTML page that needs nothing else.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// How far the clocks of the hosts may differ: overlaps no longer than this are none.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, default_value = "0s")]
    skew: Duration,
    /// Advise a ttl for each prefix of names, by how long the holds took.
    #[arg(long)]
    advice: bool,
    /// The time-out of the slowest thing that holders wait for; the advised ttl is longer.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, requires = "advice")]
    slowest: Option<Duration>,
}

pub(crate) const HELP: &str = "\
The logs are what `fencelock run --log-format json` writes to standard error, or
any program with a JSON layer of tracing, of the target `fencelock` at the level
`debug`. Other lines are skipped. Give it the logs of all processes that use one
lock service; it finds

  overlap        two holds of one name at the same time: from each one's grant to
                 its release, loss or last sign of life
  stale release  a guard released after its lock had been lost
  token order    a token that is not larger than that of a hold that had ended

A hold whose grant is not in the logs (the beginning was rotated away, or comes
in a later FILE) is known by the events that are. Of a process that was killed
nothing is known after its last line, a grant or a renewal: its hold counts until
then, and what it did until its lease ran out is in no log. If another was granted
the lock in that time, this is told as unclear, and is no finding: it may have been
given back unheard. The service would have had to grant it twice. Of many that overlap at once,
each is told with eight others at most.

Exits with 1 if it finds any.

Examples:
  FENCELOCK_LOG=fencelock=debug fencelock run --log-format json n -- cmd 2> a.log
  fencelock audit a.log b.log --html audit.html
  fencelock audit --advice --slowest 5s *.log";

pub(crate) fn audit(args: &Audit) -> Outcome {
    let mut logs = read::Logs::default();
    for file in &args.files {
        logs.read(file).map_err(|e| Failure::new(exit::USAGE, format!("{}: {e}", file.display())))?;
    }
    if logs.holds.is_empty() {
        let message = "there is no hold in these logs: they should be JSON lines with the target `fencelock` at the \
            level `debug`";
        return Err(Failure::new(exit::USAGE, message));
    }
    let found = judge::judge(&logs, args.skew);
    let advice = args.advice.then(|| advice::by_prefix(&logs, args.slowest.unwrap_or_default()));
    if let Some(file) = &args.html {
        let page = html::page(&logs, &found);
        std::fs::write(file, page).map_err(|e| Failure::new(exit::SYSTEM, format!("{}: {e}", file.display())))?;
    }
    if args.json {
        answer_json(&report::json(&logs, &found, advice.as_deref()))?;
    } else {
        answer(&report::text(&logs, &found, advice.as_deref()))?;
    }
    Ok(if found.is_empty() { exit::OK } else { exit::FOUND })
}
