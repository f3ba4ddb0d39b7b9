//! Data folders that are made once and copied for each server.

use crate::process::Failure;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The user that a server runs as, where this process may choose: most refuse to run as root.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User {
    name: &'static str,
    group: &'static str,
    choose: bool,
}

impl User {
    /// Whoever runs the tests, or `name` if that is root.
    pub(crate) fn instead_of_root(name: &'static str) -> Self {
        Self { name, group: name, choose: rustix::process::geteuid().is_root() }
    }

    /// In this group, where it is not called as the user is.
    pub(crate) fn with_group(self, group: &'static str) -> Self {
        Self { group, ..self }
    }

    /// What comes before a program and its arguments, so that it runs as this user and ends with its parent.
    pub(crate) fn prefix(self) -> Vec<String> {
        let mut words = vec!["setpriv".to_owned(), "--pdeathsig".to_owned(), "KILL".to_owned()];
        if self.choose {
            words.extend([format!("--reuid={}", self.name), format!("--regid={}", self.group)]);
            words.push("--clear-groups".to_owned());
        }
        words
    }

    /// Copies a file for it that nobody else may read, as servers want their keys.
    pub(crate) fn give(self, from: &Path, to: &Path) -> Result<(), Failure> {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::copy(from, to)?;
        std::fs::set_permissions(to, std::fs::Permissions::from_mode(0o600))?;
        self.own(to)
    }

    /// A program that runs as this user.
    pub(crate) fn command(self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("setpriv");
        command.args(self.prefix().iter().skip(1)).arg(program);
        command
    }

    /// Gives it all that is in `folder`.
    pub(crate) fn own(self, folder: &Path) -> Result<(), Failure> {
        if !self.choose {
            return Ok(());
        }
        run(Command::new("chown").arg("-R").arg(format!("{}:{}", self.name, self.group)).arg(folder))
    }
}

/// Makes `folder/data` by copying the template called `name`, which `make` makes where there is none.
///
/// `make` is given the folder that it is to make. Templates are kept under the
/// build's own `target/`, so that a cleaned build cleans them too.
pub(crate) fn data(
    folder: &Path,
    name: &str,
    user: User,
    make: impl FnOnce(&Path) -> Result<(), Failure>,
) -> Result<PathBuf, Failure> {
    use std::os::unix::fs::PermissionsExt as _;
    // Temporary folders are closed to other users.
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755))?;
    user.own(folder)?;
    let data = folder.join("data");
    let template = kept(name);
    if let Some(template) = template.as_ref().filter(|template| template.exists()) {
        copy(template, &data)?;
        return Ok(data);
    }
    make(&data)?;
    if let Some(template) = template {
        // Copied beside it and renamed: another process, or another thread of this one, may do the same at the same
        // time, and the first one's is kept.
        let own = tempfile::Builder::new().prefix(name).tempdir_in(template.parent().unwrap_or(folder))?;
        copy(&data, &own.path().join("data"))?;
        let _ = std::fs::rename(own.path().join("data"), &template);
    }
    Ok(data)
}

fn kept(name: &str) -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let target = program.ancestors().find(|folder| folder.ends_with("target"))?;
    let folder = target.join("lab");
    std::fs::create_dir_all(&folder).ok()?;
    Some(folder.join(name))
}

fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    run(Command::new("cp").arg("-a").arg(from).arg(to))
}

/// Runs a program to its end.
pub(crate) fn run(command: &mut Command) -> Result<(), Failure> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(Failure::new(format!("{} ended with {}: {said}", command.get_program().display(), output.status)))
}
