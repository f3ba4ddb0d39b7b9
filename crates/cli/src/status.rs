//! Who holds what, and taking it away.

use crate::args::{List, Options, Release, Status};
use crate::connect::{Wanted, client};
use crate::exit::{self, Failure, Outcome};
use crate::output::{answer, answer_json, clean, columns, human, millis, since};
use fencelock::HolderInfo;
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
    if !args.yes {
        let holder = client.inspect(&args.name).await?;
        if !confirmed(&as_text(&args.name, holder.as_ref()))? {
            return Err(Failure::new(exit::USAGE, "nothing was released"));
        }
    }
    let name = clean(&args.name);
    let freed = client.force_release(&args.name).await?;
    answer(&if freed { format!("{name}: released\n") } else { format!("{name}: free\n") })?;
    Ok(exit::OK)
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
    let Some(holder) = holder else { return format!("{name}: free\n") };
    let mut text = format!("{name}: held by {}\n  token      {}\n", clean(&holder.holder), holder.token);
    let mut line = |label: &str, value: &str| text.push_str(&format!("  {label:9}  {value}\n"));
    if let Some(held) = holder.held_for {
        line("since", &format!("{} ({} ago)", since(held).unwrap_or_default(), human(held)));
    }
    if let Some(remaining) = holder.remaining {
        line("remaining", &format!("{} unless renewed", human(remaining)));
    }
    if let Some(waiters) = holder.waiters {
        line("waiters", &waiters.to_string());
    }
    if let Some(note) = &holder.note {
        line("note", &clean(note));
    }
    if let Some(claim) = holder.claim {
        line("claim", &claim.to_string());
    }
    text
}

fn row(name: &str, holder: &HolderInfo) -> [String; 7] {
    let time = |time: Option<_>| time.map_or_else(|| "-".to_owned(), human);
    [
        clean(name),
        clean(&holder.holder),
        holder.token.to_string(),
        time(holder.held_for),
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
        "remaining_ms": holder.remaining.map(millis),
        "waiters": holder.waiters,
        "claim": holder.claim.map(|claim| claim.to_string()),
    })
}
