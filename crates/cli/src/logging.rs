//! Logs, for whoever asks for them: off unless `FENCELOCK_LOG` is set.

use crate::exit::{self, Failure};
use crate::output::takes_errors;
use std::env;
use std::io::{self, IsTerminal, Write, stderr};
use tracing_subscriber::EnvFilter;

const VARIABLE: &str = "FENCELOCK_LOG";

/// Sends logs to standard error, as the environment asks for.
///
/// `RUST_LOG` does not count: it is meant for the command that runs under the lock.
pub(crate) fn start() -> Result<(), Failure> {
    let Ok(filter) = env::var(VARIABLE) else { return Ok(()) };
    let filter = EnvFilter::try_new(filter).map_err(|e| Failure::new(exit::CONFIG, format!("{VARIABLE}: {e}")))?;
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| Errors);
    // A second subscriber in one process cannot happen; if it did, the first would go on.
    let _ = logs.with_ansi(stderr().is_terminal()).try_init();
    Ok(())
}

/// Standard error, but what it does not take now is left out: nobody who holds
/// a lock may wait for a reader.
struct Errors;

impl Write for Errors {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if takes_errors() { stderr().write(line) } else { Ok(line.len()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
