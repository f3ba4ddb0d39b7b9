//! Tables and lists that are kept by hand say what the code does.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a test")]

use fencelock_core::{AcquireOptions, Assumption, Capability, Guarantees, Level};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// The rows of the table whose head begins so, in cells.
fn table(text: &str, head: &str) -> Vec<Vec<String>> {
    let rows = text.lines().skip_while(|line| !line.starts_with(head)).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    let cells = |row: &str| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    rows.map(cells).collect()
}

/// How engines are called in texts.
const NAMES: [(&str, &str); 7] = [
    ("sqlite", "SQLite"),
    ("postgres", "PostgreSQL"),
    ("mysql", "MySQL"),
    ("redis", "Redis"),
    ("redlock", "Redlock"),
    ("etcd", "etcd"),
    ("zookeeper", "ZooKeeper"),
];

fn of(engine: &str) -> Vec<Guarantees> {
    fencelock::deployments().into_iter().filter(|found| found.engine() == engine).collect()
}

/// The highest level by what servers show, and by what has to be attested beside.
fn levels(engine: &str) -> String {
    let found = of(engine);
    // What a newer version proves may be attested of an older one.
    let is_attested =
        |found: &Guarantees| found.deployment().ends_with(" attested") && !found.deployment().contains(", or `");
    let highest = |attested: bool| {
        found.iter().filter(|found| is_attested(found) == attested).filter_map(Guarantees::level).max()
    };
    match (highest(false).unwrap(), highest(true)) {
        (shown, Some(said)) if said > shown => format!("`{shown}`; `{said}` attested"),
        (shown, _) => format!("`{shown}`"),
    }
}

fn compared() -> String {
    type Cell = fn(&str) -> String;
    type Row<'a> = (&'a str, &'a dyn Fn(&str) -> String);
    let has = |engine: &str, capability| of(engine).iter().all(|found| found.has(capability));
    fn yes(has: bool) -> String {
        if has { "yes" } else { "no" }.to_owned()
    }
    let leans =
        |engine: &str| of(engine).iter().any(|found| found.assumptions().any(|it| it == Assumption::ServerClock));
    let rows: [Row<'_>; 8] = [
        ("reach", &|engine| match of(engine).first().unwrap().scope().to_string().as_str() {
            "host" => "one host".to_owned(),
            reach => reach.to_owned(),
        }),
        ("highest level", &(levels as Cell)),
        ("served in order", &|engine| yes(has(engine, Capability::Fifo))),
        ("told of a release", &|engine| yes(has(engine, Capability::NotifiedWaiting))),
        ("tells its holder of a loss", &|engine| {
            if has(engine, Capability::PushLoss) { "at once" } else { "at the next renewal" }.to_owned()
        }),
        ("a forward step of the server's clock", &|engine| match (leans(engine), engine) {
            (false, _) => "harmless".to_owned(),
            (true, "redlock") => {
                "two holders, if a majority's is stepped, or that of the one node which two majorities share".to_owned()
            }
            (true, _) => "two holders".to_owned(),
        }),
        ("a check of the lock in the data's own transaction", &|engine| yes(has(engine, Capability::InStoreGuard))),
        ("shortest ttl", &|engine| {
            match engine {
                "etcd" => "2 s, as etcd comes",
                "zookeeper" => "the session",
                _ => "50 ms",
            }
            .to_owned()
        }),
    ];
    let mut text = String::from("| |");
    text.extend(NAMES.iter().map(|(_, name)| format!(" {name} |")));
    text.push_str(&format!("\n|---|{}\n", "---|".repeat(NAMES.len())));
    for (head, cell) in rows {
        let cells: String = NAMES.iter().map(|(engine, _)| format!(" {} |", cell(engine))).collect();
        text.push_str(&format!("| {head} |{cells}\n"));
    }
    text
}

/// With `FENCELOCK_KEEP=1` it is written.
#[test]
fn the_guide_compares_engines_by_what_they_say() {
    let path = root().join("crates/fencelock/guides/choosing.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (begin, end) = ("<!-- engines:begin -->\n", "<!-- engines:end -->");
    let (before, rest) = text.split_once(begin).unwrap();
    let (there, after) = rest.split_once(end).unwrap();
    let right = compared();
    if std::env::var_os("FENCELOCK_KEEP").is_some() {
        std::fs::write(&path, [before, begin, &right, end, after].concat()).unwrap();
        return;
    }
    assert_eq!(there, right, "the guide should say:\n\n{right}");
    assert!(AcquireOptions::default().with_ttl(Duration::from_millis(50)).checked().is_ok());
    assert!(AcquireOptions::default().with_ttl(Duration::from_millis(49)).checked().is_err());
}

#[test]
fn the_readme_names_all_levels_and_assumptions() {
    let readme = read("README.md");
    let rows = table(&readme, "| level | promises |");
    let named: Vec<_> = rows.iter().filter_map(|row| row.first().cloned()).collect();
    assert_eq!(named, Level::ALL.map(|level| format!("`{level}`")));
    for assumption in Assumption::ALL {
        assert!(readme.contains(&format!("**{}** ", assumption.id())), "{}", assumption.id());
    }
    // Each is given by some deployment, and `fenced` is the lowest that does without T1 to T3, as the table says.
    let given: BTreeSet<_> = fencelock::deployments().iter().filter_map(Guarantees::level).collect();
    assert_eq!(given.into_iter().collect::<Vec<_>>(), Level::ALL);
}

/// "Which engine when" names for each engine no level that it has not, and the highest that it has.
#[test]
fn the_readme_promises_no_level_that_an_engine_has_not() {
    let readme = read("README.md");
    let (_, section) = readme.split_once("## Which engine when").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    for (engine, name) in NAMES {
        let item = section.split("\n- ").find(|item| item.contains(&format!("**{name}**"))).unwrap();
        let item = item.split("\n\n").next().unwrap();
        let given: BTreeSet<_> = of(engine).iter().filter_map(Guarantees::level).collect();
        let named: BTreeSet<_> = Level::ALL.into_iter().filter(|level| item.contains(&format!("`{level}`"))).collect();
        assert!(named.is_subset(&given), "{engine}: {named:?} of {given:?}");
        let shown = levels(engine);
        assert!(engine == "sqlite" || named.iter().any(|level| shown.starts_with(&format!("`{level}`"))), "{engine}");
    }
}

#[test]
fn what_the_readme_says_of_ours_beside_others_is_so() {
    let readme = read("README.md");
    let rows = table(&readme, "| | lease and renewal |");
    let ours = rows.last().unwrap();
    assert!(ours.get(1).unwrap().starts_with("30 s unless set"), "{ours:?}");
    assert_eq!(AcquireOptions::default().ttl, Duration::from_secs(30));
    // Every cell of the others has its source, and every source is used.
    let (_, sources) = readme.split_once("| **fencelock** |").unwrap();
    let (sources, _) = sources.split_once("\n## ").unwrap();
    let mark = |c: char| "⁰¹²³⁴⁵⁶⁷⁸⁹".contains(c);
    let marks = |text: &str| -> BTreeSet<String> {
        text.split(|c| !mark(c)).filter(|mark| !mark.is_empty()).map(str::to_owned).collect()
    };
    let (mut used, others) = (BTreeSet::new(), rows.len() - 1);
    for row in rows.iter().take(others) {
        for cell in row.iter().skip(1) {
            assert!(!marks(cell).is_empty(), "`{cell}` has no source");
            used.extend(marks(cell));
        }
    }
    assert_eq!(used, marks(sources));
    // The version that is spoken of is the one that ours is measured beside.
    let lock = read("Cargo.lock");
    if let Some((_, rest)) = lock.split_once("name = \"rslock\"\nversion = \"") {
        let version = rest.split('"').next().unwrap();
        assert!(sources.contains(&format!("rslock {version}")), "it is measured beside rslock {version}");
    }
}

/// Both tables of exit codes have all that there are, and no other.
#[test]
fn exit_codes_are_those_of_the_program() {
    let code = |line: &str| {
        let number: u8 =
            line.strip_prefix("pub(crate) const ")?.split_once(": u8 = ")?.1.strip_suffix(';')?.parse().ok()?;
        (number >= 64).then_some(number)
    };
    let right: BTreeSet<_> = read("crates/cli/src/exit.rs").lines().filter_map(code).collect();
    assert!(right.len() > 5, "{right:?}");
    for (file, head) in [("README.md", "| exit code |"), ("crates/cli/README.md", "| code |")] {
        let numbers = |row: Vec<String>| {
            let cell = row.first().unwrap().clone();
            cell.split([',', ' ']).filter_map(|word| word.parse().ok()).collect::<Vec<u8>>()
        };
        let told: BTreeSet<u8> = table(&read(file), head).into_iter().flat_map(numbers).collect();
        // 128 and what is above are signals.
        let told: BTreeSet<_> = told.into_iter().filter(|code| *code < 128).collect();
        assert_eq!(told, right, "{file}");
    }
}
