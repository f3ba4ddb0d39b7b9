//! Logs, for whoever asks for them: off unless `FENCELOCK_LOG` or `RUST_LOG` is set.

use crate::exit::{self, Failure};
use std::env;
use std::io::{IsTerminal, stderr};
use tracing_subscriber::EnvFilter;

/// Sends logs to standard error, as the environment asks for.
pub(crate) fn start() -> Result<(), Failure> {
    for variable in ["FENCELOCK_LOG", "RUST_LOG"] {
        let Ok(filter) = env::var(variable) else { continue };
        let filter = EnvFilter::try_new(filter).map_err(|e| Failure::new(exit::CONFIG, format!("{variable}: {e}")))?;
        let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr);
        // A second subscriber in one process cannot happen; if it did, the first would go on.
        let _ = logs.with_ansi(stderr().is_terminal()).try_init();
        break;
    }
    Ok(())
}
