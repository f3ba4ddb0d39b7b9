//! The two lines of the guide "fencing in practice" do what it says, also where a client counts changed rows.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test")]

use fencelock_lab::MariaDb;
use sqlx::sqlite::SqlitePoolOptions;
use std::path::Path;
use std::process::Command;

/// Entering and writing, as they stand in the guide, with their parameters as text.
fn lines(token: u64, balance: i64) -> (String, String) {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("crates/fencelock/guides/fencing.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let (_, sql) = guide.split_once("```sql\n").unwrap();
    let (sql, _) = sql.split_once("```").unwrap();
    let sql = sql.replace(":token", &token.to_string()).replace(":new", &balance.to_string()).replace(":id", "1");
    let mut lines = sql.lines().filter(|line| !line.starts_with("--")).map(str::to_owned);
    (lines.next().unwrap(), lines.next().unwrap())
}

const TABLE: &str = "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER, fence BIGINT); \
                     INSERT INTO account VALUES (1, 100, 0);";

#[tokio::test]
async fn a_holder_that_is_late_matches_no_row() {
    let pool = SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await.unwrap();
    sqlx::raw_sql(TABLE).execute(&pool).await.unwrap();
    let count =
        async |sql: String| sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&pool).await.unwrap().rows_affected();
    let ((enter_33, write_33), (enter_34, write_34)) = (lines(33, 105), lines(34, 110));
    assert_eq!(count(enter_33.clone()).await, 1);
    assert_eq!(count(enter_33.clone()).await, 1, "entering again is no harm");
    assert_eq!(count(enter_34).await, 1);
    assert_eq!(count(write_33).await, 0, "somebody has entered since");
    assert_eq!(count(enter_33).await, 0, "stale");
    assert_eq!(count(write_34).await, 1);
}

/// The program `mariadb` does not ask for found rows.
#[test]
fn a_client_that_counts_changes_takes_its_own_for_stale() {
    let server = MariaDb::start().unwrap();
    let port = server.address().port().to_string();
    let ask = |sql: &str| {
        let mut client = Command::new("mariadb");
        client.args(["--no-defaults", "-h", "127.0.0.1", "-u", "root", "-P", &port, "-N", "-B", "test", "-e", sql]);
        let output = client.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let (enter, write) = lines(33, 100);
    let counted = format!("{TABLE} {enter} {enter} SELECT ROW_COUNT(); {write} SELECT ROW_COUNT();");
    assert_eq!(ask(&counted), ["0", "0"], "neither changes anything, and the fence is ours");
    assert_eq!(ask("SELECT fence FROM account WHERE id = 1 FOR UPDATE"), ["33"], "what the guide says to look at");
}
