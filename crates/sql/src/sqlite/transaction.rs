//! Locks inside a transaction of the caller's own.

use super::failure::Failure;
use crate::engine::{Kind, SqlLock};
use crate::transaction::{AcquireIn, TransactionHold, other_database};
use async_trait::async_trait;
use fencelock_core::{ClaimId, LockName, Result};
use sqlx::{Row as _, Sqlite, Transaction};

#[async_trait]
impl AcquireIn<Sqlite> for SqlLock {
    async fn acquire_in(
        &self,
        transaction: &mut Transaction<'_, Sqlite>,
        name: &str,
    ) -> Result<Option<TransactionHold>> {
        #[allow(irrefutable_let_patterns, reason = "with this database alone it is")]
        let Kind::Sqlite(store) = self.kind() else { return Err(other_database(self.engine_name())) };
        let name = LockName::new(name)?;
        let id = ClaimId::random()?.to_bytes();
        let (now, unix, least) = store.clocks();
        let query = sqlx::query(include_str!("sql/lock.sql"))
            .bind(name.as_str().as_bytes())
            .bind(id.as_slice())
            .bind(least)
            .bind(now)
            .bind(store.frame().id())
            .bind("a transaction")
            .bind(unix);
        let told = |e| Failure::of(e).error.with_operation("acquire_in").with_name(&name);
        let rows = query.fetch_all(&mut **transaction).await.map_err(told)?;
        let token = rows.first().map(|row| row.try_get(0)).transpose().map_err(told)?;
        Ok(token.map(|token| TransactionHold::new(token, Some(name.clone()))))
    }
}
