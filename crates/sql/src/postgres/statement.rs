//! Statements: prepared, or with their values in them where a pooler is in between.

use super::failure::failure;
use super::opening::LOCK_WAIT;
use crate::failure::Failure;
use crate::pool::Sends;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArguments, PgConnection, PgRow};
use sqlx::{Arguments as _, AssertSqlSafe, Postgres, SqlStr};
use std::fmt::Write as _;
use std::sync::Arc;

/// One value of a statement.
#[derive(Clone, Debug)]
pub(crate) enum Value<'v> {
    Bytes(&'v [u8]),
    Text(Option<&'v str>),
    Number(i64),
    Flag(bool),
    ManyBytes(Vec<Vec<u8>>),
    ManyNumbers(Vec<i64>),
}

impl Value<'_> {
    /// How many bytes it takes on its way, or about so many.
    fn size(&self) -> usize {
        let bytes = match self {
            Self::Bytes(value) => value.len(),
            Self::Text(value) => value.map_or(0, str::len),
            Self::Number(_) => 8,
            Self::Flag(_) => 1,
            Self::ManyBytes(values) => values.iter().map(|value| 4 + value.len()).sum::<usize>() + 20,
            Self::ManyNumbers(values) => values.len() * 12 + 20,
        };
        4 + bytes
    }
}

/// The text of a statement on the tables of one client.
#[derive(Clone, Debug)]
pub(crate) struct Statement(Arc<str>);

impl Statement {
    pub(crate) fn new(sql: impl Into<Arc<str>>) -> Self {
        Self(sql.into())
    }

    fn sql(&self) -> SqlStr {
        use sqlx::SqlSafeStr as _;
        AssertSqlSafe(Arc::clone(&self.0)).into_sql_str()
    }

    /// The statement with its values written into it: numbers, and everything
    /// else in hexadecimal, so that nothing in a value can end it.
    pub(crate) fn with_values(&self, values: &[Value<'_>]) -> String {
        let mut sql = self.0.to_string();
        // From the last, so that `$1` is not found in `$10`.
        for (n, value) in values.iter().enumerate().rev() {
            sql = sql.replace(&format!("${}", n + 1), &literal(value));
        }
        sql
    }
}

fn literal(value: &Value<'_>) -> String {
    let bytes = |bytes: &[u8]| {
        let mut text = String::from("'\\x");
        for byte in bytes {
            let _ = write!(text, "{byte:02x}");
        }
        text.push_str("'::bytea");
        text
    };
    match value {
        Value::Bytes(value) => bytes(value),
        Value::Text(None) => "NULL::text".to_owned(),
        Value::Text(Some(value)) => format!("convert_from({}, 'UTF8')", bytes(value.as_bytes())),
        // Between quotes, since the smallest is read as the negative of what is too large.
        Value::Number(value) => format!("('{value}'::bigint)"),
        Value::Flag(value) => value.to_string(),
        Value::ManyBytes(values) => {
            let values: Vec<_> = values.iter().map(|value| bytes(value)).collect();
            format!("ARRAY[{}]::bytea[]", values.join(","))
        }
        Value::ManyNumbers(values) => {
            let values: Vec<_> = values.iter().map(ToString::to_string).collect();
            format!("ARRAY[{}]::bigint[]", values.join(","))
        }
    }
}

/// A statement with its values, ready to be sent.
pub(crate) struct Ready<'s, 'v> {
    pub(crate) statement: &'s Statement,
    pub(crate) values: Vec<Value<'v>>,
    pub(crate) way: Way,
}

/// How a statement is sent.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    /// Prepared: the session stays ours, so that it is found again.
    Prepared,
    /// With its values in it, as part of whatever transaction is open.
    Plain,
    /// The same in a transaction of its own, which the server is told to end after so
    /// many milliseconds: nothing may be set in a session that is handed round.
    Bounded(u128),
}

impl Ready<'_, '_> {
    /// All rows are asked for: of a single one the end, and so a failed commit, would not be waited for.
    pub(crate) async fn rows(&self, connection: &mut PgConnection) -> sqlx::Result<Vec<PgRow>> {
        use sqlx::Executor as _;
        let plain = match self.way {
            Way::Prepared => None,
            Way::Plain => Some(self.statement.with_values(&self.values)),
            // Statements that are sent in one message are one transaction.
            Way::Bounded(limit) => {
                let wait = LOCK_WAIT.as_millis();
                let bounds = format!("SET LOCAL statement_timeout = {limit}; SET LOCAL lock_timeout = {wait}");
                Some(format!("{bounds}; {}", self.statement.with_values(&self.values)))
            }
        };
        if let Some(sql) = plain {
            return connection.fetch_all(sqlx::raw_sql(AssertSqlSafe(sql))).await;
        }
        let arguments = self.arguments().map_err(sqlx::Error::Encode)?;
        sqlx::query_with::<Postgres, _>(self.statement.sql(), arguments).fetch_all(connection).await
    }

    /// In one piece: a query that is given them one by one moves with each, and they grow with each.
    fn arguments(&self) -> Result<PgArguments, BoxDynError> {
        let mut arguments = PgArguments::default();
        arguments.reserve(self.values.len(), self.values.iter().map(Value::size).sum());
        for value in &self.values {
            match value {
                Value::Bytes(value) => arguments.add(*value),
                Value::Text(value) => arguments.add(*value),
                Value::Number(value) => arguments.add(*value),
                Value::Flag(value) => arguments.add(*value),
                Value::ManyBytes(values) => arguments.add(values.as_slice()),
                Value::ManyNumbers(values) => arguments.add(values.as_slice()),
            }?;
        }
        Ok(arguments)
    }
}

impl Sends<PgConnection> for Ready<'_, '_> {
    type Answer = Vec<PgRow>;

    async fn send(&self, connection: &mut PgConnection) -> Result<Vec<PgRow>, Failure> {
        self.rows(connection).await.map_err(failure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_cannot_end_the_statement() {
        let statement = Statement::new("SELECT $1, $10, $2, $3");
        let mut values = vec![Value::Text(Some("'; DROP TABLE x; --$2")), Value::Number(i64::MIN), Value::Bytes(b"'")];
        values.extend((0..7).map(Value::Number));
        let sql = statement.with_values(&values);
        assert_eq!(
            sql,
            "SELECT convert_from('\\x273b2044524f50205441424c4520783b202d2d2432'::bytea, 'UTF8'), ('6'::bigint), ('-9223372036854775808'::bigint), '\\x27'::bytea"
        );
    }
}
