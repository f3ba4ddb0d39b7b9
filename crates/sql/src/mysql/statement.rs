//! Statements, and the order in which their values stand in them.

use super::failure::failure;
use crate::failure::Failure;
use crate::pool::Sends;
use sqlx::mysql::{MySqlArguments, MySqlConnection, MySqlQueryResult, MySqlRow};
use sqlx::query::Query;
use sqlx::{Arguments as _, AssertSqlSafe, MySql, SqlSafeStr as _};
use std::sync::Arc;

/// One value of a statement.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value<'v> {
    Bytes(&'v [u8]),
    Text(Option<&'v str>),
    Number(i64),
}

/// The text of a statement. Its files number their values, as `$1`; the server
/// knows only one `?` after the other.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    sql: Arc<str>,
    order: Arc<[usize]>,
}

impl Statement {
    pub(crate) fn new(text: &str) -> Self {
        let lines: Vec<_> = text.lines().filter(|line| !line.trim_start().starts_with("--")).collect();
        let text = lines.join("\n");
        let mut parts = text.split('$');
        let mut sql = parts.next().unwrap_or_default().to_owned();
        let mut order = Vec::new();
        for part in parts {
            let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
            let digits = part.strip_suffix(rest).unwrap_or_default();
            order.push(digits.parse::<usize>().unwrap_or(1).saturating_sub(1));
            sql.push('?');
            sql.push_str(rest);
        }
        Self { sql: sql.into(), order: order.into() }
    }

    pub(crate) fn with<'s, 'v>(&'s self, values: Vec<Value<'v>>) -> Ready<'s, 'v> {
        Ready { statement: self, values }
    }
}

/// A statement with its values, to be sent for its effect.
pub(crate) struct Ready<'s, 'v> {
    statement: &'s Statement,
    values: Vec<Value<'v>>,
}

/// The same for its rows.
pub(crate) struct Asks<'s, 'v>(pub(crate) Ready<'s, 'v>);

impl Value<'_> {
    /// How many bytes it takes on its way, or about so many.
    fn size(&self) -> usize {
        match self {
            Self::Bytes(value) => value.len() + 3,
            Self::Text(value) => value.map_or(0, str::len) + 3,
            Self::Number(_) => 8,
        }
    }
}

impl Ready<'_, '_> {
    /// With its values in one piece: a query that is given them one by one moves with each, and they grow with each.
    fn query(&self) -> sqlx::Result<Query<'static, MySql, MySqlArguments>> {
        let mut arguments = MySqlArguments::default();
        let order = &self.statement.order;
        let of = |n: &usize| self.values.get(*n);
        arguments.reserve(order.len(), order.iter().filter_map(of).map(Value::size).sum());
        for n in order.iter() {
            match of(n) {
                Some(Value::Bytes(value)) => arguments.add(*value),
                Some(Value::Text(value)) => arguments.add(*value),
                Some(Value::Number(value)) => arguments.add(*value),
                None => arguments.add(None::<i64>),
            }
            .map_err(sqlx::Error::Encode)?;
        }
        Ok(sqlx::query_with(AssertSqlSafe(Arc::clone(&self.statement.sql)).into_sql_str(), arguments))
    }

    pub(crate) async fn run(&self, connection: &mut MySqlConnection) -> sqlx::Result<MySqlQueryResult> {
        self.query()?.execute(connection).await
    }

    /// All rows are asked for: of a single one the end would not be waited for.
    pub(crate) async fn rows(&self, connection: &mut MySqlConnection) -> sqlx::Result<Vec<MySqlRow>> {
        self.query()?.fetch_all(connection).await
    }
}

impl Sends<MySqlConnection> for Ready<'_, '_> {
    type Answer = MySqlQueryResult;

    async fn send(&self, connection: &mut MySqlConnection) -> Result<MySqlQueryResult, Failure> {
        self.run(connection).await.map_err(failure)
    }
}

impl Sends<MySqlConnection> for Asks<'_, '_> {
    type Answer = Vec<MySqlRow>;

    async fn send(&self, connection: &mut MySqlConnection) -> Result<Vec<MySqlRow>, Failure> {
        self.0.rows(connection).await.map_err(failure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_put_in_their_order() {
        let statement = Statement::new("-- $1 a, $2 b\nSELECT $2, $10 + $1\n  -- $7\nFROM t");
        assert_eq!(&*statement.sql, "SELECT ?, ? + ?\nFROM t");
        assert_eq!(&*statement.order, [1, 9, 0]);
    }
}
