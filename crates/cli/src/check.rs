//! `fencelock check`: what the deployment guarantees, rule by rule.

use crate::args::{Check, Options};
use crate::connect::{Wanted, builder, client};
use crate::exit::{self, Outcome};
use crate::output::{answer, answer_json, columns, say};
use fencelock::{ErrorKind, Guarantees, Level};
use serde_json::{Value, json};
use std::sync::Arc;

/// Shows the rules even of a deployment that the configuration refuses, and then refuses it.
pub(crate) async fn check(options: &Options, args: &Check) -> Outcome {
    let wanted = Wanted { require: args.require, holder: None };
    let (guarantees, refusal) = match client(options, wanted).await {
        Ok(client) => (client.guarantees(), None),
        Err(refusal) if refusal.kind() == ErrorKind::Refused => {
            (Arc::new(builder(options)?.probe().await?), Some(refusal))
        }
        Err(e) => return Err(e.into()),
    };
    if args.json.wanted {
        answer_json(&as_json(&guarantees))?;
    } else {
        answer(&as_text(&guarantees))?;
    }
    Ok(refusal.map_or(exit::OK, |refusal| {
        say(refusal);
        exit::REFUSED
    }))
}

fn level(guarantees: &Guarantees) -> Option<&'static str> {
    guarantees.level().map(Level::as_str)
}

fn as_text(guarantees: &Guarantees) -> String {
    let capabilities: Vec<_> = guarantees.capabilities().map(|c| c.to_string()).collect();
    let mut about = vec![
        ["engine".to_owned(), guarantees.engine().to_owned()],
        ["deployment".to_owned(), guarantees.deployment().to_owned()],
        ["level".to_owned(), level(guarantees).unwrap_or("none").to_owned()],
        ["reach".to_owned(), guarantees.scope().to_string()],
        ["capabilities".to_owned(), if capabilities.is_empty() { "-".to_owned() } else { capabilities.join(", ") }],
    ];
    about.extend(guarantees.assumptions().map(|a| ["leans on".to_owned(), format!("{}: {a}", a.id())]));
    let mut rules = vec![["RULE", "NEEDED FROM", "OUTCOME", "REASON"].map(str::to_owned)];
    for rule in guarantees.rules() {
        let reason = rule.reason().to_owned();
        rules.push([rule.id().to_owned(), rule.level().to_string(), rule.outcome().to_string(), reason]);
        let mut note = |text: String| rules.push([String::new(), String::new(), String::new(), text]);
        if let Some(fix) = rule.fix() {
            note(format!("fix: {fix}"));
        }
        if rule.is_attestable() && !rule.outcome().holds() {
            let or = if rule.fix().is_some() { "or, " } else { "" };
            note(format!("{or}if you know it to be so, attest `{}`", rule.id()));
        }
    }
    format!("{}\n{}", columns(&about), columns(&rules))
}

pub(crate) fn as_json(guarantees: &Guarantees) -> Value {
    let rules = guarantees.rules().iter().map(|rule| {
        json!({
            "rule": rule.id(),
            "level": rule.level().as_str(),
            "outcome": rule.outcome().to_string(),
            "reason": rule.reason(),
            "fix": rule.fix(),
            "attestable": rule.is_attestable(),
        })
    });
    json!({
        "engine": guarantees.engine(),
        "deployment": guarantees.deployment(),
        "level": level(guarantees),
        "scope": guarantees.scope().to_string(),
        "assumptions": guarantees.assumptions().map(|a| a.id()).collect::<Vec<_>>(),
        "capabilities": guarantees.capabilities().map(|c| c.to_string()).collect::<Vec<_>>(),
        "rules": rules.collect::<Vec<_>>(),
    })
}
