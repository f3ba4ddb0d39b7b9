//! On SQLite, what is ready together travels in one statement.
#![cfg(feature = "sqlite")]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests")]

mod sqlite;
mod together;

use sqlite::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_is_answered_as_by_itself() {
    let file = File::new();
    together::each_is_answered_as_by_itself(file.engine().await, file.engine().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_for_one_name_one_is_granted() {
    let file = File::new();
    together::of_two_for_one_name_one_is_granted(file.engine().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_release_is_answered_as_by_itself() {
    let file = File::new();
    together::each_release_is_answered_as_by_itself(file.engine().await, file.engine().await).await;
}
