//! Dropping rows that nobody has used for long.
//!
//! Every statement looks at a few rows, since the server lets none of ours run for long.

use super::failure::failure;
use super::statement::Value;
use super::store::{Store, Whose};
use fencelock_core::{Error, ErrorKind, Result};
use sqlx::Row as _;

impl Store {
    /// First a look at all, a few at a time; then the floor, above every token that may go; then the rows.
    pub(super) async fn purge_rows(&self, idle: i64) -> Result<u64> {
        let (mut windows, mut floor, mut after) = (Vec::new(), None, Vec::new());
        while let Some((upto, newest)) = self.window(&after, idle).await? {
            if newest.is_some() {
                windows.push((after, upto.clone()));
            }
            floor = floor.max(newest);
            after = upto;
        }
        let Some(floor) = floor else { return Ok(0) };
        self.rows("purge", &self.statements.floor, vec![Value::Number(floor)]).await?;
        // An acquire that began before the floor was raised may not see it.
        let limit = self.opening.config.server.request_timeout.saturating_mul(5);
        if !self.older_have_ended("purge", Whose::Everybodys, limit).await? {
            let message =
                "a transaction that writes to the lock table has been open since before: purge when it has ended";
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        let mut dropped = 0;
        for (after, upto) in windows {
            let values = vec![Value::Number(idle), Value::Bytes(&after), Value::Bytes(&upto)];
            let rows = self.rows("purge", &self.statements.purge, values).await?;
            dropped += u64::try_from(rows.len()).unwrap_or(u64::MAX);
        }
        Ok(dropped)
    }

    /// The last of the next few names, and the largest token among them that may go.
    async fn window(&self, after: &[u8], idle: i64) -> Result<Option<(Vec<u8>, Option<i64>)>> {
        let values = vec![Value::Bytes(after), Value::Number(idle)];
        let rows = self.rows("purge", &self.statements.window, values).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let read = || Ok::<_, sqlx::Error>((row.try_get::<Option<Vec<u8>>, _>("upto")?, row.try_get("newest")?));
        let (upto, newest) = read().map_err(|e| failure(e).at("postgres", "purge"))?;
        Ok(upto.map(|upto| (upto, newest)))
    }
}
