//! `PgBouncer` before a PostgreSQL.

use crate::free_port;
use crate::postgres::Postgres;
use crate::process::{Failure, Server};
use crate::template::User;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;

/// A pooler in transaction mode, which gives a session of the server's to each transaction.
#[derive(Debug)]
pub struct PgBouncer {
    _server: Server,
    address: SocketAddr,
}

impl PgBouncer {
    /// A pooler before `postgres` with so many sessions.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn before(postgres: &Postgres, sessions: u32) -> Result<Self, Failure> {
        let (user, port) = (User::instead_of_root("postgres"), free_port());
        let [own, words @ ..] = &*user.prefix() else { return Err(Failure::new("no program")) };
        let server = Server::new(own, "pgbouncer")?;
        let folder = server.folder().to_owned();
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755))?;
        let behind = postgres.address();
        let settings = format!(
            "[databases]\n* = host={} port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = trust\nauth_file = {}\npool_mode = transaction\ndefault_pool_size = {sessions}\nmax_client_conn = 1000\n",
            behind.ip(),
            behind.port(),
            folder.join("users").display(),
        );
        std::fs::write(folder.join("users"), "\"test\" \"\"\n")?;
        std::fs::write(folder.join("settings"), settings)?;
        let program = std::env::var("FENCELOCK_PGBOUNCER").unwrap_or_else(|_| "/usr/sbin/pgbouncer".to_owned());
        let mut server = server
            .with_arguments(words.iter().cloned())
            .with_arguments([program, folder.join("settings").display().to_string()]);
        let address = (Ipv4Addr::LOCALHOST, port).into();
        server.start(|| TcpStream::connect(address).is_ok())?;
        Ok(Self { _server: server, address })
    }

    /// A URL for everybody's first connection.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://test@{}/postgres", self.address)
    }
}
