//! Network namespaces and bridges of a process, by the id that their names hold.

use std::process::Command;

fn listed(arguments: &[&str]) -> String {
    let output = Command::new("ip").args(arguments).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}

/// Whether `name` is one that the process with this id makes: see the library's `Network`.
fn is_of(id: u32, name: &str) -> bool {
    let rest = name.strip_prefix(&format!("flab{id}"));
    rest.is_some_and(|rest| rest.starts_with(|letter: char| letter.is_ascii_lowercase()))
}

/// Removes all that the process with this id has made. Its processes have ended.
pub(super) fn remove_of(id: u32) {
    for host in listed(&["netns", "list"]).lines().filter_map(|line| line.split(' ').next()) {
        if is_of(id, host) {
            listed(&["netns", "del", host]);
        }
    }
    for link in listed(&["-o", "link", "show", "type", "bridge"]).lines().filter_map(|line| line.split(": ").nth(1)) {
        if is_of(id, link) {
            listed(&["link", "del", link]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_with_a_longer_id_keeps_its_own() {
        assert!(is_of(12, "flab12ah0") && is_of(12, "flab12bb"));
        assert!(!is_of(12, "flab123ah0") && !is_of(12, "flab1ah0") && !is_of(12, "eth0"));
    }
}
