//! Dropping rows that nobody has used for long.
//!
//! Every statement looks at a few rows, since the server may let none of ours run for long.

use super::failure::failure;
use super::statement::Value;
use super::store::{ROWS, Store};
use crate::failure::Cause;
use fencelock_core::Result;
use sqlx::Row as _;

/// Names, from after the first to the second.
type Window = (Vec<u8>, Vec<u8>);

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
        self.run("purge", &self.statements.floor, vec![Value::Number(floor)]).await?;
        // An acquire that began before the floor was raised may not see it; by then it is answered.
        tokio::time::sleep(self.opening.config.server.request_timeout).await;
        let mut dropped = 0;
        for window in windows {
            dropped += self.drop_idle(idle, floor, &window).await?;
        }
        Ok(dropped)
    }

    /// The last of the next few names, and the largest token among them that may go.
    async fn window(&self, after: &[u8], idle: i64) -> Result<Option<(Vec<u8>, Option<i64>)>> {
        let values = vec![Value::Bytes(after), Value::Number(idle)];
        let rows = self.rows("purge", &self.statements.window, values).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let read = || Ok::<_, sqlx::Error>((row.try_get::<Option<Vec<u8>>, _>("upto")?, row.try_get("newest")?));
        let (upto, newest) = read().map_err(|e| failure(e).at("mysql", "purge"))?;
        Ok(upto.map(|upto| (upto, newest)))
    }

    async fn drop_idle(&self, idle: i64, floor: i64, (after, upto): &Window) -> Result<u64> {
        let bounds = vec![Value::Number(idle), Value::Number(floor), Value::Bytes(after), Value::Bytes(upto)];
        let names = self.rows("purge", &self.statements.idle, bounds).await?;
        let names: sqlx::Result<Vec<Vec<u8>>> = names.iter().map(|row| row.try_get(0)).collect();
        let names = names.map_err(|e| failure(e).at("mysql", "purge"))?;
        let mut dropped = 0;
        for names in names.chunks(ROWS) {
            let mut values = vec![Value::Number(idle), Value::Number(floor)];
            values.extend((0..ROWS).filter_map(|n| names.get(n).or(names.last())).map(|name| Value::Bytes(name)));
            match self.commands.seat().await?.send(self.statements.purge.with(values)).await {
                Ok(done) => dropped += done.rows_affected(),
                // A transaction has one of them to itself, so it is in use; they stay for the next time.
                Err(failure) if failure.cause == Cause::Locked => {}
                Err(failure) => return Err(failure.at("mysql", "purge").into()),
            }
        }
        Ok(dropped)
    }
}
