//! What the failures of MySQL and MariaDB mean.
//!
//! Error numbers: <https://mariadb.com/kb/en/mariadb-error-code-reference/> and
//! <https://dev.mysql.com/doc/mysql-errors/8.4/en/server-error-reference.html>.

use crate::failure::{Cause, Failure};
use fencelock_core::ErrorKind;
use sqlx::mysql::MySqlDatabaseError;

pub(crate) fn failure(cause: sqlx::Error) -> Failure {
    let number = cause.as_database_error().and_then(|e| e.try_downcast_ref::<MySqlDatabaseError>()).map(|e| e.number());
    let failure = number.map_or_else(|| Failure::of_client(&cause), of_number);
    let mut failure = failure.in_words_of(&cause).caused_by(cause);
    failure.error = failure.error.with_engine("mysql");
    failure
}

fn of_number(number: u16) -> Failure {
    use ErrorKind::{Denied, Engine, InvalidConfig, Unavailable};
    match number {
        1213 | 1020 => Failure::new(Unavailable, "other transactions were in the way, again and again")
            .not_done()
            .because(Cause::Conflict),
        1205 => Failure::new(Unavailable, "another transaction has the lock's row to itself")
            .not_done()
            .because(Cause::Locked),
        1062 => Failure::new(Engine, "there is such a row already").not_done().because(Cause::Duplicate),
        1317 | 1969 | 3024 => Failure::new(Unavailable, "the server cancelled the statement").not_done(),
        1290 | 1792 | 1836 => read_only_server(),
        1040 | 1203 | 1226 => Failure::new(Unavailable, "the server has too many connections").not_done().reopen(),
        1044 | 1045 | 1698 | 1129 | 1130 => {
            Failure::new(Denied, "the server does not let this user in").not_done().reopen()
        }
        1142 | 1143 | 1227 | 1370 => Failure::new(Denied, "the server does not let this user do that").not_done(),
        1049 => Failure::new(InvalidConfig, "there is no such database").not_done().reopen(),
        1146 => Failure::new(Engine, "the table is gone").not_done().because(Cause::NoTable),
        1054 => Failure::new(Engine, "the table has another shape").not_done(),
        1047 => Failure::new(Unavailable, "this node of the cluster has no quorum").not_done().reopen(),
        // The prepared statement is not known here, or not any more.
        1243 | 1615 => {
            Failure::new(Unavailable, "the prepared statement is gone").not_done().reopen().because(Cause::Broken)
        }
        // While it ends nobody knows whether what it was doing was kept.
        1053 | 1077 | 1079 | 1152 | 1158..=1161 | 1184 | 1927 | 4031 => {
            Failure::new(Unavailable, "the server ended the connection").reopen().because(Cause::Broken)
        }
        1021 | 1114 | 1037 | 1041 => Failure::new(Unavailable, "the server lacks space or memory").not_done(),
        // How a statement for many says that it is not to be done; one that is not known there was not done either.
        1242 | 1064 => Failure::new(Engine, format!("the server refused the statement with {number}")).not_done(),
        1048 | 1264 | 1366 | 1406 => Failure::new(Engine, "a value does not fit the table").not_done(),
        _ => Failure::new(Engine, format!("the server failed with {number}")),
    }
}

pub(crate) fn read_only_server() -> Failure {
    let message = "the server takes no writes: it is a replica, or was made read-only";
    Failure::new(ErrorKind::Unavailable, message).not_done().reopen()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_has_its_kind_and_certainty() {
        use ErrorKind::{Denied, Engine, InvalidConfig, Unavailable};
        for (number, kind, not_done, reopen, cause) in [
            (1213, Unavailable, true, false, Cause::Conflict),
            (1205, Unavailable, true, false, Cause::Locked),
            (1062, Engine, true, false, Cause::Duplicate),
            (1290, Unavailable, true, true, Cause::Other),
            (1040, Unavailable, true, true, Cause::Other),
            (1045, Denied, true, true, Cause::Other),
            (1142, Denied, true, false, Cause::Other),
            (1049, InvalidConfig, true, true, Cause::Other),
            (1927, Unavailable, false, true, Cause::Broken),
            (1242, Engine, true, false, Cause::Other),
            (1030, Engine, false, false, Cause::Other),
        ] {
            let f = of_number(number);
            assert_eq!((f.error.kind(), f.not_done, f.reopen, f.cause), (kind, not_done, reopen, cause), "{number}");
        }
    }
}
