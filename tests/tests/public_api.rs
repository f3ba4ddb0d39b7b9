//! The public interface, as rustdoc shows it, is what `api/` lists: a change to it is seen in a review.
//!
//! `FENCELOCK_KEEP=1 cargo test -p fencelock-tests --test public_api` writes the files.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The facade's own items; the other crates', which it shows again, are in their own files.
const CRATES: [&str; 8] = [
    "fencelock",
    "fencelock_core",
    "fencelock_etcd",
    "fencelock_redis",
    "fencelock_redlock",
    "fencelock_sql",
    "fencelock_testkit",
    "fencelock_zookeeper",
];

const KINDS: [&str; 8] = ["constant", "enum", "fn", "macro", "static", "struct", "trait", "type"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Text without its tags and entities, on one line.
fn plain(html: &str) -> String {
    let mut text = String::new();
    for part in html.split('<') {
        text.push_str(part.split_once('>').map_or(part, |(_, after)| after));
    }
    let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&#39;", "'").replace("&quot;", "\"");
    text.replace("&nbsp;", " ").replace("&amp;", "&").split_whitespace().collect::<Vec<_>>().join(" ")
}

fn between<'h>(html: &'h str, from: &str, to: &str) -> Option<&'h str> {
    let (_, rest) = html.split_once(from)?;
    Some(rest.split_once(to)?.0)
}

/// The declaration, methods, and implementations on the page of one item.
fn item(path: &str, html: &str, lines: &mut BTreeSet<String>) {
    // What follows holds for every type, or is derived from its fields.
    let html = html.split_once("id=\"synthetic-implementations\"").map_or(html, |(own, _)| own);
    let html = html.split_once("id=\"foreign-impls\"").map_or(html, |(own, _)| own);
    let html = html.split_once("id=\"implementors\"").map_or(html, |(own, _)| own);
    if let Some(declaration) = between(html, "<pre class=\"rust item-decl\"><code>", "</code></pre>") {
        lines.insert(format!("{path}: {}", plain(declaration)));
    }
    for section in html.split("<section id=\"").skip(1) {
        let (method, implementation) = (section.contains("class=\"method\""), section.contains("class=\"impl\""));
        let head = section.split_once('>').map_or("", |(head, _)| head);
        if method && head.contains("class=\"method\"") {
            lines.extend(
                between(section, "<h4 class=\"code-header\">", "</h4>").map(|line| format!("{path}: {}", plain(line))),
            );
        } else if implementation && head.contains("class=\"impl\"") {
            let line = between(section, "<h3 class=\"code-header\">", "</h3>").map(plain).unwrap_or_default();
            if line.contains(" for ") {
                lines.insert(format!("{path}: {line}"));
            }
        }
    }
}

/// All items below a folder of rustdoc's.
fn walk(folder: &Path, path: &str, lines: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap().path();
        let name = entry.file_name().unwrap().to_string_lossy().into_owned();
        if entry.is_dir() {
            walk(&entry, &format!("{path}::{name}"), lines);
        } else if let [kind, item_name, "html"] = name.split('.').collect::<Vec<_>>()[..]
            && KINDS.contains(&kind)
        {
            item(&format!("{path}::{item_name}"), &std::fs::read_to_string(&entry).unwrap(), lines);
        }
    }
}

#[test]
fn the_public_interface_is_what_the_files_list() {
    // As `tests/run` has just done, so that nothing but these pages is made again, without what is no longer there.
    let documentation = root().join("target/doc");
    for name in CRATES {
        let _ = std::fs::remove_dir_all(documentation.join(name));
    }
    let mut command = Command::new(env!("CARGO"));
    command.args(["doc", "--quiet", "--locked", "--workspace", "--no-deps", "--all-features"]);
    let output = command.env("RUSTDOCFLAGS", "-D warnings").current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let mut core = BTreeSet::new();
    walk(&documentation.join("fencelock_core"), "fencelock", &mut core);
    let core: BTreeSet<_> = core.iter().filter_map(|line| line.split_once(": ")).map(|(path, _)| path).collect();
    // Whether the facade only shows again what is another crate's.
    let shown = |line: &String| {
        let path = line.split_once(": ").map_or("", |(path, _)| path);
        let engines = CRATES.iter().filter_map(|name| name.strip_prefix("fencelock_"));
        core.contains(path) || engines.into_iter().any(|engine| path.starts_with(&format!("fencelock::{engine}::")))
    };
    for name in CRATES {
        let mut lines = BTreeSet::new();
        walk(&documentation.join(name), name, &mut lines);
        if name == "fencelock" {
            lines.retain(|line| !shown(line));
        }
        assert!(lines.len() > 5, "{name}: {lines:?}");
        let file = root().join("api").join(format!("{name}.txt"));
        let right = lines.into_iter().collect::<Vec<_>>().join("\n") + "\n";
        if std::env::var_os("FENCELOCK_KEEP").is_some() {
            std::fs::create_dir_all(root().join("api")).unwrap();
            std::fs::write(&file, right).unwrap();
            continue;
        }
        let there = std::fs::read_to_string(&file).unwrap_or_default();
        let (old, new): (BTreeSet<_>, BTreeSet<_>) = (there.lines().collect(), right.lines().collect());
        let gone: Vec<_> = old.difference(&new).collect();
        let added: Vec<_> = new.difference(&old).collect();
        assert!(
            gone.is_empty() && added.is_empty(),
            "{name}: gone {gone:#?}\nnew {added:#?}\nif that is meant, write the files with FENCELOCK_KEEP=1 and say it in CHANGELOG.md"
        );
    }
}
