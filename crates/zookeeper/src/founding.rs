//! What has to be there before a session is of use: the root, the layout's version, the session's own node.

use crate::failure::Failure;
use crate::keys::LAYOUT;
use crate::session::{Session, unavailable};
use fencelock_core::{Error, ErrorKind, Result};
use zookeeper_client::CreateMode;

/// How often making what is missing may lose the race against its removal.
const TRIES: u32 = 5;

impl Session {
    /// Checks the layout and makes the node that shows that the session lives.
    pub(crate) async fn settle(&self) -> Result<()> {
        let marker = self.keys.session(self.id);
        for _ in 0..TRIES {
            match self.call(self.client.get_data(&self.keys.layout())).await {
                Ok((data, _)) if data == LAYOUT.as_bytes() => {}
                Ok((data, _)) => {
                    let theirs = String::from_utf8_lossy(&data).into_owned();
                    let message = format!(
                        "{} is in use with layout {}, this program has {LAYOUT}: both would lock without seeing each other",
                        self.keys.root(),
                        theirs.escape_debug()
                    );
                    return Err(Error::new(ErrorKind::Refused, message));
                }
                Err(Failure::NoNode) => self.found().await?,
                Err(e) => return Err(e.into()),
            }
            match self.call(self.client.create(&marker, &[], &self.with_mode(CreateMode::Ephemeral))).await {
                Ok((stat, _)) => {
                    self.heard_the_hour(stat.ctime);
                    return Ok(());
                }
                // A repeated request, or what a session of this number left in an earlier life of the server.
                Err(Failure::Exists) => match self.call(self.client.check_stat(&marker)).await? {
                    Some(stat) if stat.ephemeral_owner == self.id => return Ok(()),
                    _ => {
                        self.gone(self.client.delete(&marker, None)).await?;
                    }
                },
                Err(Failure::NoNode) => self.found().await?,
                Err(e) => return Err(e.into()),
            }
        }
        Err(unavailable("the root was removed again and again".to_owned()))
    }

    /// Makes the root and what every program needs under it.
    async fn found(&self) -> Result<()> {
        let lasting = self.with_mode(CreateMode::Persistent);
        self.call(self.client.mkdir(self.keys.root(), &lasting)).await?;
        for (path, data) in [(self.keys.layout(), LAYOUT), (self.keys.sessions(), "")] {
            match self.call(self.client.create(&path, data.as_bytes(), &lasting)).await {
                Ok(_) | Err(Failure::Exists) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }
}
