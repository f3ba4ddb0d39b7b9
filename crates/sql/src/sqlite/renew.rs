//! The renewals of many holds in one statement.

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
        let mut json = String::from("[");
        for wish in batch {
            let comma = if json.len() > 1 { "," } else { "" };
            let name = hex(wish.claim.name().as_str().as_bytes());
            let (now, ttl) = (self.frame.now(wish.claim.clock()), in_micros(wish.server_ttl));
            let _ = write!(json, r#"{comma}["{name}","{}",{now},{ttl}]"#, wish.claim.id());
        }
        json.push(']');
        json
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

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::{SqliteConfig, Store};

    #[test]
    fn names_go_through_json_whatever_is_in_them() {
        assert_eq!(hex("\"é\0".as_bytes()), "22c3a900");
    }

    #[tokio::test]
    async fn rows_are_found_by_their_key() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(SqliteConfig::new(directory.path().join("l.db"))).await.unwrap();
        let mut seat = store.commands().seat().await.unwrap();
        let sql = concat!("EXPLAIN QUERY PLAN ", include_str!("sql/renew.sql"));
        let rows = seat.rows(sqlx::query(sql).bind("[]").bind("")).await.unwrap();
        let plan: Vec<String> = rows.iter().map(|row| row.get("detail")).collect();
        assert!(plan.iter().any(|step| step.contains("SEARCH l USING PRIMARY KEY")), "{plan:?}");
    }
}
