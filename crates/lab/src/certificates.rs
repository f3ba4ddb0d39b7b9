//! Certificates for one run, made by `openssl`.

use crate::process::Failure;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// An authority, and certificates by it for a server at `localhost` and 127.0.0.1 and for a client.
///
/// # Drop
/// Removes the files.
#[derive(Debug)]
pub struct Certificates {
    folder: TempDir,
}

impl Certificates {
    /// New keys and certificates.
    ///
    /// # Errors
    /// If `openssl` (the Debian package of that name) is missing or fails.
    pub fn make() -> Result<Self, Failure> {
        let folder = tempfile::Builder::new().prefix("fencelock-lab-").tempdir()?;
        let made = Self { folder };
        made.openssl("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=lab -keyout ca.key -out ca.pem")?;
        std::fs::write(made.path("names"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n")?;
        for who in ["server", "client"] {
            made.openssl(&format!(
                "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={who} -keyout {who}.key -out {who}.csr"
            ))?;
            made.openssl(&format!(
                "x509 -req -in {who}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 -extfile names -out {who}.crt"
            ))?;
            let both = std::fs::read_to_string(made.path(&format!("{who}.key")))?
                + &std::fs::read_to_string(made.path(&format!("{who}.crt")))?;
            std::fs::write(made.path(&format!("{who}.pem")), both)?;
        }
        Ok(made)
    }

    fn openssl(&self, arguments: &str) -> Result<(), Failure> {
        let output = Command::new("openssl").args(arguments.split(' ')).current_dir(self.folder.path()).output();
        let output = output.map_err(|e| Failure::new(format!("openssl (Debian package openssl): {e}")))?;
        if output.status.success() {
            return Ok(());
        }
        Err(Failure::new(format!("openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr))))
    }

    /// One of `ca.pem`, `server.key`, `server.crt`, `server.pem` (both in one file), and the same for `client`.
    #[must_use]
    pub fn path(&self, file: &str) -> PathBuf {
        Path::new(self.folder.path()).join(file)
    }
}
