//! What is said of each bad configuration, kept beside this file.
//!
//! `config_errors.txt` holds one case after another: `## ` and what is wrong,
//! lines `$ NAME=value` of the environment, the file's text, `=> ` and the
//! message. On a difference the right file is printed, to be copied.
#![allow(clippy::expect_used)] // in helpers, which clippy does not take for tests

mod posing;

use fencelock::{Config, Environment, ErrorKind, Result};
use std::collections::HashSet;

const CASES: &str = include_str!("config_errors.txt");
/// What stands for a password in the cases.
const SECRET: &str = "hunter2";

struct Case {
    title: String,
    variables: Vec<(String, String)>,
    file: String,
    told: String,
}

fn cases() -> Vec<Case> {
    let text = CASES.strip_prefix("## ").expect("the first case");
    text.split("\n## ").map(Case::parse).collect()
}

impl Case {
    fn parse(text: &str) -> Self {
        let (title, rest) = text.split_once('\n').expect("a title");
        let mut case =
            Self { title: title.to_owned(), variables: Vec::new(), file: String::new(), told: String::new() };
        for line in rest.lines() {
            if let Some(variable) = line.strip_prefix("$ ") {
                let (name, value) = variable.split_once('=').expect("NAME=value");
                case.variables.push((name.to_owned(), value.to_owned()));
            } else if let Some(told) = line.strip_prefix("=> ") {
                case.told = told.to_owned();
            } else if !line.is_empty() {
                case.file.push_str(line);
                case.file.push('\n');
            }
        }
        case
    }

    /// What connecting comes to. Nothing is sent anywhere.
    async fn run(&self) -> Result<()> {
        let environment = Environment::new(self.variables.iter().map(|(name, value)| (name, value)));
        let config = if self.variables.iter().any(|(name, _)| name == "FENCELOCK_CONFIG") {
            Config::load_in(&environment)?
        } else {
            Config::from_toml(&self.file, "fencelock.toml")?.with_environment(&environment)?
        };
        config.builder().registry(posing::registry()).connect().await.map(drop)
    }

    fn print(&self, told: &str) -> String {
        let variables: String = self.variables.iter().map(|(name, value)| format!("$ {name}={value}\n")).collect();
        format!("## {}\n{variables}{}=> {told}\n", self.title, self.file)
    }
}

#[tokio::test]
async fn each_bad_configuration_has_its_own_message() {
    let (mut right, mut differing, mut messages) = (Vec::new(), Vec::new(), HashSet::new());
    for case in cases() {
        let title = &case.title;
        let e = case.run().await.expect_err(title);
        assert!(matches!(e.kind(), ErrorKind::InvalidConfig | ErrorKind::Refused), "{title}: {e}");
        assert!(!format!("{e} {e:?}").contains(SECRET), "{title}: {e}");
        assert!(messages.insert(e.message().to_owned()), "{title}: told before: {e}");
        if e.message() != case.told {
            differing.push(title.clone());
        }
        right.push(case.print(e.message()));
    }
    assert!(right.len() >= 30, "{} cases", right.len());
    assert!(differing.is_empty(), "not as kept: {differing:?}\nThe right file:\n\n{}", right.join("\n"));
}
