//! Locks inside a transaction of the caller's own.

use super::failure::failure;
use super::statement::{Ready, Value, Way};
use crate::engine::{Kind, SqlLock};
use crate::transaction::{AcquireIn, TransactionHold, other_database};
use async_trait::async_trait;
use fencelock_core::{ClaimId, LockName, Result};
use sqlx::{Postgres, Row as _, Transaction};

#[async_trait]
impl AcquireIn<Postgres> for SqlLock {
    async fn acquire_in(
        &self,
        transaction: &mut Transaction<'_, Postgres>,
        name: &str,
    ) -> Result<Option<TransactionHold>> {
        #[allow(irrefutable_let_patterns, reason = "with this database alone it is")]
        let Kind::Postgres(store) = self.kind() else { return Err(other_database(self.engine_name())) };
        let name = LockName::new(name)?;
        let id = ClaimId::random()?.to_bytes();
        let values = vec![
            Value::Bytes(name.as_str().as_bytes()),
            Value::Bytes(&id),
            Value::Number(store.least_token()),
            Value::Text(Some("a transaction")),
        ];
        // Not prepared: the session may be handed round, and one round trip is enough.
        let ready = Ready { statement: store.lock_statement(), values, way: Way::Plain };
        let told = |e| failure(e).at("postgres", "acquire_in").error.with_name(&name);
        let rows = ready.rows(transaction).await.map_err(told)?;
        let token = rows.first().map(|row| row.try_get(0)).transpose().map_err(told)?;
        Ok(token.map(|token| TransactionHold::new(token, None)))
    }
}
