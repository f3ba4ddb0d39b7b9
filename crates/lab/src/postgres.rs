//! One PostgreSQL.

use crate::certificates::Certificates;
use crate::faketime::Clock;
use crate::free_port;
use crate::process::{Failure, Server, until_stopped};
use crate::remains;
use crate::template::{self, User};
use rustix::process::{Pid, Signal, kill_process};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A PostgreSQL server of the newest version that is installed (or in `FENCELOCK_POSTGRES_BIN`).
///
/// The superuser is `test`, without a password, in the database `postgres`.
#[derive(Debug)]
pub struct Postgres {
    server: Server,
    address: SocketAddr,
    programs: PathBuf,
    user: User,
    clock: Option<Clock>,
}

impl Postgres {
    /// A server that does not wait for the disk.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn start() -> Result<Self, Failure> {
        Self::start_with(["fsync=off", "full_page_writes=off"])
    }

    /// A server with the durable settings that it comes with.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn start_durable() -> Result<Self, Failure> {
        Self::start_with::<&str>([])
    }

    /// The same, on a wall clock that can be [set](Self::clock) by libfaketime.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn start_durable_with_clock() -> Result<Self, Failure> {
        Self::start_as::<&str>([], fresh, true)
    }

    /// Its clock, if it was started with one that can be set.
    ///
    /// # Errors
    /// If it was not.
    pub fn clock(&self) -> Result<&Clock, Failure> {
        self.clock.as_ref().ok_or_else(|| Failure::new("this server's clock cannot be set"))
    }

    /// A server with these settings (`name=value`) on top of a free port and its own folder.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn start_with<S: AsRef<str>>(settings: impl IntoIterator<Item = S>) -> Result<Self, Failure> {
        Self::start_on(settings, fresh)
    }

    /// A server that lets nobody in through TCP without TLS, with the certificate of `server`.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn start_with_tls(certificates: &Certificates) -> Result<Self, Failure> {
        Self::start_secure(certificates, "trust")
    }

    /// The same, where who connects has to show the certificate of `client`, which is for the user `test`.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn start_with_client_tls(certificates: &Certificates) -> Result<Self, Failure> {
        Self::start_secure(certificates, "cert map=lab")
    }

    fn start_secure(certificates: &Certificates, method: &str) -> Result<Self, Failure> {
        let files = ["ssl_cert_file=../server.crt", "ssl_key_file=../server.key", "ssl_ca_file=../ca.pem"];
        Self::start_on(["fsync=off", "ssl=on"].into_iter().chain(files), |programs, user, folder| {
            let data = fresh(programs, user, folder)?;
            for file in ["server.crt", "server.key", "ca.pem"] {
                user.give(&certificates.path(file), &folder.join(file))?;
            }
            std::fs::write(data.join("pg_hba.conf"), format!("hostssl all all 127.0.0.1/32 {method}\n"))?;
            std::fs::write(data.join("pg_ident.conf"), "lab client test\n")?;
            Ok(data)
        })
    }

    /// A streaming standby of this one, called `name`, with these settings.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn start_standby(&self, name: &str, settings: &[&str]) -> Result<Self, Failure> {
        let named = format!("cluster_name={name}");
        Self::start_on(settings.iter().copied().chain([&*named]), |programs, user, folder| {
            use std::os::unix::fs::PermissionsExt as _;
            std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755))?;
            user.own(folder)?;
            let data = folder.join("data");
            let mut copy = user.command(programs.join("pg_basebackup"));
            copy.arg("-D").arg(&data).args(["-h", "127.0.0.1", "-p", &self.address.port().to_string()]);
            template::run(copy.args(["-U", "test", "-R", "-X", "stream", "-c", "fast", "--no-sync"]))?;
            Ok(data)
        })
    }

    /// Makes this standby a primary.
    ///
    /// # Errors
    /// If it does not become one.
    pub fn promote(&self) -> Result<(), Failure> {
        let mut promote = self.user.command(self.programs.join("pg_ctl"));
        template::run(promote.args(["promote", "-w", "-s", "-D"]).arg(self.server.folder().join("data")))
    }

    /// Runs one statement as its owner.
    ///
    /// # Errors
    /// What the server or `psql` said.
    pub fn sql(&self, statement: &str) -> Result<(), Failure> {
        let port = self.address.port().to_string();
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args(["-X", "-q", "-h", "127.0.0.1", "-U", "test", "-d", "postgres", "-p", &port, "-c", statement]);
        template::run(&mut psql)
    }

    /// A server whose data `make` makes, given the programs' folder, the server's user and its folder.
    fn start_on<S: AsRef<str>>(
        settings: impl IntoIterator<Item = S>,
        make: impl FnOnce(&Path, User, &Path) -> Result<PathBuf, Failure>,
    ) -> Result<Self, Failure> {
        Self::start_as(settings, make, false)
    }

    fn start_as<S: AsRef<str>>(
        settings: impl IntoIterator<Item = S>,
        make: impl FnOnce(&Path, User, &Path) -> Result<PathBuf, Failure>,
        clocked: bool,
    ) -> Result<Self, Failure> {
        let programs = programs()?;
        let (user, port) = (User::instead_of_root("postgres"), free_port());
        let [own, words @ ..] = &*user.prefix() else { return Err(Failure::new("no program")) };
        let server = Server::new(own, "postgresql")?;
        let data = make(&programs, user, server.folder())?;
        let clock = if clocked { Some(Clock::in_folder(server.folder())?) } else { None };
        let mut arguments = words.to_vec();
        if let Some(clock) = &clock {
            arguments.push("env".to_owned());
            arguments.extend(clock.environment());
        }
        arguments.extend([programs.join("postgres"), "-D".into(), data].map(|path| path.display().to_string()));
        let folder = server.folder().display().to_string();
        for setting in [
            format!("port={port}"),
            "listen_addresses=127.0.0.1".to_owned(),
            format!("unix_socket_directories={folder}"),
            "shared_buffers=16MB".to_owned(),
            // In its folder, which is removed with it.
            "dynamic_shared_memory_type=mmap".to_owned(),
        ] {
            arguments.extend(["-c".to_owned(), setting]);
        }
        for setting in settings {
            arguments.extend(["-c".to_owned(), setting.as_ref().to_owned()]);
        }
        let server = server.with_arguments(arguments);
        let mut postgres = Self { server, address: (Ipv4Addr::LOCALHOST, port).into(), programs, user, clock };
        postgres.restart()?;
        Ok(postgres)
    }

    /// Starts it again after [`Server::kill`], on the same port and data.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn restart(&mut self) -> Result<(), Failure> {
        let (programs, port) = (self.programs.clone(), self.address.port().to_string());
        let mut last = Failure::new("not tried");
        // Its old processes take a moment to see that the first of them is gone, and let nobody in until then.
        for _ in 0..50 {
            let ready = || {
                let mut asks = Command::new(programs.join("pg_isready"));
                asks.args(["-q", "-h", "127.0.0.1", "-t", "1", "-U", "test", "-d", "postgres", "-p", &port]);
                asks.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
            };
            match self.server.start(ready) {
                Ok(()) => return Ok(()),
                Err(failure) => last = failure,
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Err(last)
    }

    /// Kills it and starts it again with a new data folder: nothing of what it knew is left.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn wipe(&mut self) -> Result<(), Failure> {
        self.server.kill();
        let data = self.server.folder().join("data");
        remains::of_postgres(&data);
        std::fs::remove_dir_all(data)?;
        fresh(&self.programs, self.user, self.server.folder())?;
        self.restart()
    }

    /// Freezes all its processes: connections stay open, nothing is answered.
    pub fn freeze(&self) {
        self.server.stop();
        // The first is stopped, so no new ones come meanwhile.
        self.each_child(Signal::STOP);
        self.children().for_each(|child| until_stopped(child.as_raw_nonzero().get().unsigned_abs()));
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        self.each_child(Signal::CONT);
        self.server.cont();
    }

    fn each_child(&self, signal: Signal) {
        self.children().for_each(|child| {
            let _ = kill_process(child, signal);
        });
    }

    fn children(&self) -> impl Iterator<Item = Pid> {
        let path = self.server.id().map(|parent| format!("/proc/{parent}/task/{parent}/children"));
        let children = path.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
        let ids: Vec<_> = children.split_whitespace().filter_map(|id| Pid::from_raw(id.parse().ok()?)).collect();
        ids.into_iter()
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A URL for everybody's first connection.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://test@{}/postgres", self.address)
    }

    /// Its first process.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Its first process, to kill it: the others end with it.
    pub fn server_mut(&mut self) -> &mut Server {
        &mut self.server
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // What is frozen does not see that the first process is gone.
        self.thaw();
        self.server.kill();
        remains::of_postgres(&self.server.folder().join("data"));
    }
}

/// A new data folder.
fn fresh(programs: &Path, user: User, folder: &Path) -> Result<PathBuf, Failure> {
    let version = programs.parent().and_then(Path::file_name).map(|name| name.display().to_string());
    template::data(folder, &format!("postgres-{}", version.unwrap_or_default()), user, |data| {
        let mut initdb = user.command(programs.join("initdb"));
        initdb.arg("-D").arg(data).env("LC_ALL", "C");
        template::run(initdb.args(["-U", "test", "-A", "trust", "--no-sync", "--locale=C", "-E", "UTF8"]))
    })
}

fn programs() -> Result<PathBuf, Failure> {
    if let Ok(folder) = std::env::var("FENCELOCK_POSTGRES_BIN") {
        return Ok(folder.into());
    }
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = versions.filter_map(|found| {
        let number: u32 = found.file_name().to_str()?.parse().ok()?;
        Some((number, found.path().join("bin"))).filter(|(_, folder)| folder.join("postgres").exists())
    });
    newest.max().map(|(_, folder)| folder).ok_or_else(|| Failure::new("no PostgreSQL (Debian package postgresql)"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    /// Whether it answers a question for TLS, which every process of it does.
    fn answers(postgres: &Postgres) -> bool {
        let Ok(mut stream) = TcpStream::connect(postgres.address()) else { return false };
        stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let asked = stream.write_all(&[0, 0, 0, 8, 4, 210, 22, 47]);
        asked.is_ok() && stream.read(&mut [0]).is_ok_and(|read| read == 1)
    }

    #[test]
    fn it_starts_freezes_dies_and_comes_back() {
        let mut postgres = Postgres::start().unwrap();
        assert!(answers(&postgres));
        postgres.freeze();
        assert!(!answers(&postgres));
        postgres.thaw();
        assert!(answers(&postgres));
        postgres.server_mut().kill();
        assert!(!answers(&postgres));
        postgres.restart().unwrap();
        assert!(answers(&postgres));
    }
}
