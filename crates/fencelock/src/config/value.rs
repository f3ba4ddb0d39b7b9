//! One value of a TOML file as the text that settings are made of.

use super::keys::Kind;
use toml::de::{DeArray, DeValue};

/// The text of `value`, or what it should have been.
pub(super) fn text(kind: Kind, value: &DeValue<'_>) -> Result<String, String> {
    let right = match (kind, value) {
        (Kind::Text | Kind::Duration | Kind::Any, DeValue::String(text)) => return Ok(text.to_string()),
        (Kind::Number | Kind::Any, DeValue::Integer(number)) => {
            let decimal = i128::from_str_radix(number.as_str(), number.radix());
            return decimal.map(|n| n.to_string()).map_err(|_| "a number in range".to_owned());
        }
        (Kind::Any, DeValue::Boolean(flag)) => return Ok(flag.to_string()),
        (Kind::Any, DeValue::Float(number)) => return Ok(number.as_str().to_owned()),
        (Kind::List, DeValue::Array(list)) => match joined(Kind::Text, list) {
            Some(text) => return Ok(text),
            None => return Err("a list of texts alone".to_owned()),
        },
        (Kind::Any, DeValue::Array(list)) => match joined(Kind::Any, list) {
            Some(text) => return Ok(text),
            None => return Err("a list of plain values".to_owned()),
        },
        (Kind::Text, _) => "a text in quotes",
        (Kind::Duration, _) => "a duration in quotes, such as `\"30s\"`",
        (Kind::Number, _) => "a number without quotes",
        (Kind::List, _) => "a list of texts in brackets, such as `[\"…\"]`",
        (Kind::Any, _) => "a text, a number, `true` or `false`, or a list of these",
    };
    Err(format!("{right}, not {}", name(value)))
}

fn joined(kind: Kind, list: &DeArray<'_>) -> Option<String> {
    let texts = list.iter().map(|item| match item.get_ref() {
        DeValue::Array(_) => None,
        plain => text(kind, plain).ok(),
    });
    texts.collect::<Option<Vec<_>>>().map(|texts| texts.join(","))
}

fn name(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(true) => "`true`",
        DeValue::Boolean(false) => "`false`",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
