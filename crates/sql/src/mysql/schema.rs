//! The tables: made where they may be, and verified at every connect.

use super::failure::failure;
use super::statement::Statement;
use crate::failure::{Cause, Failure};
use crate::server::quoted;
use fencelock_core::ErrorKind;
use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Executor as _, Row as _};

/// Versions of the layout that differ must not lock in one table.
const LAYOUT: i64 = 1;

/// Name, type, length in bytes (0 if it does not matter), NOT NULL, and whether it is the primary key.
type Column = (&'static str, &'static str, i64, bool, bool);

pub(crate) struct Table {
    pub(crate) name: String,
    ddl: String,
    columns: &'static [Column],
}

const META: &[Column] = &[("name", "varbinary", 64, true, true), ("value", "bigint", 0, true, false)];
const VOIDS: &[Column] = &[("claim_id", "varbinary", 16, true, true), ("expires_at", "bigint", 0, true, false)];
const FENCES: &[Column] = &[("resource", "varbinary", 512, true, true), ("fence", "bigint", 0, true, false)];
const LOCKS: &[Column] = &[
    ("name", "varbinary", 512, true, true),
    ("claim_id", "varbinary", 17, true, false),
    ("token", "bigint", 0, true, false),
    ("expires_at", "bigint", 0, true, false),
    ("ttl", "bigint", 0, true, false),
    ("delay", "bigint", 0, true, false),
    ("holder", "mediumtext", 0, true, false),
    ("note", "mediumtext", 0, false, false),
    ("acquired_at", "bigint", 0, true, false),
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
        Statement::new(&self.fill(sql))
    }

    fn fill(&self, sql: &str) -> String {
        sql.replace("{now}", include_str!("sql/now.sql").trim())
            .replace("{locks}", &quoted(&self.locks.name, '`'))
            .replace("{voids}", &quoted(&self.voids.name, '`'))
            .replace("{meta}", &quoted(&self.meta.name, '`'))
    }

    /// Makes and verifies what the engine needs; the version first, so that nothing is added to a foreign layout.
    pub(crate) async fn ensure(&self, connection: &mut MySqlConnection, create: bool) -> Result<(), Failure> {
        let tables = [&self.meta, &self.locks, &self.voids];
        let rows = [self.fill(include_str!("sql/layout.sql")), self.fill(include_str!("sql/ground.sql"))];
        let mut statements: Vec<_> = tables.iter().map(|table| format!("{};", table.ddl)).collect();
        statements.extend(rows.iter().map(|row| format!("{};", row.trim())));
        let statements = statements.join("\n");
        let mut shapes = Shape::of(connection, &tables).await?;
        for (n, table) in tables.into_iter().enumerate() {
            if shapes.get(n).is_none_or(|shape| !shape.is_there()) {
                make(connection, table, create, &statements).await?;
                shapes = Shape::of(connection, &tables).await?;
            }
            if n == 0 {
                let mut version = self.layout(connection).await?;
                if version.is_none() {
                    run(connection, rows.first()).await.map_err(failure)?;
                    version = self.layout(connection).await?;
                }
                judge(version)?;
            }
            table.verify(shapes.get(n))?;
        }
        // The floor is there from the start: a row that is not there cannot be locked without its neighbours.
        let sql = self.fill("SELECT 1 FROM {locks} WHERE name = ''");
        if connection.fetch_all(sqlx::raw_sql(AssertSqlSafe(sql))).await.map_err(failure)?.is_empty() {
            run(connection, rows.last()).await.map_err(failure)?;
        }
        Ok(())
    }

    pub(crate) async fn check_layout(&self, connection: &mut MySqlConnection) -> Result<(), Failure> {
        judge(self.layout(connection).await?)
    }

    async fn layout(&self, connection: &mut MySqlConnection) -> Result<Option<i64>, Failure> {
        let sql = self.fill("SELECT value FROM {meta} WHERE name = 'layout'");
        let rows = connection.fetch_all(sqlx::raw_sql(AssertSqlSafe(sql))).await.map_err(failure)?;
        rows.first().map(|row| row.try_get(0)).transpose().map_err(failure)
    }
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

async fn run(connection: &mut MySqlConnection, sql: Option<&String>) -> sqlx::Result<()> {
    let sql = sql.cloned().unwrap_or_default();
    connection.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.map(drop)
}

/// Makes a table, beside others who may do the same.
pub(crate) async fn make(
    connection: &mut MySqlConnection,
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
    match run(connection, Some(&table.ddl)).await.map_err(failure) {
        Err(failure) if failure.error.kind() == ErrorKind::Denied => {
            Err(told(ErrorKind::Denied, "this user may not create it"))
        }
        Err(failure) if failure.cause == Cause::NoTable || failure.error.kind() == ErrorKind::InvalidConfig => {
            Err(told(ErrorKind::InvalidConfig, "neither does its database"))
        }
        made => made,
    }
}

impl Table {
    fn new(name: String, place: &str, ddl: &str, columns: &'static [Column]) -> Self {
        let ddl = ddl.trim().replace(place, &quoted(&name, '`'));
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
                && shape.columns.iter().zip(self.columns).all(|(found, (name, kind, length, not_null, key))| {
                    let long_enough = *length == 0 || found.2 == *length;
                    (found.0.as_str(), found.1.as_str(), long_enough, found.3, found.4)
                        == (*name, *kind, true, *not_null, *key)
                })
        });
        if same && shape.is_some_and(|shape| shape.transactional) {
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
    columns: Vec<(String, String, i64, bool, bool)>,
    /// Whether it is a table of `InnoDB`.
    transactional: bool,
}

impl Shape {
    /// Those of the tables, in their order, by one statement.
    pub(crate) async fn of(connection: &mut MySqlConnection, tables: &[&Table]) -> Result<Vec<Self>, Failure> {
        let text: Vec<_> = include_str!("sql/shape.sql").lines().filter(|line| !line.starts_with("--")).collect();
        let text = text.join("\n");
        let each: Vec<_> = tables
            .iter()
            .enumerate()
            .map(|(n, table)| {
                // A name is plain: no letter of it ends a text.
                let (schema, name) = match table.name.split_once('.') {
                    Some((schema, name)) => (format!("'{schema}'"), name),
                    None => ("DATABASE()".to_owned(), &*table.name),
                };
                let text = text.replace("{n}", &n.to_string()).replace("{schema}", &schema);
                text.replace("{table}", &format!("'{name}'"))
            })
            .collect();
        let sql = format!("{}\nORDER BY 1, place", each.join("\nUNION ALL\n"));
        let rows = connection.fetch_all(sqlx::raw_sql(AssertSqlSafe(sql))).await.map_err(failure)?;
        let mut shapes: Vec<_> = tables.iter().map(|_| Self { columns: Vec::new(), transactional: true }).collect();
        for row in rows {
            let read = (|| {
                let (of, not_null, key): (i64, i64, i64) = (row.try_get(0)?, row.try_get(4)?, row.try_get(5)?);
                let column = (row.try_get(1)?, row.try_get(2)?, row.try_get(3)?, not_null != 0, key != 0);
                Ok((of, column, row.try_get::<i64, _>(6)? != 0))
            })();
            let (of, column, transactional) = read.map_err(failure)?;
            if let Some(shape) = usize::try_from(of).ok().and_then(|of| shapes.get_mut(of)) {
                shape.columns.push(column);
                shape.transactional &= transactional;
            }
        }
        Ok(shapes)
    }

    pub(crate) fn is_there(&self) -> bool {
        !self.columns.is_empty()
    }
}
