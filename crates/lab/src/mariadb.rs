//! One MariaDB.

use crate::certificates::Certificates;
use crate::faketime::Clock;
use crate::free_port;
use crate::process::{Failure, Server};
use crate::template::{self, User};
use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A MariaDB server (`mariadbd` on the PATH, or `FENCELOCK_MARIADBD`).
///
/// The user is `root`, without a password; there is a database `test`.
#[derive(Debug)]
pub struct MariaDb {
    server: Server,
    address: SocketAddr,
    user: User,
    clock: Option<Clock>,
}

impl MariaDb {
    /// A server that does not wait for the disk.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn start() -> Result<Self, Failure> {
        Self::start_with(["--innodb-flush-log-at-trx-commit=0", "--innodb-flush-method=nosync"])
    }

    /// A server with the durable settings that it comes with.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn start_durable() -> Result<Self, Failure> {
        Self::start_with(["--innodb-flush-log-at-trx-commit=1"])
    }

    /// The same, on a wall clock that can be [set](Self::clock) by libfaketime.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn start_durable_with_clock() -> Result<Self, Failure> {
        Self::start_as(["--innodb-flush-log-at-trx-commit=1"], |_, _| Ok(Vec::new()), true)
    }

    /// Its clock, if it was started with one that can be set.
    ///
    /// # Errors
    /// If it was not.
    pub fn clock(&self) -> Result<&Clock, Failure> {
        self.clock.as_ref().ok_or_else(|| Failure::new("this server's clock cannot be set"))
    }

    /// Kills it and starts it again with a new data folder: nothing of what it knew is left.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn wipe(&mut self) -> Result<(), Failure> {
        self.server.kill();
        std::fs::remove_dir_all(self.server.folder().join("data"))?;
        fresh(self.user, self.server.folder())?;
        self.restart()
    }

    /// Runs one statement as `root`.
    ///
    /// # Errors
    /// What the server or `mariadb` (Debian package `mariadb-client-core`) said.
    pub fn sql(&self, statement: &str) -> Result<(), Failure> {
        let port = self.address.port().to_string();
        let mut client = Command::new("mariadb");
        client.args(["--no-defaults", "-h", "127.0.0.1", "-u", "root", "-P", &port, "test", "-e", statement]);
        template::run(&mut client)
    }

    /// A server with these settings on top of a free port and its own folder.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn start_with<S: Into<String>>(settings: impl IntoIterator<Item = S>) -> Result<Self, Failure> {
        Self::start_on(settings, |_, _| Ok(Vec::new()))
    }

    /// A server that lets nobody in without TLS, with the certificate of `server`.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn start_with_tls(certificates: &Certificates) -> Result<Self, Failure> {
        Self::start_secure(certificates, "")
    }

    /// The same, where who connects through TCP has to show a certificate by the same authority.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn start_with_client_tls(certificates: &Certificates) -> Result<Self, Failure> {
        Self::start_secure(certificates, "ALTER USER root@127.0.0.1 REQUIRE X509;\n")
    }

    /// `first` is what the server does when it has started.
    fn start_secure(certificates: &Certificates, first: &str) -> Result<Self, Failure> {
        let settings = ["--innodb-flush-method=nosync", "--require-secure-transport=ON"];
        Self::start_on(settings, |user, folder| {
            let init = certificates.path("init.sql");
            std::fs::write(&init, first)?;
            user.give(&init, &folder.join("init.sql"))?;
            let mut more = vec![format!("--init-file={}", folder.join("init.sql").display())];
            for (setting, file) in [("cert", "server.crt"), ("key", "server.key"), ("ca", "ca.pem")] {
                user.give(&certificates.path(file), &folder.join(file))?;
                more.push(format!("--ssl-{setting}={}", folder.join(file).display()));
            }
            Ok(more)
        })
    }

    /// A Galera cluster of one node (Debian package `galera-4`).
    ///
    /// # Errors
    /// If it does not come up.
    pub fn start_galera() -> Result<Self, Failure> {
        let library =
            std::env::var("FENCELOCK_GALERA").unwrap_or_else(|_| "/usr/lib/galera/libgalera_smm.so".to_owned());
        let port = free_port();
        let settings = [
            "--wsrep-on=ON".to_owned(),
            format!("--wsrep-provider={library}"),
            "--wsrep-cluster-address=gcomm://".to_owned(),
            format!(
                "--wsrep-provider-options=base_port={port};gcache.size=8M;gmcast.listen_addr=tcp://127.0.0.1:{port}"
            ),
            "--wsrep-node-address=127.0.0.1".to_owned(),
            "--binlog-format=ROW".to_owned(),
            "--innodb-autoinc-lock-mode=2".to_owned(),
            "--innodb-flush-log-at-trx-commit=1".to_owned(),
        ];
        Self::start_with(settings)
    }

    /// A server to whose settings `make` adds, given its user and its folder.
    fn start_on<S: Into<String>>(
        settings: impl IntoIterator<Item = S>,
        make: impl FnOnce(User, &Path) -> Result<Vec<String>, Failure>,
    ) -> Result<Self, Failure> {
        Self::start_as(settings, make, false)
    }

    fn start_as<S: Into<String>>(
        settings: impl IntoIterator<Item = S>,
        make: impl FnOnce(User, &Path) -> Result<Vec<String>, Failure>,
        clocked: bool,
    ) -> Result<Self, Failure> {
        let (user, port) = (User::instead_of_root("nobody"), free_port());
        let user = if std::fs::read_to_string("/etc/passwd").is_ok_and(|users| users.contains("\nmysql:")) {
            User::instead_of_root("mysql")
        } else {
            user.with_group("nogroup")
        };
        let [own, words @ ..] = &*user.prefix() else { return Err(Failure::new("no program")) };
        let server = Server::new(own, "mariadb-server")?;
        let data = fresh(user, server.folder())?;
        let clock = if clocked { Some(Clock::in_folder(server.folder())?) } else { None };
        let clocking = clock.iter().flat_map(|clock| ["env".to_owned()].into_iter().chain(clock.environment()));
        let more = make(user, server.folder())?;
        let folder = server.folder().display().to_string();
        let program = std::env::var("FENCELOCK_MARIADBD").unwrap_or_else(|_| "mariadbd".to_owned());
        let server = server
            .with_arguments(words.iter().cloned())
            .with_arguments(clocking)
            .with_arguments([program, "--no-defaults".to_owned(), format!("--datadir={}", data.display())])
            .with_arguments([format!("--port={port}"), format!("--socket={folder}/s.sock")])
            .with_arguments([format!("--pid-file={folder}/pid")])
            // A server that starts deletes what it takes for leftovers there, another's too.
            .with_arguments([format!("--tmpdir={folder}")])
            .with_arguments(["--bind-address=127.0.0.1", "--skip-name-resolve", "--performance-schema=OFF"])
            .with_arguments(["--innodb-buffer-pool-size=16M", "--innodb-log-file-size=8M", "--key-buffer-size=1M"])
            .with_arguments(["--aria-pagecache-buffer-size=1M"])
            .with_arguments(settings)
            .with_arguments(more);
        let mut mariadb = Self { server, address: (Ipv4Addr::LOCALHOST, port).into(), user, clock };
        mariadb.restart()?;
        Ok(mariadb)
    }

    /// Starts it again after [`Server::kill`], on the same port and data.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn restart(&mut self) -> Result<(), Failure> {
        let address = self.address;
        self.server.start(|| greets(address))
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A URL for everybody's first connection.
    #[must_use]
    pub fn url(&self) -> String {
        format!("mysql://root@{}/test", self.address)
    }

    /// Its process.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Its process, to kill it.
    pub fn server_mut(&mut self) -> &mut Server {
        &mut self.server
    }
}

/// A new data folder.
fn fresh(user: User, folder: &Path) -> Result<PathBuf, Failure> {
    let [own, words @ ..] = &*user.prefix() else { return Err(Failure::new("no program")) };
    template::data(folder, "mariadb", user, |data| {
        let mut install = Command::new(own);
        install.args(words).args(["mariadb-install-db", "--no-defaults", "--skip-test-db"]);
        install.arg("--auth-root-authentication-method=normal").arg(format!("--datadir={}", data.display()));
        // Where several use one folder, each removes the temporary tables of the others.
        install.env("TMPDIR", folder);
        template::run(&mut install)?;
        // A folder is a database.
        template::run(Command::new(own).args(words).arg("mkdir").arg(data.join("test")))
    })
}

/// Whether it greets, as it does everyone who may come in.
fn greets(address: SocketAddr) -> bool {
    let limit = Duration::from_millis(300);
    let Ok(mut stream) = TcpStream::connect_timeout(&address, limit) else { return false };
    let mut greeting = [0; 5];
    // The fifth byte is the protocol's version; of an error it would be another.
    stream.set_read_timeout(Some(limit)).is_ok()
        && stream.read_exact(&mut greeting).is_ok()
        && greeting.ends_with(&[10])
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn it_starts_freezes_dies_and_comes_back() {
        let mut mariadb = MariaDb::start().unwrap();
        assert!(greets(mariadb.address()));
        mariadb.server().stop();
        assert!(!greets(mariadb.address()));
        mariadb.server().cont();
        assert!(greets(mariadb.address()));
        mariadb.server_mut().kill();
        assert!(!greets(mariadb.address()));
        mariadb.restart().unwrap();
        assert!(greets(mariadb.address()));
    }
}
