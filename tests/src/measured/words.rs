//! Numbers and lists as the README writes them.

/// `1234567` as `1,234,567`.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of what there should be none of.
pub(super) fn none_or(number: u64) -> String {
    if number == 0 { "none".to_owned() } else { count(number) }
}

/// `1 experiment`, `2 experiments`.
pub(super) fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// A time in microseconds, in the unit that suits it.
pub(super) fn time(us: u64) -> String {
    match us {
        0..10_000 => format!("{}.{} ms", us / 1_000, us % 1_000 / 100),
        10_000..1_000_000 => format!("{} ms", us / 1_000),
        _ => format!("{}.{} s", us / 1_000_000, us % 1_000_000 / 100_000),
    }
}

/// `a, b and c`.
pub(super) fn list(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

/// With the names of settings marked as code.
pub(super) fn marked(text: &str) -> String {
    let word = |word: &str| {
        let bare = word.trim_end_matches([',', ':', ';']);
        if bare.contains('_') { word.replacen(bare, &format!("`{bare}`"), 1) } else { word.to_owned() }
    };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// A paragraph, in lines of the width that the others have; what is between backticks is not broken.
pub(super) fn wrapped(text: &str) -> String {
    let (mut lines, mut line) = (Vec::new(), String::new());
    for (at, part) in text.split('`').enumerate() {
        let code = at % 2 == 1;
        let words: Vec<_> = if code { vec![part] } else { part.split(' ').collect() };
        for (at, word) in words.iter().enumerate() {
            // What follows code belongs to its word.
            if at > 0 {
                line.push(' ');
            }
            line.push_str(&if code { format!("`{word}`") } else { (*word).to_owned() });
            if line.chars().count() > 120
                && let Some(end) = last_space(&line)
            {
                let rest = line.split_off(end);
                lines.push(std::mem::replace(&mut line, rest.trim_start().to_owned()));
            }
        }
    }
    lines.push(line);
    lines.join("\n")
}

/// The last space that is not in code.
fn last_space(line: &str) -> Option<usize> {
    let (mut code, mut found) = (false, None);
    for (at, c) in line.char_indices() {
        code ^= c == '`';
        if c == ' ' && !code {
            found = Some(at);
        }
    }
    found
}

/// How an engine is called in texts.
pub(super) fn engine(id: &str) -> &str {
    match id {
        "sqlite" => "SQLite",
        "postgres" => "PostgreSQL",
        "mysql" => "MariaDB",
        "redis" => "Redis",
        "redlock" => "Redlock",
        "zookeeper" => "ZooKeeper",
        other => other,
    }
}

/// Four digits say all that a measurement does.
pub(super) fn short(number: f64) -> f64 {
    format!("{number:.3e}").parse().unwrap_or(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_legible() {
        assert_eq!([0, 999, 1_000, 22_646, 1_234_567].map(count), ["0", "999", "1,000", "22,646", "1,234,567"]);
        let times = [[430, 9_999], [10_000, 259_693], [1_000_000, 4_321_000]].map(|pair| pair.map(time));
        assert_eq!(times.concat(), ["0.4 ms", "9.9 ms", "10 ms", "259 ms", "1.0 s", "4.3 s"]);
        assert_eq!(list(&["a".to_owned(), "b".to_owned(), "c".to_owned()]), "a, b and c");
        let code = format!("{} `b c`, d", "a".repeat(115));
        assert_eq!(wrapped(&code), format!("{}\n`b c`, d", "a".repeat(115)));
        assert_eq!(wrapped("a `b c` d"), "a `b c` d");
        assert_eq!(marked("1 member, etcd.lease_fixes, x"), "1 member, `etcd.lease_fixes`, x");
        assert_eq!([1.234_56, 0.0, 352_691.7].map(short), [1.235, 0.0, 352_700.0]);
    }
}
