//! What it is asked to do.

use crate::engine::Engine;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// Floors, peers and ours in one run.
#[derive(Debug, Parser)]
#[command(name = "fencelock-bench")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) part: Option<Part>,
    #[command(flatten)]
    pub(crate) run: Run,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Only these engines; may be given several times, or with commas.
    #[arg(long, value_delimiter = ',')]
    pub(crate) engine: Vec<Engine>,
    /// Only the cases whose name contains this; may be given several times, or with commas.
    #[arg(long, value_delimiter = ',')]
    pub(crate) case: Vec<String>,
    /// Short rounds: under 3 minutes for all.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Writes the rows, a line of JSON each.
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,
    /// Writes the report, one page.
    #[arg(long)]
    pub(crate) html: Option<PathBuf>,
}

/// What else it does, and what it starts itself as.
#[derive(Debug, Subcommand)]
pub(crate) enum Part {
    /// Shows where processor time goes: floor and ours, one task and 64, each recorded alone by `perf`.
    Profile {
        #[arg(required = true, value_delimiter = ',')]
        engine: Vec<Engine>,
        /// How long each is recorded.
        #[arg(long, default_value_t = 4)]
        seconds: u64,
        /// Also shows so many functions of each part, those with the most time.
        #[arg(long, default_value_t = 0)]
        top: usize,
    },
    /// One engine; a row of JSON for each line on the standard output.
    #[command(hide = true)]
    One {
        engine: Engine,
        #[arg(long)]
        quick: bool,
        /// On one processor.
        #[arg(long)]
        pinned: bool,
        #[arg(long, value_delimiter = ',')]
        case: Vec<String>,
    },
    /// A client of its own that is told what to do on its standard input.
    #[command(hide = true)]
    Client { engine: Engine, who: String, url: String },
    /// Takes so many locks, says how many bytes of memory that took for each, and keeps them until it is killed.
    #[command(hide = true)]
    Holder { engine: Engine, url: String, name: String, ttl_ms: u64, count: usize },
}
