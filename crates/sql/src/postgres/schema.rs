//! The tables: made where they may be, and verified at every connect.

use super::failure::failure;
use super::statement::Statement;
use crate::failure::{Cause, Failure};
use crate::server::quoted;
use fencelock_core::{ClaimId, ErrorKind};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Executor as _, Row as _};
use std::time::Duration;

/// Versions of the layout that differ must not lock in one table.
const LAYOUT: i64 = 1;
/// How often a table is looked for again that another client is making.
const PATIENCE: u32 = 20;

type Column = (&'static str, &'static str, bool, bool);

pub(crate) struct Table {
    pub(crate) name: String,
    ddl: String,
    /// Name, type, NOT NULL, and whether it is the primary key.
    columns: &'static [Column],
}

const META: &[Column] = &[("key", "text", true, true), ("value", "bigint", true, false)];
const VOIDS: &[Column] = &[("claim_id", "bytea", true, true), ("expires_at", "bigint", true, false)];
const FENCES: &[Column] = &[("resource", "bytea", true, true), ("fence", "bigint", true, false)];
const LOCKS: &[Column] = &[
    ("name", "bytea", true, true),
    ("claim_id", "bytea", true, false),
    ("token", "bigint", true, false),
    ("expires_at", "bigint", true, false),
    ("ttl", "bigint", true, false),
    ("delay", "bigint", true, false),
    ("waited", "boolean", true, false),
    ("holder", "text", true, false),
    ("note", "text", false, false),
    ("acquired_at", "bigint", true, false),
];

/// The tables of one lock table's name.
pub(crate) struct Schema {
    locks: Table,
    voids: Table,
    meta: Table,
}

impl Schema {
    pub(crate) fn new(table: &str) -> Self {
        let (voids, meta) = (format!("{table}_voids"), format!("{table}_meta"));
        Self {
            locks: Table::new(table.to_owned(), "{locks}", include_str!("sql/locks.sql"), LOCKS),
            voids: Table::new(voids, "{voids}", include_str!("sql/voids.sql"), VOIDS),
            meta: Table::new(meta, "{meta}", include_str!("sql/meta.sql"), META),
        }
    }

    pub(crate) fn table(&self) -> &str {
        &self.locks.name
    }

    /// A statement on these tables.
    pub(crate) fn statement(&self, sql: &str) -> Statement {
        let sql = sql
            .replace("{now}", include_str!("sql/now.sql").trim())
            .replace("{locks}", &quoted(&self.locks.name, '"'))
            .replace("{voids}", &quoted(&self.voids.name, '"'));
        Statement::new(sql)
    }

    /// Makes and verifies what the engine needs; the version first, so that nothing is added to a foreign layout.
    pub(crate) async fn ensure(&self, connection: &mut PgConnection, create: bool) -> Result<(), Failure> {
        let tables = [&self.meta, &self.locks, &self.voids];
        let statements: Vec<_> = tables.iter().map(|table| format!("{};", table.ddl)).collect();
        let statements = format!("{}\n{};", statements.join("\n"), self.layout_ddl());
        let mut shapes = Shape::of(connection, &tables).await?;
        for (n, table) in tables.into_iter().enumerate() {
            if shapes.get(n).is_none_or(|shape| !shape.is_there()) {
                make(connection, table, create, &statements).await?;
                shapes = Shape::of(connection, &tables).await?;
            }
            if n == 0 {
                let mut version = self.layout(connection).await?;
                if version.is_none() {
                    run(connection, self.layout_ddl()).await.map_err(failure)?;
                    version = self.layout(connection).await?;
                }
                judge(version)?;
            }
            table.verify(shapes.get(n))?;
        }
        Ok(())
    }

    pub(crate) async fn check_layout(&self, connection: &mut PgConnection) -> Result<(), Failure> {
        judge(self.layout(connection).await?)
    }

    /// The name of a channel that is known to those alone who may read the tables: anybody who may connect may send
    /// notices, to any channel whose name is known. None if there is none and none may be made.
    pub(crate) async fn secret(&self, connection: &mut PgConnection) -> Result<Option<String>, Failure> {
        let meta = quoted(&self.meta.name, '"');
        for may_make in [true, false] {
            let sql = format!("SELECT value FROM {meta} WHERE key IN ('channel_1', 'channel_2') ORDER BY key");
            let rows = connection.fetch_all(sqlx::raw_sql(AssertSqlSafe(sql))).await.map_err(failure)?;
            let values = rows.iter().map(|row| row.try_get(0)).collect::<sqlx::Result<Vec<i64>>>().map_err(failure)?;
            if let [one, other] = *values {
                return Ok(Some(format!("fencelock_{one:016x}{other:016x}")));
            }
            if may_make {
                let random = ClaimId::random().map_err(|e| Failure::new(e.kind(), e.message().to_owned()))?;
                let [one, other] = halves(random);
                let sql = format!(
                    "INSERT INTO {meta} (key, value) VALUES ('channel_1', '{one}'), ('channel_2', '{other}') \
                     ON CONFLICT (key) DO NOTHING"
                );
                // Where it may not be made, by whoever it is or on a standby, releases tell and hand nothing on.
                if let Err(error) = run(connection, sql).await.map_err(failure) {
                    tracing::debug!(target: "fencelock", error = %error.error, "no channel for those who wait");
                }
            }
        }
        Ok(None)
    }

    fn layout_ddl(&self) -> String {
        let meta = quoted(&self.meta.name, '"');
        format!("INSERT INTO {meta} (key, value) VALUES ('layout', {LAYOUT}) ON CONFLICT (key) DO NOTHING")
    }

    async fn layout(&self, connection: &mut PgConnection) -> Result<Option<i64>, Failure> {
        let sql = format!("SELECT value FROM {} WHERE key = 'layout'", quoted(&self.meta.name, '"'));
        let rows = connection.fetch_all(sqlx::raw_sql(AssertSqlSafe(sql))).await.map_err(failure)?;
        rows.first().map(|row| row.try_get(0)).transpose().map_err(failure)
    }
}

fn halves(id: ClaimId) -> [i64; 2] {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = id.to_bytes();
    [i64::from_be_bytes([a, b, c, d, e, f, g, h]), i64::from_be_bytes([i, j, k, l, m, n, o, p])]
}

fn judge(version: Option<i64>) -> Result<(), Failure> {
    if version == Some(LAYOUT) {
        return Ok(());
    }
    let found = version.map_or_else(|| "not there".to_owned(), |version| format!("version {version}"));
    let message = format!(
        "the layout of the tables is {found}, and this program's is version {LAYOUT}: two versions that disagree must \
         not both lock; use one version, or another `table`"
    );
    Err(Failure::new(ErrorKind::Refused, message))
}

async fn run(connection: &mut PgConnection, sql: String) -> sqlx::Result<()> {
    connection.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.map(drop)
}

/// Makes a table, beside others who may do the same.
pub(crate) async fn make(
    connection: &mut PgConnection,
    table: &Table,
    create: bool,
    statements: &str,
) -> Result<(), Failure> {
    let told = |kind, why: &str| {
        let message = format!("`{}` does not exist and {why}; whoever may runs:\n{statements}", table.name);
        Failure::new(kind, message)
    };
    if !create {
        return Err(told(ErrorKind::InvalidConfig, "is not to be created"));
    }
    for _ in 0..PATIENCE {
        match run(connection, table.ddl.clone()).await.map_err(failure) {
            Ok(()) => return Ok(()),
            Err(failure) if failure.error.kind() == ErrorKind::Denied => {
                return Err(told(ErrorKind::Denied, "this user may not create it"));
            }
            Err(failure) if failure.cause == Cause::NoTable => {
                return Err(told(ErrorKind::InvalidConfig, "neither does its schema"));
            }
            // Two who make the same table at once meet in the catalogue.
            Err(failure) if failure.reopen => return Err(failure),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
        if Shape::of(connection, &[table]).await?.iter().all(Shape::is_there) {
            return Ok(());
        }
    }
    Err(told(ErrorKind::Engine, "cannot be created"))
}

impl Table {
    fn new(name: String, place: &str, ddl: &str, columns: &'static [Column]) -> Self {
        let ddl = ddl.trim().replace(place, &quoted(&name, '"'));
        Self { name, ddl, columns }
    }

    pub(crate) fn fences(name: &str) -> Self {
        Self::new(name.to_owned(), "{fences}", include_str!("sql/fences.sql"), FENCES)
    }

    pub(crate) fn ddl(&self) -> &str {
        &self.ddl
    }

    /// Whether it has the shape that is needed.
    pub(crate) fn verify(&self, shape: Option<&Shape>) -> Result<(), Failure> {
        let same = shape.is_some_and(|shape| {
            shape.columns.len() == self.columns.len()
                && shape.columns.iter().zip(self.columns).all(|(found, (name, kind, not_null, key))| {
                    (found.0.as_str(), found.1.as_str(), found.2, found.3) == (*name, *kind, *not_null, *key)
                })
        });
        if same && shape.is_some_and(|shape| shape.lasting) {
            return Ok(());
        }
        let message = format!(
            "`{}` is not the table that this version needs: move it away while no lock is held, or name another \
             `table`; it is made by:\n{};",
            self.name, self.ddl
        );
        Err(Failure::new(ErrorKind::InvalidConfig, message))
    }
}

/// What the server says of a table.
pub(crate) struct Shape {
    columns: Vec<(String, String, bool, bool)>,
    /// Whether it is a table that is written to the log.
    lasting: bool,
}

impl Shape {
    /// Those of the tables, in their order, by one statement.
    pub(crate) async fn of(connection: &mut PgConnection, tables: &[&Table]) -> Result<Vec<Self>, Failure> {
        // Names are plain: no letter of them ends a text.
        let names: Vec<_> = tables.iter().map(|table| format!("'{}'", quoted(&table.name, '"'))).collect();
        let sql = include_str!("sql/shape.sql").replace("{tables}", &names.join(", "));
        let rows = connection.fetch_all(sqlx::raw_sql(AssertSqlSafe(sql))).await.map_err(failure)?;
        let mut shapes: Vec<_> = tables.iter().map(|_| Self { columns: Vec::new(), lasting: true }).collect();
        for row in rows {
            let read = (|| {
                let column = (row.try_get(1)?, row.try_get(2)?, row.try_get(3)?, row.try_get(4)?);
                Ok((row.try_get::<i64, _>(0)?, column, row.try_get::<bool, _>(5)?))
            })();
            let (of, column, lasting) = read.map_err(failure)?;
            if let Some(shape) = usize::try_from(of - 1).ok().and_then(|of| shapes.get_mut(of)) {
                shape.columns.push(column);
                shape.lasting &= lasting;
            }
        }
        Ok(shapes)
    }

    pub(crate) fn is_there(&self) -> bool {
        !self.columns.is_empty()
    }
}
