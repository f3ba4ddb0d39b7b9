//! From what the user said to a connected client.

use crate::args::Options;
use fencelock::{Builder, Config, Environment, Level, LockClient, Result};

/// What one command asks of the client beyond what every command may say.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted<'a> {
    pub(crate) require: Option<Level>,
    pub(crate) holder: Option<&'a str>,
}

/// The connected client. The one place where configuration comes in.
pub(crate) async fn client(options: &Options, wanted: Wanted<'_>) -> Result<LockClient> {
    let mut builder = builder(options)?;
    if let Some(level) = wanted.require {
        builder = builder.require(level);
    }
    if let Some(holder) = wanted.holder {
        builder = builder.holder(holder);
    }
    builder.connect().await
}

pub(crate) fn builder(options: &Options) -> Result<Builder> {
    let mut config = match &options.config {
        Some(file) => Config::from_file(file)?.with_environment(&Environment::of_process())?,
        None => Config::load()?,
    };
    if let Some(url) = &options.url {
        config = config.with_url(url);
    }
    Ok(config.builder())
}
