//! What is one lock and what is another.

use crate::failure::{Expect, Outcome, ensure};
use crate::stage::{Stage, is_free, is_taken};
use fencelock_core::{ErrorKind, MAX_NAME_BYTES};
use std::time::Duration;

/// Names that an engine could take for one another, or for something of its own.
fn lookalikes(prefix: &str) -> Vec<String> {
    let odd = [
        "a",
        "A",
        "a/b",
        "a{b}",
        "{a}b",
        "a%2Fb",
        "a%2fb",
        "a:b",
        "a/",
        "/a",
        "a.",
        ".",
        "..",
        "a\\",
        "a'b",
        "a\"b",
        "a*",
        "a_",
        "a%",
        "void",
        "meta",
        "lock",
        "fence",
        "lock:a",
        "void:a",
        "a ",
        " a",
        "a  ",
        "é",
        "e\u{301}",
        "ß",
        "SS",
        "ss",
        "ключ",
        "鍵",
        "🔒",
        "مفتاح",
        "İ",
        "i",
        "ı",
        "a\u{200b}",
        "a\u{fe0f}",
        "0",
        "00",
        "NULL",
        "-",
    ];
    let mut names: Vec<_> = odd.iter().map(|name| format!("{prefix}{name}")).collect();
    let room = MAX_NAME_BYTES.saturating_sub(prefix.len());
    for last in ["x", "y", "X"] {
        names.push(format!("{prefix}{}{last}", "l".repeat(room.saturating_sub(1))));
    }
    names.push(format!("{prefix}{}", "l".repeat(room.saturating_sub(1))));
    for last in ["鍵", "é"] {
        let filled = (room - last.len()) / last.len();
        names.push(format!("{prefix}{}", last.repeat(filled + 1)));
    }
    names
}

pub(crate) async fn names_are_isolated(stage: Stage) -> Outcome {
    let (a, b) = (stage.client().await?, stage.client().await?);
    let mut names = lookalikes("");
    names.extend(lookalikes(&stage.name("")));
    let mut guards = Vec::new();
    for name in &names {
        let lock = a.named(name).ttl(Duration::from_secs(60).max(stage.ttl()));
        let lock = if stage.is_session() { lock.ttl(stage.ttl()) } else { lock };
        let guard = lock.try_acquire().await.expect_that(format_args!("the name {name:?}"))?;
        guards.push(guard.expect_that(format_args!("{name:?} counts as held, and only other names are"))?);
    }
    for (name, guard) in names.iter().zip(&guards) {
        ensure!(guard.is_held(), "{name:?} was lost when other names were acquired");
        is_taken(&b, name).await?;
        let holder =
            b.inspect(name).await?.expect_that(format_args!("{name:?} is held, and inspect says it is not"))?;
        ensure!(holder.token == guard.token(), "inspect of {name:?} shows the token of another lock");
    }
    // Each is freed alone: those not freed yet stay held.
    for (at, guard) in guards.into_iter().enumerate() {
        guard.release().await?;
        if let Some(next) = names.get(at + 1) {
            is_taken(&b, next).await?;
        }
    }
    for name in &names {
        is_free(&b, name).await?;
    }
    Ok(())
}

pub(crate) async fn invalid_names_are_refused(stage: Stage) -> Outcome {
    let client = stage.client().await?;
    let long = "x".repeat(MAX_NAME_BYTES + 1);
    let wide = "é".repeat(MAX_NAME_BYTES / 2 + 1);
    for name in ["", "\0", "a\n", "a\u{7f}", "\u{85}", long.as_str(), wide.as_str()] {
        let kinds = [
            client.acquire(name).await.err().map(|e| e.kind()),
            client.try_acquire(name).await.err().map(|e| e.kind()),
            client.inspect(name).await.err().map(|e| e.kind()),
        ];
        for kind in kinds {
            ensure!(kind == Some(ErrorKind::InvalidName), "{name:?} should be an invalid name, and is {kind:?}");
        }
    }
    Ok(())
}
