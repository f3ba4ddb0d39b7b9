//! The marked parts of the README.

use super::Result;

fn parted<'t>(text: &'t str, name: &str) -> Result<[&'t str; 3]> {
    let (begin, end) = (format!("<!-- {name}:begin -->\n"), format!("<!-- {name}:end -->"));
    let missing = || format!("the README has no marks `{name}`");
    let from = text.find(&begin).ok_or_else(missing)? + begin.len();
    let (before, rest) = text.split_at(from);
    let to = rest.find(&end).ok_or_else(missing)?;
    let (inside, after) = rest.split_at(to);
    Ok([before, inside, after])
}

/// What stands between two marks.
///
/// # Errors
///
/// When the text has not both of them.
pub fn between<'t>(text: &'t str, name: &str) -> Result<&'t str> {
    let [_, inside, _] = parted(text, name)?;
    Ok(inside)
}

/// The text with something else between two marks.
///
/// # Errors
///
/// When the text has not both of them.
pub fn replaced(text: &str, name: &str, right: &str) -> Result<String> {
    let [before, _, after] = parted(text, name)?;
    Ok([before, right, after].concat())
}
