//! Locks inside a transaction of the caller's own.

use super::failure::failure;
use super::statement::Value;
use crate::engine::{Kind, SqlLock};
use crate::transaction::{AcquireIn, TransactionHold, other_database};
use async_trait::async_trait;
use fencelock_core::{ClaimId, LockName, Result};
use sqlx::{MySql, Row as _, Transaction};

#[async_trait]
impl AcquireIn<MySql> for SqlLock {
    async fn acquire_in(
        &self,
        transaction: &mut Transaction<'_, MySql>,
        name: &str,
    ) -> Result<Option<TransactionHold>> {
        #[allow(irrefutable_let_patterns, reason = "with this database alone it is")]
        let Kind::MySql(store) = self.kind() else { return Err(other_database(self.engine_name())) };
        let name = LockName::new(name)?;
        let id = ClaimId::random()?.to_bytes();
        let values = vec![
            Value::Bytes(name.as_str().as_bytes()),
            Value::Bytes(&id),
            Value::Number(store.least_token()),
            Value::Text(Some("a transaction")),
        ];
        let told = |e| failure(e).at("mysql", "acquire_in").error.with_name(&name);
        // Neither statement tells by itself whether the row was taken, and the second reads the newest row too.
        let (lock, locked) = store.lock_statements();
        lock.with(values.clone()).run(transaction).await.map_err(told)?;
        let rows = locked.with(values).rows(transaction).await.map_err(told)?;
        let token = rows.first().map(|row| row.try_get(0)).transpose().map_err(told)?;
        Ok(token.map(|token| TransactionHold::new(token, None)))
    }
}
