//! Waiting to be told, by any node.

use crate::keys::Keys;
use crate::set::Set;
use async_trait::async_trait;
use fencelock_core::{Error, ErrorKind, Hint, Hints, LockName, Result};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How long the first node's word waits for that of a majority: a lock that is freed is free there a moment later.
const GRACE: Duration = Duration::from_millis(5);

pub(crate) struct Ears(pub(crate) Arc<Set>);

enum Said {
    Listening,
    Deaf,
    Freed,
}

#[async_trait]
impl Hints for Ears {
    async fn listen(&self, name: &LockName) -> Result<Box<dyn Hint>> {
        let set = &self.0;
        let keys: &Keys = &set.keys;
        let (waiting, channel) = (keys.waiting(), keys.lock(name));
        let (told, mut said) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        for member in &set.members {
            let (member, waiting, channel, told) = (Arc::clone(member), waiting.clone(), channel.clone(), told.clone());
            tasks.spawn(async move {
                let both = tokio::join!(member.node.listen(&waiting), member.node.listen(&channel));
                let (Ok(mut waits), Ok(mut ear)) = both else {
                    let _ = told.send(Said::Deaf);
                    return;
                };
                let _ = told.send(Said::Listening);
                loop {
                    // Where either was not listened to for some time, something may have been missed.
                    tokio::select! {
                        () = ear.heard() => {}
                        () = waits.heard() => {}
                    }
                    if told.send(Said::Freed).is_err() {
                        return;
                    }
                }
            });
        }
        // Whoever frees it tells on every node that has it: a majority of ears misses nothing.
        let (mut listening, mut deaf) = (0, 0);
        while listening < set.majority() {
            match said.recv().await {
                Some(Said::Listening) => listening += 1,
                Some(Said::Deaf) => deaf += 1,
                Some(Said::Freed) => {}
                None => deaf = set.size(),
            }
            if deaf > set.size() - set.majority() {
                return Err(Error::new(ErrorKind::Unavailable, "no majority of nodes listens for releases"));
            }
        }
        Ok(Box::new(Ear { said, majority: set.majority(), _tasks: tasks }))
    }
}

/// One waiter's ears. Dropping it ends its tasks.
struct Ear {
    said: mpsc::UnboundedReceiver<Said>,
    majority: usize,
    _tasks: JoinSet<()>,
}

impl Ear {
    async fn one(&mut self) {
        loop {
            match self.said.recv().await {
                Some(Said::Freed) => return,
                Some(Said::Listening | Said::Deaf) => {}
                None => std::future::pending().await,
            }
        }
    }
}

#[async_trait]
impl Hint for Ear {
    async fn heard(&mut self) {
        self.one().await;
        let rest = async {
            for _ in 1..self.majority {
                self.one().await;
            }
        };
        let _ = timeout(GRACE, rest).await;
        while self.said.try_recv().is_ok() {}
    }
}
