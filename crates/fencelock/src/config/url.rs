//! A lock URL as somebody wrote it, in which every parameter may stand once.

use super::layer::invalid;
use fencelock_core::{EngineUrl, Result};
use std::collections::BTreeMap;

/// Takes `text` apart.
///
/// # Errors
/// `InvalidConfig` as for [`EngineUrl::parse`], and for a parameter that stands
/// there twice: which of the two was meant nobody knows.
pub(crate) fn parse(text: &str) -> Result<EngineUrl> {
    let url = EngineUrl::parse(text)?;
    let query = text.split_once('?').map(|(_, query)| query).unwrap_or_default();
    let mut places = BTreeMap::new();
    for (pair, place) in query.split('&').filter(|pair| !pair.is_empty()).zip(1..) {
        // One at a time, as the URL's own parser decodes it.
        for key in EngineUrl::parse(&format!("one:?{pair}"))?.settings.keys() {
            if let Some(before) = places.insert(key.to_owned(), place) {
                let where_ = format!("as parameter {before} and as parameter {place}");
                return Err(invalid(format!("a lock URL has `{key}` twice, {where_}")));
            }
        }
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_stands_there_once() {
        assert!(parse("memory:?ttl=1s&&wait_at_most=1s&holder=ttl").is_ok());
        for twice in ["memory:?ttl=1s&holder=a&ttl=2s", "memory:?ttl=1s&holder=a&t%74l=1s"] {
            let e = parse(twice).unwrap_err();
            assert_eq!(e.message(), "a lock URL has `ttl` twice, as parameter 1 and as parameter 3");
        }
        assert!(parse("memory:?a?b=1&a?b=2").is_err(), "only the first question mark begins the parameters");
    }
}
