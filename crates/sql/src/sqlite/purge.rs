//! Dropping rows that nobody has used for long.
//!
//! A few at a time: whoever writes has the file to itself meanwhile. After each the file is left to others for as long as
//! that took, since nobody who finds it taken is told when it is not.

use super::failure::Failure;
use super::frame::unix_now;
use super::store::Store;
use fencelock_core::Result;
use sqlx::Row as _;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The least that others have the file to themselves between two statements.
const LEAST_PAUSE: Duration = Duration::from_millis(2);

impl Store {
    /// First a look at all, a few at a time; then the floor, above every token that may go; then the rows.
    pub(super) async fn purge_rows(&self, idle: i64) -> Result<u64> {
        let (now, frame) = (self.frame().now(&self.opening.config.clock), self.frame().id());
        let (expired, granted) = (now.saturating_sub(idle), unix_now().saturating_sub(idle));
        let (mut windows, mut floor, mut after) = (Vec::new(), None, Vec::new());
        loop {
            let query =
                sqlx::query(include_str!("sql/window.sql")).bind(expired).bind(frame).bind(granted).bind(&after);
            let rows = self.commands.seat().await?.rows(query).await.map_err(told)?;
            let Some(row) = rows.first() else { break };
            let read = || Ok::<_, sqlx::Error>((row.try_get::<Option<Vec<u8>>, _>("upto")?, row.try_get("newest")?));
            let (upto, newest): (_, Option<i64>) = read().map_err(|e| told(Failure::of(e)))?;
            let Some(upto) = upto else { break };
            if newest.is_some() {
                windows.push((after, upto.clone()));
            }
            floor = floor.max(newest);
            after = upto;
        }
        let Some(floor) = floor else { return Ok(0) };
        // One writer at a time, and every new name is one: after this nothing can start below the floor.
        let query = sqlx::query(include_str!("sql/floor.sql")).bind(floor).bind(frame);
        self.commands.seat().await?.rows(query).await.map_err(told)?;
        let mut dropped = 0;
        for (after, upto) in windows {
            let query = sqlx::query(include_str!("sql/purge.sql")).bind(expired).bind(frame).bind(granted);
            let mut seat = self.commands.seat().await?;
            let began = Instant::now();
            let rows = seat.rows(query.bind(after).bind(upto)).await.map_err(told)?;
            drop(seat);
            dropped += u64::try_from(rows.len()).unwrap_or(u64::MAX);
            sleep(began.elapsed().max(LEAST_PAUSE)).await;
        }
        Ok(dropped)
    }
}

fn told(failure: Failure) -> fencelock_core::Error {
    failure.error.with_operation("purge")
}
