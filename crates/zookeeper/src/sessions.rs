//! One session after another.

use crate::config::ZooKeeperConfig;
use crate::line::Line;
use crate::session::Session;
use crate::voids::Voids;
use fencelock_core::{Error, ErrorKind, Result};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// What all handles and leases of an engine share.
pub(crate) struct Inner {
    pub(crate) config: ZooKeeperConfig,
    pub(crate) voids: Voids,
    pub(crate) line: Line,
    current: Mutex<Arc<Session>>,
    /// Sessions of ours that the servers may not have ended yet.
    former: Mutex<Vec<i64>>,
    /// Held by who opens a session; when that failed last, and how.
    opening: tokio::sync::Mutex<Option<(Instant, String)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    pub(crate) async fn connect(config: ZooKeeperConfig) -> Result<Self> {
        let session = Session::open(&config, None).await?;
        Ok(Self {
            config,
            voids: Voids::new(session.tempo.session * 2),
            line: Line::default(),
            current: Mutex::new(session),
            former: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
        })
    }

    pub(crate) fn current(&self) -> Arc<Session> {
        Arc::clone(&lock(&self.current))
    }

    fn live(&self) -> Option<Arc<Session>> {
        Some(self.current()).filter(|session| !session.has_ended())
    }

    /// The present session, or a new one if it has ended.
    ///
    /// # Cancel safety
    /// A session that is being opened goes on being opened, for whoever asks next.
    pub(crate) async fn session(self: &Arc<Self>) -> Result<Arc<Session>> {
        if let Some(session) = self.live() {
            return Ok(session);
        }
        let (inner, asked) = (Arc::clone(self), Instant::now());
        let opening = tokio::spawn(async move { inner.reopen(asked).await });
        opening.await.unwrap_or_else(|_| Err(Error::new(ErrorKind::Unavailable, "the runtime is going down")))
    }

    async fn reopen(&self, asked: Instant) -> Result<Arc<Session>> {
        let mut last_failure = self.opening.lock().await;
        if let Some(session) = self.live() {
            return Ok(session);
        }
        // Whoever waited for another's attempt shares its failure, instead of each making one in turn.
        if let Some((when, why)) = &*last_failure
            && *when > asked
        {
            return Err(Error::new(ErrorKind::Unavailable, why.clone()));
        }
        let ended = self.current();
        match Session::open(&self.config, Some(&ended)).await {
            Ok(opened) => {
                // Forgets those that are over, so that they do not pile up.
                let _ = self.former_have_ended(&opened).await;
                lock(&self.former).push(ended.id);
                *lock(&self.current) = Arc::clone(&opened);
                Ok(opened)
            }
            Err(e) => {
                *last_failure = Some((Instant::now(), e.message().to_owned()));
                Err(e)
            }
        }
    }

    pub(crate) fn has_former(&self) -> bool {
        !lock(&self.former).is_empty()
    }

    /// Makes sure that nothing of an earlier session can still arrive: the node by
    /// which a session shows that it lives goes when the servers end it, and they refuse what comes after.
    pub(crate) async fn former_have_ended(&self, session: &Session) -> Result<()> {
        let former = lock(&self.former).clone();
        if former.is_empty() {
            return Ok(());
        }
        session.call(session.client.sync(session.keys.root())).await?;
        for id in former {
            let marker = session.client.check_stat(&session.keys.session(id));
            if session.call(marker).await?.is_some_and(|stat| stat.ephemeral_owner == id) {
                return Err(Error::new(
                    ErrorKind::Unavailable,
                    "a request of an earlier session may still arrive, until the servers have ended it",
                ));
            }
            lock(&self.former).retain(|other| *other != id);
        }
        Ok(())
    }
}
