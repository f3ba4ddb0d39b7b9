//! The renewals of many holds in one statement.

use super::failure::failure;
use super::opening::Opening;
use super::statement::{Statement, Value};
use crate::micros::in_micros;
use crate::pool::Pool;
use crate::renewals::{Renewed, Renews, Wish};
use async_trait::async_trait;
use fencelock_core::Result;
use sqlx::Row as _;
use std::collections::HashMap;

/// A connection of its own, since a renewal must not wait behind acquires.
pub(crate) struct Renewer {
    pool: Pool<Opening>,
    statement: Statement,
}

impl Renewer {
    pub(crate) fn new(pool: Pool<Opening>) -> Self {
        let statement = pool.opens().schema.statement(include_str!("sql/renew.sql"));
        Self { pool, statement }
    }
}

#[async_trait]
impl Renews for Renewer {
    fn engine(&self) -> &'static str {
        "postgres"
    }

    async fn renew(&self, batch: &[Wish]) -> Result<Vec<Renewed>> {
        let names = batch.iter().map(|wish| wish.claim.name().as_str().as_bytes().to_vec()).collect();
        let claims = batch.iter().map(|wish| wish.claim.id().to_bytes().to_vec()).collect();
        let ttls = batch.iter().map(|wish| in_micros(wish.server_ttl)).collect();
        let tokens = batch.iter().map(|wish| wish.token.as_i64()).collect();
        let values = vec![
            Value::ManyBytes(names),
            Value::ManyBytes(claims),
            Value::ManyNumbers(ttls),
            Value::ManyNumbers(tokens),
        ];
        let ready = self.pool.opens().ready(&self.statement, values);
        let rows = self.pool.seat().await?.send(ready).await?;
        let mut outcomes: HashMap<Vec<u8>, Renewed> = HashMap::new();
        for row in &rows {
            let read = || Ok((row.try_get("claim_id")?, row.try_get("renewed")?, row.try_get("alive")?));
            let (claim, renewed, alive): (Vec<u8>, bool, bool) = read().map_err(failure)?;
            let outcome = match (renewed, alive) {
                (true, _) => Renewed::Yes,
                (false, true) => Renewed::Locked,
                (false, false) => Renewed::No,
            };
            outcomes.insert(claim, outcome);
        }
        let of = |wish: &Wish| outcomes.get(wish.claim.id().to_bytes().as_slice()).copied().unwrap_or(Renewed::Locked);
        Ok(batch.iter().map(of).collect())
    }
}
