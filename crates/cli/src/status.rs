//! Who holds what, and taking it away.

use crate::args::{List, Options, Release, Status};
use crate::connect::{Wanted, client};
use crate::exit::{self, Failure, Outcome};
use crate::output::{answer, answer_json, clean, columns, human, millis, since};
use fencelock::{FencingToken, HolderInfo, Waiter};
use serde_json::{Value, json};
use std::io::{IsTerminal, Write, stderr, stdin};

/// `fencelock status NAME`
pub(crate) async fn status(options: &Options, args: &Status) -> Outcome {
    let client = client(options, Wanted::default()).await?;
    let holder = client.inspect(&args.name).await?;
    if args.json.wanted {
        answer_json(&as_json(&args.name, holder.as_ref()))?;
    } else {
        answer(&as_text(&args.name, holder.as_ref()))?;
    }
    Ok(if holder.is_none() && args.exit_code { exit::FREE } else { exit::OK })
}

/// `fencelock list [PREFIX]`
pub(crate) async fn list(options: &Options, args: &List) -> Outcome {
    let client = client(options, Wanted::default()).await?;
    let held = client.list(&args.prefix).await?;
    if args.json.wanted {
        let held = held.iter().map(|(name, holder)| as_json(name.as_str(), Some(holder)));
        answer_json(&Value::Array(held.collect()))?;
    } else if !held.is_empty() {
        let head = ["NAME", "HOLDER", "TOKEN", "HELD", "REMAINING", "WAITERS", "NOTE"].map(str::to_owned);
        let rows = held.iter().map(|(name, holder)| row(name.as_str(), holder));
        answer(&columns(&[head].into_iter().chain(rows).collect::<Vec<_>>()))?;
    }
    Ok(exit::OK)
}

/// `fencelock release --force NAME`
pub(crate) async fn release(options: &Options, args: &Release) -> Outcome {
    let client = client(options, Wanted::default()).await?;
    let asked_for = args.token.map(FencingToken::new);
    let meant = if args.yes {
        asked_for
    } else {
        // Who confirms has decided about this hold, and about no other that begins meanwhile.
        let holder = client.inspect(&args.name).await?;
        let Some(shown) = &holder else { return free(&args.name) };
        if asked_for.is_some_and(|token| token != shown.token) {
            return Err(anothers(&args.name, asked_for, shown));
        }
        if !confirmed(&as_text(&args.name, holder.as_ref()))? {
            return Err(Failure::new(exit::USAGE, "nothing was released"));
        }
        Some(shown.token)
    };
    let freed = match meant {
        Some(token) => client.force_release_if(&args.name, token).await?,
        None => client.force_release(&args.name).await?,
    };
    if freed {
        answer(&format!("{}: released\n", clean(&args.name)))?;
        return Ok(exit::OK);
    }
    match client.inspect(&args.name).await? {
        Some(now) if meant.is_some() => Err(anothers(&args.name, meant, &now)),
        _ => free(&args.name),
    }
}

fn free(name: &str) -> Outcome {
    answer(&as_text(name, None))?;
    Ok(exit::OK)
}

/// There is another hold than the one that was meant.
fn anothers(name: &str, meant: Option<FencingToken>, now: &HolderInfo) -> Failure {
    let meant = meant.map(|token| token.to_string()).unwrap_or_default();
    let (name, holder, token) = (clean(name), clean(&now.holder), now.token);
    let message =
        format!("{name}: {holder} holds it with token {token}, and nobody with token {meant}: nothing was released");
    Failure::new(exit::CONTENDED, message)
}

fn confirmed(holder: &str) -> Result<bool, Failure> {
    if !stdin().is_terminal() {
        return Err(Failure::new(
            exit::USAGE,
            "there is no terminal to ask on; give `--yes` to release without asking",
        ));
    }
    write!(stderr(), "{holder}Take the lock away from its holder? [y/N] ")?;
    let mut said = String::new();
    stdin().read_line(&mut said)?;
    Ok(matches!(said.trim(), "y" | "Y" | "yes"))
}

fn as_text(name: &str, holder: Option<&HolderInfo>) -> String {
    let name = clean(name);
    // Not "free": a lock delay may keep it closed, and nobody is told so who does not ask for the lock.
    let Some(holder) = holder else { return format!("{name}: nobody holds it\n") };
    let mut text = format!("{name}: held by {}\n  token      {}\n", clean(&holder.holder), holder.token);
    let mut line = |label: &str, value: &str| text.push_str(&format!("  {label:9}  {value}\n"));
    if let Some(held) = holder.held_for {
        line("since", &format!("{} ({} ago)", since(held).unwrap_or_default(), human(held)));
    } else if let Some(asked) = holder.asked_ago {
        line("since", &format!("{} at the earliest ({} ago at most)", since(asked).unwrap_or_default(), human(asked)));
    }
    if let Some(remaining) = holder.remaining {
        line("remaining", &format!("{} unless renewed", human(remaining)));
    }
    if let Some(note) = &holder.note {
        line("note", &clean(note));
    }
    if let Some(claim) = holder.claim {
        line("claim", &claim.to_string());
    }
    match holder.waiters {
        Some(waiters) => line("waiters", &waiters.to_string()),
        None => line("waiters", "not known by this engine"),
    }
    for (at, waiter) in holder.waiting.iter().enumerate() {
        text.push_str(&format!("    {}. {}\n", at + 1, waiting_text(waiter)));
    }
    text
}

fn waiting_text(waiter: &Waiter) -> String {
    let mut text = clean(&waiter.holder);
    if let Some(waited) = waiter.waited_for {
        text.push_str(&format!(", for {}", human(waited)));
    }
    if let Some(note) = &waiter.note {
        text.push_str(&format!(", note {}", clean(note)));
    }
    if let Some(claim) = waiter.claim {
        text.push_str(&format!(", claim {claim}"));
    }
    text
}

fn row(name: &str, holder: &HolderInfo) -> [String; 7] {
    let time = |time: Option<_>| time.map_or_else(|| "-".to_owned(), human);
    [
        clean(name),
        clean(&holder.holder),
        holder.token.to_string(),
        match (holder.held_for, holder.asked_ago) {
            // It asked then, and has held it for no longer.
            (None, Some(asked)) => format!("≤ {}", human(asked)),
            (held, _) => time(held),
        },
        time(holder.remaining),
        holder.waiters.map_or_else(|| "-".to_owned(), |waiters| waiters.to_string()),
        holder.note.as_deref().map(clean).unwrap_or_default(),
    ]
}

fn as_json(name: &str, holder: Option<&HolderInfo>) -> Value {
    let Some(holder) = holder else { return json!({ "name": name, "held": false }) };
    json!({
        "name": name,
        "held": true,
        "holder": &*holder.holder,
        "note": holder.note.as_deref(),
        "token": holder.token.get(),
        "since": holder.held_for.and_then(since),
        "held_for_ms": holder.held_for.map(millis),
        "asked_at": holder.asked_ago.and_then(since),
        "asked_ago_ms": holder.asked_ago.map(millis),
        "remaining_ms": holder.remaining.map(millis),
        "waiters": holder.waiters,
        "waiting": holder.waiters.map(|_| holder.waiting.iter().map(waiting_json).collect::<Vec<_>>()),
        "claim": holder.claim.map(|claim| claim.to_string()),
    })
}

fn waiting_json(waiter: &Waiter) -> Value {
    json!({
        "holder": &*waiter.holder,
        "note": waiter.note.as_deref(),
        "since": waiter.waited_for.and_then(since),
        "waited_for_ms": waiter.waited_for.map(millis),
        "claim": waiter.claim.map(|claim| claim.to_string()),
    })
}
