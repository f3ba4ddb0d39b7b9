//! Logs, for whoever asks for them: off unless `FENCELOCK_LOG` is set. Only our
//! own: what client libraries log at the highest level may hold passwords.

use crate::args::LogFormat;
use crate::exit::{self, Failure};
use crate::output::takes_errors;
use std::env;
use std::io::{self, IsTerminal, Write, stderr};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, fmt};

const VARIABLE: &str = "FENCELOCK_LOG";

/// Sends logs to standard error, as the environment asks for.
///
/// `RUST_LOG` does not count: it is meant for the command that runs under the lock.
pub(crate) fn start(format: Option<LogFormat>) -> Result<(), Failure> {
    let filter = match (env::var(VARIABLE), format) {
        (Ok(filter), _) => filter,
        (Err(_), Some(LogFormat::Json)) => "fencelock=debug".to_owned(),
        (Err(_), _) => return Ok(()),
    };
    let filter = EnvFilter::try_new(filter).map_err(|e| Failure::new(exit::CONFIG, format!("{VARIABLE}: {e}")))?;
    let ours = filter_fn(|about| about.target().starts_with("fencelock"));
    let logs = fmt().with_env_filter(filter).with_writer(|| Errors).with_ansi(stderr().is_terminal());
    // A second subscriber in one process cannot happen; if it did, the first would go on.
    let _ = match format {
        Some(LogFormat::Json) => logs.json().finish().with(ours).try_init(),
        _ => logs.finish().with(ours).try_init(),
    };
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
