//! The tables: made, and verified at every connect.

use super::failure::Failure;
use fencelock_core::ErrorKind;
use sqlx::{Row as _, SqliteConnection};

/// Versions of the layout that differ must not lock in one file.
const LAYOUT: i64 = 1;

pub(crate) struct Table {
    name: &'static str,
    ddl: &'static str,
    /// Name, type, NOT NULL, and whether it is the primary key.
    columns: &'static [(&'static str, &'static str, bool, bool)],
}

const META: Table = Table {
    name: "fencelock_meta",
    ddl: include_str!("sql/meta.sql"),
    columns: &[("key", "TEXT", true, true), ("value", "INTEGER", true, false)],
};

const LOCKS: Table = Table {
    name: "fencelock_locks",
    ddl: include_str!("sql/locks.sql"),
    columns: &[
        ("name", "BLOB", true, true),
        ("claim_id", "BLOB", true, false),
        ("token", "INTEGER", true, false),
        ("expires_at", "INTEGER", true, false),
        ("ttl", "INTEGER", true, false),
        ("delay", "INTEGER", true, false),
        ("boot_id", "TEXT", true, false),
        ("holder", "TEXT", true, false),
        ("note", "TEXT", false, false),
        ("acquired_at", "INTEGER", true, false),
    ],
};

const VOIDS: Table = Table {
    name: "fencelock_voids",
    ddl: include_str!("sql/voids.sql"),
    columns: &[
        ("claim_id", "BLOB", true, true),
        ("expires_at", "INTEGER", true, false),
        ("boot_id", "TEXT", true, false),
    ],
};

pub(crate) const FENCES: Table = Table {
    name: "fencelock_fences",
    ddl: include_str!("sql/fences.sql"),
    columns: &[("resource", "BLOB", true, true), ("fence", "INTEGER", true, false)],
};

impl Table {
    /// Makes the table where there is none, and checks its shape.
    pub(crate) async fn ensure(&self, connection: &mut SqliteConnection) -> Result<(), Shape> {
        if self.shape(connection).await?.is_empty() {
            sqlx::query(self.ddl).fetch_all(&mut *connection).await?;
        }
        let found = self.shape(connection).await?;
        let same = found.len() == self.columns.len()
            && found.iter().zip(self.columns).all(|(found, (name, kind, not_null, key))| {
                (found.0.as_str(), found.1.as_str(), found.2, found.3) == (*name, *kind, *not_null, *key)
            });
        if !same || !self.is_strict(connection).await? {
            return Err(Shape::Wrong(self.mismatch()));
        }
        Ok(())
    }

    async fn shape(&self, connection: &mut SqliteConnection) -> sqlx::Result<Vec<(String, String, bool, bool)>> {
        let sql = "SELECT name, type, \"notnull\", pk FROM pragma_table_info(?1) ORDER BY cid";
        let rows = sqlx::query(sql).bind(self.name).fetch_all(connection).await?;
        rows.iter()
            .map(|row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, row.try_get::<i64, _>(3)? == 1)))
            .collect()
    }

    async fn is_strict(&self, connection: &mut SqliteConnection) -> sqlx::Result<bool> {
        let sql = "SELECT type = 'table' AND strict FROM pragma_table_list WHERE schema = 'main' AND name = ?1";
        let rows = sqlx::query(sql).bind(self.name).fetch_all(connection).await?;
        rows.first().map_or(Ok(false), |row| row.try_get(0))
    }

    fn mismatch(&self) -> Failure {
        let message = format!(
            "`{}` is not the table that this version needs: move it away while no lock is held, or name another file; \
             it is made by: {}",
            self.name,
            self.ddl.trim()
        );
        Failure::new(ErrorKind::InvalidConfig, message)
    }
}

/// Why the tables cannot be used.
pub(crate) enum Shape {
    Wrong(Failure),
    Failed(sqlx::Error),
}

impl From<sqlx::Error> for Shape {
    fn from(cause: sqlx::Error) -> Self {
        Self::Failed(cause)
    }
}

impl From<Shape> for Failure {
    fn from(shape: Shape) -> Self {
        match shape {
            Shape::Wrong(failure) => failure,
            Shape::Failed(cause) => Self::of(cause),
        }
    }
}

/// Makes and verifies what the engine needs; the version first, so that nothing is added to a foreign layout.
pub(crate) async fn ensure(connection: &mut SqliteConnection) -> Result<(), Shape> {
    META.ensure(connection).await?;
    let mut layout = read_layout(connection).await?;
    if layout.is_none() {
        let sql = "INSERT INTO fencelock_meta (key, value) VALUES ('layout', ?1) ON CONFLICT (key) DO NOTHING";
        sqlx::query(sql).bind(LAYOUT).fetch_all(&mut *connection).await?;
        layout = read_layout(connection).await?;
    }
    if layout != Some(LAYOUT) {
        let found = layout.unwrap_or_default();
        let message = format!(
            "the file's layout is version {found}, and this program's is {LAYOUT}: two versions that disagree must not \
             both lock; use one version, or another file"
        );
        return Err(Shape::Wrong(Failure::new(ErrorKind::Refused, message)));
    }
    LOCKS.ensure(connection).await?;
    VOIDS.ensure(connection).await
}

async fn read_layout(connection: &mut SqliteConnection) -> sqlx::Result<Option<i64>> {
    let rows = sqlx::query("SELECT value FROM fencelock_meta WHERE key = 'layout'").fetch_all(connection).await?;
    rows.first().map(|row| row.try_get(0)).transpose()
}
