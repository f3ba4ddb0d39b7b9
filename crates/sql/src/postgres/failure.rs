//! What PostgreSQL's failures mean.
//!
//! SQLSTATE codes: <https://www.postgresql.org/docs/current/errcodes-appendix.html>.

use crate::failure::{Cause, Failure};
use fencelock_core::ErrorKind;

pub(crate) fn failure(cause: sqlx::Error) -> Failure {
    let failure = match cause.as_database_error().and_then(|e| e.code()) {
        Some(code) => of_code(&code),
        None => Failure::of_client(&cause),
    };
    let mut failure = failure.in_words_of(&cause).caused_by(cause);
    failure.error = failure.error.with_engine("postgres");
    failure
}

fn of_code(code: &str) -> Failure {
    use ErrorKind::{Denied, Engine, InvalidConfig, Unavailable};
    match code {
        "40001" | "40P01" => Failure::new(Unavailable, "other transactions were in the way, again and again")
            .not_done()
            .because(Cause::Conflict),
        "55P03" => Failure::new(Unavailable, "another transaction has the lock's row to itself")
            .not_done()
            .because(Cause::Locked),
        "57014" => Failure::new(Unavailable, "the server cancelled the statement").not_done(),
        "25006" => Failure::new(Unavailable, "the server takes no writes: it is a standby, or was made read-only")
            .not_done()
            .reopen(),
        // Found before the commit, which is undone.
        "54000" => Failure::new(Unavailable, "a limit of the server is reached: its queue of notices may be full")
            .not_done()
            .because(Cause::Full),
        // While it ends nobody knows whether what it was doing was kept.
        "57P01" | "57P02" | "57P05" => {
            Failure::new(Unavailable, "the server ended the connection").reopen().because(Cause::Broken)
        }
        "57P03" => Failure::new(Unavailable, "the server is starting or stopping").not_done().reopen(),
        "53300" => Failure::new(Unavailable, "the server has too many connections").not_done().reopen(),
        "3D000" => Failure::new(InvalidConfig, "there is no such database").not_done().reopen(),
        "42501" => Failure::new(Denied, "the server does not let this user do that").not_done(),
        "42P01" | "3F000" => Failure::new(Engine, "the table is gone").not_done().because(Cause::NoTable),
        "42703" | "42804" | "42P10" => Failure::new(Engine, "the table has another shape").not_done(),
        // A cached plan does not fit the table any more, or the session is not the one that prepared it.
        "0A000" | "26000" => {
            Failure::new(Unavailable, "the prepared statement is gone").not_done().reopen().because(Cause::Broken)
        }
        _ => match code.get(..2) {
            Some("08") => Failure::new(Unavailable, "the connection is gone").reopen().because(Cause::Broken),
            Some("28") => Failure::new(Denied, "the server does not let this user in").not_done().reopen(),
            Some("53" | "58") => {
                Failure::new(Unavailable, "the server lacks space or memory, or its disk fails").not_done()
            }
            Some("22" | "23") => Failure::new(Engine, "a value does not fit the table").not_done(),
            _ => Failure::new(Engine, format!("PostgreSQL failed with {code}")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_its_kind_and_certainty() {
        use ErrorKind::{Denied, Engine, InvalidConfig, Unavailable};
        for (code, kind, not_done, reopen, cause) in [
            ("40001", Unavailable, true, false, Cause::Conflict),
            ("40P01", Unavailable, true, false, Cause::Conflict),
            ("55P03", Unavailable, true, false, Cause::Locked),
            ("57014", Unavailable, true, false, Cause::Other),
            ("57P01", Unavailable, false, true, Cause::Broken),
            ("25006", Unavailable, true, true, Cause::Other),
            ("53300", Unavailable, true, true, Cause::Other),
            ("53100", Unavailable, true, false, Cause::Other),
            ("54000", Unavailable, true, false, Cause::Full),
            ("28P01", Denied, true, true, Cause::Other),
            ("42501", Denied, true, false, Cause::Other),
            ("3D000", InvalidConfig, true, true, Cause::Other),
            ("08006", Unavailable, false, true, Cause::Broken),
            ("XX000", Engine, false, false, Cause::Other),
        ] {
            let f = of_code(code);
            assert_eq!((f.error.kind(), f.not_done, f.reopen, f.cause), (kind, not_done, reopen, cause), "{code}");
        }
    }
}
