//! Which command does what.

use crate::args::{Cli, Command};
use crate::exit::{self, Failure, Outcome};
use crate::output::say;
use crate::{check, choose, logging, papers, status, table};
use std::future::Future;

/// Does what the command line says; the exit code.
pub(crate) fn main() -> u8 {
    let cli = match Cli::of(&std::env::args_os().collect::<Vec<_>>()) {
        Ok(cli) => cli,
        Err(answer) => {
            // Help and version come as errors too, and go to standard output.
            let _ = answer.print();
            return if answer.use_stderr() { exit::USAGE } else { exit::OK };
        }
    };
    match logging::start(cli.options.log_format).and_then(|()| dispatch(&cli)) {
        Ok(code) => code,
        Err(failure) => {
            say(failure.message);
            failure.code
        }
    }
}

fn dispatch(Cli { options, command }: &Cli) -> Outcome {
    match command {
        #[cfg(unix)]
        Command::Run(args) => crate::run::run(options, args),
        #[cfg(not(unix))]
        Command::Run(_) => Err(Failure::new(
            exit::UNAVAILABLE,
            "`run` needs process groups and signals, which this system does not have",
        )),
        Command::Status(args) => block_on(status::status(options, args)),
        Command::List(args) => block_on(status::list(options, args)),
        Command::Release(args) => block_on(status::release(options, args)),
        Command::Check(args) => block_on(check::check(options, args)),
        Command::Guarantees(json) => table::show(json.wanted),
        Command::Choose(args) => choose::choose(args),
        #[cfg(feature = "redlock")]
        Command::Redlock(command) => block_on(crate::redlock::redlock(options, command)),
        #[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
        Command::Purge(args) => block_on(crate::purge::purge(options, args)),
        #[cfg(unix)]
        Command::Watch(args) => crate::watch::watch(options, args),
        #[cfg(not(unix))]
        Command::Watch(_) => Err(Failure::new(exit::UNAVAILABLE, "`watch` needs a terminal of Unix")),
        Command::Audit(args) => crate::audit::audit(args),
        Command::Completions { shell } => papers::completions(*shell),
        Command::Man { directory } => papers::manual(directory),
    }
}

/// Runs `work` on this thread. What the work leaves behind is not waited for.
pub(crate) fn block_on(work: impl Future<Output = Outcome>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Failure::new(exit::SYSTEM, format!("no runtime: {e}")))?;
    let outcome = runtime.block_on(work);
    runtime.shutdown_background();
    outcome
}
