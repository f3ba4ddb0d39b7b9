//! The renewals of many holds in one statement.

use super::bundle::{array, quoted};
use super::failure::Failure;
use super::frame::Frame;
use super::session::Session;
use crate::micros::in_micros;
use crate::renewals::{Renewed, Renews, Wish};
use async_trait::async_trait;
use fencelock_core::Result;
use sqlx::Row as _;
use std::collections::HashSet;
use std::fmt::Write as _;

/// A connection of its own, since a renewal must not wait behind acquires.
pub(crate) struct Renewer {
    session: Session,
    frame: Frame,
}

impl Renewer {
    pub(crate) fn new(session: Session, frame: Frame) -> Self {
        Self { session, frame }
    }

    /// The present is read here, just before the statement is sent: a stale one gives less time, never more.
    fn json(&self, batch: &[Wish]) -> String {
        array(batch.iter(), |json, wish| {
            quoted(json, wish.claim.name().as_str().as_bytes());
            let (now, ttl) = (self.frame.now(wish.claim.clock()), in_micros(wish.server_ttl));
            let _ = write!(json, r#","{}",{now},{ttl}"#, wish.claim.id());
        })
    }
}

#[async_trait]
impl Renews for Renewer {
    fn engine(&self) -> &'static str {
        "sqlite"
    }

    async fn renew(&self, batch: &[Wish]) -> Result<Vec<Renewed>> {
        let mut seat = self.session.seat().await?;
        let wishes = self.json(batch);
        let query = sqlx::query(include_str!("sql/renew.sql")).bind(wishes.as_str()).bind(self.frame.id());
        let rows = seat.rows(query).await?;
        let renewed: sqlx::Result<HashSet<Vec<u8>>> = rows.iter().map(|row| row.try_get(0)).collect();
        let renewed = renewed.map_err(Failure::of)?;
        let outcomes = batch.iter().map(|wish| renewed.contains(wish.claim.id().to_bytes().as_slice()));
        Ok(outcomes.map(|renewed| if renewed { Renewed::Yes } else { Renewed::No }).collect())
    }
}
