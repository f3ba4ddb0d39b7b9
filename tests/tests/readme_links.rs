//! Links lead somewhere, from wherever the text is read: the repository, a package's page, or rustdoc.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a test")]

use std::path::{Path, PathBuf};

const REPOSITORY: &str = "https://github.com/fencelock/fencelock";
const DOCUMENTATION: &str = "https://docs.rs/";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Text without what stands between fences: code has brackets too.
fn prose(text: &str) -> String {
    let mut code = false;
    let line = |line: &&str| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    };
    text.lines().filter(line).map(|line| format!("{line}\n")).collect()
}

/// Where the links of a text lead: `[text](target)` and `[text]: target`.
fn targets(text: &str) -> Vec<String> {
    let text = prose(text);
    let inline = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    let defined = text.lines().filter_map(|line| line.strip_prefix('[')?.split_once("]: ")).map(|(_, target)| target);
    inline.chain(defined).map(|target| target.trim().to_owned()).collect()
}

/// Texts in brackets that are links by name alone, which only rustdoc resolves.
fn shortcuts(text: &str) -> Vec<String> {
    let prose = prose(text);
    let mut found = Vec::new();
    for rest in prose.split("[`").skip(1) {
        let Some((name, after)) = rest.split_once("`]") else { continue };
        let defined = prose.contains(&format!("\n[`{name}`]: "));
        if !after.starts_with('(') && !after.starts_with(": ") && !defined {
            found.push(name.to_owned());
        }
    }
    found
}

/// As the repository's site makes anchors of headings.
fn anchors(text: &str) -> Vec<String> {
    let heading = |line: &str| line.starts_with('#').then(|| line.trim_start_matches('#').trim().to_lowercase());
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    let anchor = |heading: String| heading.chars().filter(kept).map(|c| if c == ' ' { '-' } else { c }).collect();
    prose(text).lines().filter_map(heading).map(anchor).collect()
}

/// Whether our documentation has the page: an item that `api/` lists, a crate's front page, or a guide.
fn is_documented(page: &str) -> bool {
    let page = page.split('#').next().unwrap_or_default();
    let parts: Vec<_> = page.split('/').collect();
    let front = |package: &str| root().join("api").join(format!("{}.txt", package.replace('-', "_"))).exists();
    if let [package] = parts[..] {
        return front(package);
    }
    let [package, "latest", module, rest @ ..] = &parts[..] else { return false };
    if *module != package.replace('-', "_") {
        return false;
    }
    match rest {
        [] | ["" | "index.html"] => front(package),
        ["guides", guide, "index.html"] => root().join(format!("crates/fencelock/guides/{guide}.md")).exists(),
        [modules @ .., file] => {
            let item = file.strip_suffix(".html").and_then(|file| file.split_once('.')).map(|(_, item)| item);
            let path: String = modules.iter().copied().chain(item).map(|part| format!("::{part}")).collect();
            let listed = read(&root().join("api").join(format!("{module}.txt")));
            item.is_some() && listed.lines().any(|line| line.starts_with(&format!("{module}{path}: ")))
        }
    }
}

/// What is wrong with a link of the file, if something is.
fn wrong(file: &Path, target: &str, published: bool) -> Option<&'static str> {
    let (place, anchor) = target.split_once('#').map_or((target, None), |(place, anchor)| (place, Some(anchor)));
    let known = |text: &str| anchor.is_none_or(|anchor| anchors(text).iter().any(|there| there == anchor));
    if let Some(path) = place.strip_prefix(&format!("{REPOSITORY}/blob/main/")) {
        let path = root().join(path);
        return if !path.is_file() {
            Some("no such file")
        } else if !known(&read(&path)) {
            Some("no such heading")
        } else {
            None
        };
    }
    if place == REPOSITORY || (place.starts_with("https://") && !place.starts_with(REPOSITORY)) {
        let ours = place.strip_prefix(DOCUMENTATION).filter(|page| page.starts_with("fencelock"));
        return ours.is_some_and(|page| !is_documented(page)).then_some("no such page of ours");
    }
    if place.is_empty() {
        return (!known(&read(file))).then_some("no such heading here");
    }
    if published {
        return Some("leads nowhere from a package's page or from rustdoc");
    }
    let path = file.parent().unwrap().join(place);
    (!path.exists() || !known(&read(&path))).then_some("no such file or heading")
}

#[test]
fn every_link_leads_somewhere() {
    let mut files = vec![(root().join("README.md"), true)];
    for name in ["SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md", "crates/lab/README.md"] {
        files.push((root().join(name), false));
    }
    for entry in std::fs::read_dir(root().join("crates")).unwrap() {
        let folder = entry.unwrap().path();
        let published = std::fs::read_to_string(folder.join("Cargo.toml"));
        if published.is_ok_and(|manifest| !manifest.contains("publish = false")) {
            files.push((folder.join("README.md"), true));
        }
    }
    let (mut found, mut links) = (Vec::new(), 0);
    for (file, published) in &files {
        let text = read(file);
        for target in targets(&text) {
            links += 1;
            found.extend(wrong(file, &target, *published).map(|why| format!("{}: {target}: {why}", file.display())));
        }
        let only_rustdoc = "rustdoc alone makes it a link: add `[`…`]: https://docs.rs/…`";
        found.extend(shortcuts(&text).iter().map(|name| format!("{}: {name}: {only_rustdoc}", file.display())));
    }
    assert!(files.len() > 10 && links > 60, "{} files, {links} links", files.len());
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn what_is_wrong_is_found() {
    let readme = root().join("README.md");
    let blob = format!("{REPOSITORY}/blob/main");
    for right in [
        format!("{blob}/SECURITY.md#threat-model"),
        "https://docs.rs/fencelock/latest/fencelock/guides/choosing/index.html".to_owned(),
        "https://docs.rs/fencelock-core/latest/fencelock_core/struct.LockClient.html#method.close".to_owned(),
        "#levels".to_owned(),
        "https://redis.io/".to_owned(),
    ] {
        assert_eq!(wrong(&readme, &right, true), None, "{right}");
    }
    for dead in [
        "SECURITY.md".to_owned(),
        format!("{blob}/SECURITY"),
        format!("{blob}/SECURITY.md#no-such"),
        format!("{REPOSITORY}/tree/main/crates"),
        "https://docs.rs/fencelock/latest/fencelock/guides/cooking/index.html".to_owned(),
        "https://docs.rs/fencelock-core/latest/fencelock_core/struct.LockClients.html".to_owned(),
        "fencelock_core::LockClient".to_owned(),
        "#no-such".to_owned(),
    ] {
        assert!(wrong(&readme, &dead, true).is_some(), "{dead}");
    }
    assert_eq!(shortcuts("a [`B`] and [`C`](c)\n\n[`D`]\n\n[`D`]: d\n"), ["B"]);
}
