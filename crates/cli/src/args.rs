//! The command line as the user types it.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use fencelock::{Level, MAX_TTL, MIN_TTL};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

const EXIT_CODES: &str = "\
Exit codes:
  64  the command line is wrong
  69  the lock service did not answer, or cannot do this
  70  an error in the engine
  71  an error of the system
  75  somebody else holds the lock (run)
  76  the lock was lost (run)
  77  the lock service denies access
  78  the configuration is wrong
  79  the deployment gives less than the required level";

const EXAMPLES: &str = "\
Examples:
  fencelock run --url sqlite:/var/lib/locks.db nightly -- backup.sh
  export FENCELOCK_URL=sqlite:/var/lib/locks.db
  fencelock run --no-wait --max-hold 1h nightly -- backup.sh
  fencelock status nightly
  fencelock check --require fenced";

const RUN_HELP: &str = "\
The command runs in a process group of its own and sees FENCELOCK_NAME and
FENCELOCK_TOKEN, the fencing token: give that number to the resource that the
lock protects, and let it refuse smaller ones. The lock is renewed until the
command and everything it left in its process group have ended, and those under
`timeout` and the like. INT, TERM, HUP, QUIT, USR1 and USR2 are passed on to all.

If the lock is lost, the group gets TERM at once and KILL after the grace of
--kill-after. If it was taken away (`fencelock release --force`), the group gets
KILL as soon as fencelock hears of it, after half a second as a rule. The service
keeps the lock closed for that long (the lock delay), so the group is gone before
another holder is granted the lock. It is not if the lock was deleted by hand in the
store itself, or if it was taken away while fencelock was cut off from the service
or stopped: then the group is stopped at the deadline only. The group is also
killed if fencelock itself is killed, or stopped for too long. What leaves the
session (setsid, daemons) is out of reach.

Examples:
  fencelock run nightly -- backup.sh --all
  fencelock run --no-wait --conflict-exit-code 0 nightly -- backup.sh
  fencelock run --wait 5m --ttl 10s --max-hold 1h deploy/web -- make deploy
  fencelock run --require fenced ledger -- sh -c 'post --fence $FENCELOCK_TOKEN'

Exit codes: the command's own; 128 + n if signal n ended it; and
  64  the command line is wrong
  69  the lock service did not answer
  70  an error in the engine
  71  an error of the system
  75  somebody else holds the lock (see --conflict-exit-code)
  76  the lock was lost, even if the command succeeded
  77  the lock service denies access
  78  the configuration is wrong
  79  the deployment gives less than --require
  126 the command cannot be run
  127 the command was not found
  128 + n  signal n ended the wait
If INT or QUIT ended the wait or the command, fencelock dies of it too, so that a
script stops; shells show 130 or 131.";

/// Distributed locks for the shell: run a command while holding a lock, see who holds what.
#[derive(Debug, Parser)]
#[command(name = "fencelock", version, after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
#[command(max_term_width = 100, arg_required_else_help = false)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) options: Options,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// What the arguments say, the program's own name first.
    ///
    /// # Errors
    /// What is wrong with them, or the help that they ask for.
    pub(crate) fn of(args: &[OsString]) -> Result<Self, clap::Error> {
        Self::try_parse_from(args)
            .or_else(|error| {
                let unknown = match error.get(ContextKind::InvalidArg) {
                    Some(ContextValue::String(arg)) if error.kind() == ErrorKind::UnknownArgument => arg.as_str(),
                    _ => "",
                };
                // A lock's name may begin with a dash. With two it is a misspelt option far more often.
                if !unknown.starts_with('-') || unknown.starts_with("--") {
                    return Err(error);
                }
                let run = |run: clap::Command| run.mut_arg("name", |name| name.allow_hyphen_values(true));
                let command = Self::command().mut_subcommand("run", run);
                let again = command.try_get_matches_from(args).and_then(|matches| Self::from_arg_matches(&matches));
                again.map_err(|_| error)
            })
            .map_err(discreet)
    }
}

/// The same error without a URL in the wrong place, for that may hold a password.
fn discreet(error: clap::Error) -> clap::Error {
    let told = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let is_url = |text: &&str| text.contains("://");
    let all = [ContextKind::InvalidArg, ContextKind::InvalidValue, ContextKind::InvalidSubcommand];
    if !all.into_iter().filter_map(told).any(|text| is_url(&text)) {
        return error;
    }
    let option = told(ContextKind::InvalidArg).filter(|text| !is_url(text));
    let place = option.map_or_else(|| "here".to_owned(), |option| format!("in '{option}'"));
    let message = format!("no URL belongs {place}; it is not shown, for it may hold a password");
    Cli::command().error(error.kind(), message)
}

/// What every command may say.
#[derive(Args)]
pub(crate) struct Options {
    /// The lock service, `sqlite:PATH` for instance. Counts over `FENCELOCK_URL` and the configuration file, which
    /// are the places for a URL with a password: command lines can be seen by others.
    #[arg(long, global = true, value_name = "URL", display_order = 900)]
    pub(crate) url: Option<String>,
    /// The configuration file. Otherwise `FENCELOCK_CONFIG` names it, or it is the first of ./fencelock.toml,
    /// ~/.config/fencelock/fencelock.toml and /etc/fencelock.toml.
    #[arg(long, global = true, value_name = "FILE", display_order = 901)]
    pub(crate) config: Option<PathBuf>,
    /// How logs are written to standard error; `json` is for `fencelock audit` and others that read them, and logs
    /// all of ours unless `FENCELOCK_LOG` says otherwise.
    #[arg(long, global = true, value_name = "FORMAT", display_order = 902)]
    pub(crate) log_format: Option<LogFormat>,
}

/// How a line of the log looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON value a line.
    Json,
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options").finish_non_exhaustive()
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command while holding a lock.
    #[command(after_help = RUN_HELP)]
    Run(Run),
    /// Show who holds a lock.
    Status(Status),
    /// List the held locks.
    List(List),
    /// Show what the lock service guarantees in its actual deployment, rule by rule.
    #[command(after_help = "Exits with 79 if the deployment gives less than is required.")]
    Check(Check),
    /// Show what each engine of this build gave in the deployments it was tried on.
    Guarantees(Json),
    /// Tell what to lock with, and how, from what you need; or that you need no lock.
    ///
    /// Asks a few questions on the terminal, apart from those that the options answer.
    #[command(after_help = "\
Example: fencelock choose --double-run wrong --check token --servers postgres,redis --work 5m --one-host no --stay-up no")]
    Choose(crate::choose::Choose),
    /// Take a lock away from its holder.
    #[command(after_help = "\
The old holder hears of it within half a second as a rule, if it is `fencelock run`,
and kills its command; meanwhile nobody holds the lock, and nobody is granted it. A
program that asked for no lock delay has no such time: another may be granted the
lock before it knows. A holder that is stopped or cut off from the service works on
until its deadline. Only a resource that checks fencing tokens refuses its late
effects, once the next holder has used a newer one.")]
    Release(Release),
    /// Look after the nodes of Redlock: make their counters, see how they stand, bring one back.
    #[cfg(feature = "redlock")]
    #[command(subcommand)]
    Redlock(crate::redlock::Redlock),
    /// Drop the rows of locks in a SQL table that nobody has held for long. It may run beside those who lock.
    #[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
    Purge(crate::purge::Purge),
    /// Show on the terminal who holds what, who waits and for how long, again and again.
    Watch(crate::watch::Watch),
    /// Find overlapping holds, stale releases and tokens out of order in the logs of several processes.
    #[command(after_help = crate::audit::HELP)]
    Audit(crate::audit::Audit),
    /// Print a completion script for a shell.
    #[command(after_help = "Example: fencelock completions bash > /etc/bash_completion.d/fencelock")]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a directory.
    Man {
        /// The directory, which must exist.
        directory: PathBuf,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Run {
    /// The lock's name: 1 to 512 bytes; not beginning with two dashes.
    #[arg(index = 1)]
    pub(crate) name: String,
    /// The command and its arguments.
    #[arg(index = 2, last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
    /// How long the lock outlives a holder that has vanished: 50ms to 7days.
    #[arg(long, value_name = "DURATION", value_parser = parse_ttl)]
    pub(crate) ttl: Option<Duration>,
    /// How long to wait for another holder, or `forever`; 30s unless configured.
    #[arg(long, value_name = "DURATION", value_parser = parse_wait, conflicts_with = "no_wait")]
    pub(crate) wait: Option<Patience>,
    /// Do not wait for another holder.
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// The longest that the command may run; the lock is then lost and the command stopped.
    #[arg(long, value_name = "DURATION", value_parser = parse_max_hold)]
    pub(crate) max_hold: Option<Duration>,
    /// The exit code when somebody else holds the lock.
    #[arg(long, value_name = "CODE", default_value_t = crate::exit::CONTENDED)]
    pub(crate) conflict_exit_code: u8,
    /// The time between TERM and KILL when the lock is lost, one day at most.
    #[arg(long, value_name = "DURATION", value_parser = parse_grace, default_value = "2s")]
    pub(crate) kill_after: Duration,
    /// A note that others see beside the lock, 1024 bytes at most.
    #[arg(long, value_name = "TEXT", value_parser = parse_note)]
    pub(crate) note: Option<String>,
    /// Run only if the deployment gives this level.
    #[arg(long, value_name = "LEVEL", value_parser = level())]
    pub(crate) require: Option<Level>,
    /// Who holds the lock, as others see it; `host:process id` unless configured.
    #[arg(long, value_name = "TEXT")]
    pub(crate) holder: Option<String>,
}

/// How long to wait for another holder.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(unix), expect(dead_code, reason = "`run` reads it, and is for Unix"))]
pub(crate) enum Patience {
    AtMost(Duration),
    Forever,
}

fn parse_wait(text: &str) -> Result<Patience, humantime::DurationError> {
    if text == "forever" { Ok(Patience::Forever) } else { humantime::parse_duration(text).map(Patience::AtMost) }
}

/// A duration for which `is_right` says so, or what it should have been.
fn bounded(text: &str, right: &str, is_right: impl Fn(Duration) -> bool) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text).map_err(|e| e.to_string())?;
    if is_right(duration) { Ok(duration) } else { Err(right.to_owned()) }
}

fn parse_ttl(text: &str) -> Result<Duration, String> {
    bounded(text, "50ms to 7days", |ttl| (MIN_TTL..=MAX_TTL).contains(&ttl))
}

fn parse_max_hold(text: &str) -> Result<Duration, String> {
    bounded(text, "longer than nothing", |longest| !longest.is_zero())
}

fn parse_grace(text: &str) -> Result<Duration, String> {
    // The lock delay, which is up to twice as long, has bounds of its own.
    bounded(text, "1day at most", |grace| grace <= Duration::from_secs(24 * 60 * 60))
}

fn parse_note(text: &str) -> Result<String, String> {
    if text.len() <= 1024 { Ok(text.to_owned()) } else { Err("a note has at most 1024 bytes".to_owned()) }
}

fn level() -> impl TypedValueParser<Value = Level> {
    PossibleValuesParser::new(Level::ALL.map(Level::as_str)).try_map(|text| text.parse::<Level>())
}

#[derive(Args, Debug)]
pub(crate) struct Status {
    /// The lock's name.
    pub(crate) name: String,
    /// Exit with 1 if nobody holds it.
    #[arg(long)]
    pub(crate) exit_code: bool,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(Args, Debug)]
pub(crate) struct List {
    /// Only locks whose names begin with this.
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(Args, Debug)]
pub(crate) struct Check {
    /// The level that is required.
    #[arg(long, value_name = "LEVEL", value_parser = level())]
    pub(crate) require: Option<Level>,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(Args, Debug)]
pub(crate) struct Release {
    /// The lock's name.
    pub(crate) name: String,
    /// Take it away from whoever holds it. There is no other way to release somebody else's lock.
    #[arg(long, required = true)]
    pub(crate) force: bool,
    /// Do not ask.
    #[arg(long)]
    pub(crate) yes: bool,
    /// Only from the hold with this token, as `status` and `list` show it: if it is over, whoever holds
    /// the lock now keeps it. What was asked about and confirmed is compared in any case.
    #[arg(long, value_name = "N")]
    pub(crate) token: Option<u64>,
}

#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Json {
    /// Answer in JSON.
    #[arg(long = "json")]
    pub(crate) wanted: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Cli, clap::Error> {
        Cli::of(&args.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_follows_the_dashes_is_the_command() {
        let cli = Cli::try_parse_from(["fencelock", "run", "--wait", "forever", "n", "--", "c", "--ttl", "x"]).unwrap();
        let Command::Run(run) = cli.command else { panic!("not a run") };
        assert_eq!(run.command, ["c", "--ttl", "x"]);
        assert!(matches!(run.wait, Some(Patience::Forever)));
        assert!(Cli::try_parse_from(["fencelock", "run", "n", "c"]).is_err());
    }

    #[test]
    fn a_name_may_begin_with_a_dash_but_a_misspelt_option_is_none() {
        let cli = parse(&["fencelock", "run", "-n", "--no-wait", "--", "c"]).unwrap();
        let Command::Run(run) = cli.command else { panic!("not a run") };
        assert_eq!((run.name.as_str(), run.no_wait), ("-n", true));
        for (args, wrong) in [
            (&["--tll", "5s", "n"][..], "--tll"),
            (&["--no-wiat", "n"], "--no-wiat"),
            (&["n", "--no-wiat"], "--no-wiat"),
            (&["--no-wiat"], "--no-wiat"),
            (&["-x", "n"], "-x"),
            (&["n", "-x"], "-x"),
        ] {
            let error = parse(&[&["fencelock", "run"], args, &["--", "c"]].concat()).unwrap_err();
            assert!(error.to_string().contains(wrong), "{args:?}: {error}");
        }
    }

    #[test]
    fn an_option_out_of_bounds_is_named() {
        for (option, value) in [
            ("--ttl", "49ms"),
            ("--ttl", "8days"),
            ("--max-hold", "0s"),
            ("--kill-after", "2days"),
            ("--note", &"x".repeat(1025)),
        ] {
            let error = Cli::try_parse_from(["fencelock", "run", option, value, "n", "--", "c"]).unwrap_err();
            assert!(error.to_string().contains(option), "{error}");
        }
    }

    #[test]
    fn a_url_in_the_wrong_place_is_not_repeated() {
        let url = "redis://user:hunter2@host";
        for args in [
            &["run", "--ttl", url, "n", "--", "c"][..],
            &["run", "--require", url, "n", "--", "c"],
            &["run", "n", url, "--", "c"],
            &["run", "--wait", url, "n", "--", "c"],
            &["run", "--conflict-exit-code", url, "n", "--", "c"],
            &[url, "run", "n", "--", "c"],
            &["run", &format!("--{url}"), "n", "--", "c"],
            &["status", "n", url],
        ] {
            let shown = parse(&[&["fencelock"], args].concat()).unwrap_err().to_string();
            assert!(!shown.contains("hunter2") && shown.contains("no URL belongs"), "{args:?}: {shown}");
        }
        let shown = parse(&["fencelock", "run", "--ttl", url, "n", "--", "c"]).unwrap_err().to_string();
        assert!(shown.contains("'--ttl <DURATION>'"), "{shown}");
    }

    #[test]
    fn debug_output_hides_the_url() {
        let cli = Cli::try_parse_from(["fencelock", "--url", "x://u:secret@h", "list"]).unwrap();
        assert!(!format!("{cli:?}").contains("secret"));
    }
}
