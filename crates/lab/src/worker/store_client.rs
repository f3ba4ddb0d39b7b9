//! A worker's connection to what it guards.

use crate::store::{Ask, Check, Told};
use fencelock_testkit::history::GateAnswer;
use std::io;
use std::net::Ipv4Addr;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

pub(super) struct StoreClient {
    connection: BufReader<TcpStream>,
}

impl StoreClient {
    pub(super) async fn connect(port: u16) -> io::Result<Self> {
        let connection = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        connection.set_nodelay(true)?;
        Ok(Self { connection: BufReader::new(connection) })
    }

    pub(super) async fn ask(&mut self, ask: &Ask) -> io::Result<Told> {
        let mut line = serde_json::to_string(ask)?;
        line.push('\n');
        self.connection.get_mut().write_all(line.as_bytes()).await?;
        line.clear();
        self.connection.read_line(&mut line).await?;
        Ok(serde_json::from_str(&line)?)
    }

    pub(super) async fn read(&mut self, resource: &str) -> io::Result<Vec<u64>> {
        Ok(self.ask(&Ask::Read { resource: resource.to_owned() }).await?.value)
    }

    pub(super) async fn write(&mut self, resource: &str, value: Vec<u64>, check: Check) -> io::Result<GateAnswer> {
        let told = self.ask(&Ask::Write { resource: resource.to_owned(), value, check }).await?;
        Ok(if told.accepted { GateAnswer::Accepted } else { GateAnswer::Stale })
    }
}
