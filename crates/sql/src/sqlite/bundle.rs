//! Acquires, and releases, of many locks in one statement.

use super::failure::Failure;
use super::frame::unix_now;
use super::opening::Opening;
use super::session::Session;
use super::store::{Waker, token};
use crate::bundle::{Asked, Many, Sent, Told};
use crate::micros::in_micros;
use fencelock_core::{FencingToken, Moment};
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

/// The file, for many at a time.
pub(crate) struct Crowd {
    pub(super) opening: Arc<Opening>,
    pub(super) session: Arc<Session>,
    pub(super) waker: Arc<Waker>,
}

impl Crowd {
    /// The present is each claim's own, read just before the statement is sent: it may run late, and is then as in
    /// [`take`](super::Store::take).
    fn json(&self, asked: &[&Asked], sent_at: &[Moment]) -> String {
        array(asked.iter().zip(sent_at), |json, (asked, sent_at)| {
            let claim = &asked.claim;
            quoted(json, claim.name().as_str().as_bytes());
            let (ttl, delay) = (in_micros(claim.server_ttl()), in_micros(claim.lock_delay()));
            let _ = write!(json, r#","{}",{ttl},{delay},"#, claim.id());
            quoted(json, claim.holder().as_bytes());
            json.push(',');
            match claim.note() {
                Some(note) => quoted(json, note.as_bytes()),
                None => json.push_str("null"),
            }
            let _ = write!(json, ",{}", self.opening.frame.at(*sent_at));
        })
    }
}

impl Many for Crowd {
    /// When it was asked, and the token.
    type Taken = Option<(Moment, FencingToken)>;

    const GOES_ON: bool = false;

    fn limit(&self) -> Duration {
        self.opening.config.request_timeout
    }

    async fn take(&self, asked: &[&Asked]) -> Sent<Self::Taken> {
        let mut seat = match self.session.seat().await {
            Ok(seat) => seat,
            Err(e) => return Sent::NeverLeft(e),
        };
        let sent_at: Vec<_> = asked.iter().map(|asked| asked.claim.now()).collect();
        let wishes = self.json(asked, &sent_at);
        let query = sqlx::query(include_str!("sql/acquire_many.sql"))
            .bind(wishes.as_str())
            .bind(self.opening.least_token())
            .bind(self.opening.frame.id())
            .bind(unix_now());
        let rows = match seat.rows(query).await {
            Ok(rows) => rows,
            Err(failure) => return Sent::Failed(failure.error, failure.not_done),
        };
        let read = |row: &SqliteRow| Ok((row.try_get(0)?, token(row, 1)?));
        match rows.iter().map(read).collect::<sqlx::Result<HashMap<Vec<u8>, FencingToken>>>() {
            Ok(taken) => {
                let told = asked.iter().zip(sent_at).map(|(asked, sent_at)| {
                    let taken = taken.get(asked.claim.id().to_bytes().as_slice());
                    Told::Answer(taken.map(|token| (sent_at, *token)))
                });
                Sent::Told(told.collect(), true)
            }
            Err(e) => Sent::Failed(Failure::of(e).error, true),
        }
    }

    async fn free(&self, asked: &[&Asked]) -> Sent<bool> {
        let mut seat = match self.session.seat().await {
            Ok(seat) => seat,
            Err(e) => return Sent::NeverLeft(e),
        };
        let wishes = array(asked.iter(), |json, asked| {
            quoted(json, asked.claim.name().as_str().as_bytes());
            let _ = write!(json, r#","{}""#, asked.claim.id());
        });
        let outcome = seat.rows(sqlx::query(include_str!("sql/free_many.sql")).bind(wishes.as_str())).await;
        let freed = outcome.and_then(|rows| {
            let freed: sqlx::Result<Vec<Vec<u8>>> = rows.iter().map(|row| row.try_get(0)).collect();
            freed.map_err(Failure::of)
        });
        match freed {
            Ok(mut freed) => {
                if !freed.is_empty() {
                    self.waker.wake();
                }
                freed.sort_unstable();
                let is_freed = |asked: &&Asked| freed.binary_search(&asked.claim.id().to_bytes().to_vec()).is_ok();
                Sent::Told(asked.iter().map(|asked| Told::Answer(is_freed(asked))).collect(), true)
            }
            Err(failure) => Sent::Failed(failure.error, failure.not_done),
        }
    }
}

/// An array of arrays, each written by `each`.
pub(super) fn array<T>(all: impl Iterator<Item = T>, each: impl Fn(&mut String, T)) -> String {
    let mut json = String::with_capacity(all.size_hint().0 * 160 + 2);
    json.push('[');
    for one in all {
        json.push_str(if json.len() > 1 { ",[" } else { "[" });
        each(&mut json, one);
        json.push(']');
    }
    json.push(']');
    json
}

/// In hexadecimal, which goes through JSON whatever is in it.
pub(super) fn quoted(json: &mut String, bytes: &[u8]) {
    json.push('"');
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            json.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
        }
    }
    json.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::{SqliteConfig, Store};

    #[test]
    fn names_go_through_json_whatever_is_in_them() {
        let json = array(["\"é\0", ""].iter(), |json, name| quoted(json, name.as_bytes()));
        assert_eq!(json, r#"[["22c3a900"],[""]]"#);
    }

    #[tokio::test]
    async fn rows_are_found_by_their_key() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(SqliteConfig::new(directory.path().join("l.db"))).await.unwrap();
        for sql in
            [include_str!("sql/free_many.sql"), include_str!("sql/renew.sql"), include_str!("sql/acquire_many.sql")]
        {
            let mut seat = store.commands().seat().await.unwrap();
            let sql = sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"));
            let rows = seat.rows(sqlx::query(sql).bind("[]").bind("").bind("").bind("")).await.unwrap();
            let plan: Vec<String> = rows.iter().map(|row| row.get("detail")).collect();
            assert!(plan.iter().all(|step| !step.starts_with("SCAN") || step.contains("json_each")), "{plan:?}");
        }
    }
}
