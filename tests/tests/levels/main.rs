//! Each deployment that these machines can start, with the level and the reasons that the engine gives there.
//!
//! What was found is kept in `crates/fencelock/src/deployments/`, from which the
//! README and the command line make their tables. On a difference the right text
//! is printed; with `FENCELOCK_KEEP=1` it is written.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs, reason = "a test")]

mod degraded;
mod hidden;
mod quorum;
mod redis;
mod sql;

use fencelock_core::{ErrorKind, Guarantees, Level, catalogue};
use std::path::Path;
use std::sync::Arc;

/// Connects without asking for more than there is.
async fn found(url: impl AsRef<str>) -> Arc<Guarantees> {
    fencelock::connect(url).await.unwrap().guarantees()
}

/// The deployments of one engine, as they are found.
struct Rows {
    engine: &'static str,
    rows: Vec<Guarantees>,
}

impl Rows {
    fn of(engine: &'static str) -> Self {
        Self { engine, rows: Vec::new() }
    }

    /// One deployment, the level that it gives, and the rule that keeps it from the next.
    fn add(
        &mut self,
        deployment: &'static str,
        found: &Guarantees,
        level: impl Into<Option<Level>>,
        obstacle: Option<&str>,
    ) {
        let level = level.into();
        assert_eq!(found.engine(), self.engine);
        assert_eq!(found.level(), level, "{deployment}: {found:#?}");
        assert_eq!(found.next_obstacle().map(|rule| rule.id()), obstacle, "{deployment}: {found:#?}");
        for required in Level::ALL {
            let refused = found.require(required).is_err_and(|e| e.kind() == ErrorKind::Refused);
            assert_eq!(refused, Some(required) > level, "{deployment}: {required}");
        }
        self.rows.push(found.clone().with_deployment(deployment));
    }

    /// Compares with what is kept, after `same` has made what depends on this run the same for all.
    fn compare(&self, same: impl Fn(String) -> String) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("crates/fencelock/src/deployments");
        let file = folder.join(self.engine).with_extension("txt");
        let text = same(catalogue(&self.rows));
        if std::env::var_os("FENCELOCK_KEEP").is_some() {
            std::fs::write(&file, &text).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text, "{} should say:\n\n{text}", file.display());
    }
}

#[tokio::test]
async fn memory() {
    let mut rows = Rows::of("memory");
    rows.add("tasks of one process", &*found("memory:").await, Level::Advisory, Some("memory.one_process"));
    rows.compare(|text| text);
}
