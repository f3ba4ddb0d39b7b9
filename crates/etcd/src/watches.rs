//! One stream of events for all that a client watches.
//!
//! Each watch is of one key and hears of its deletion alone. It begins at a
//! revision that its owner has seen, so that nothing between the look and the
//! watch is missed, nor while the stream is opened anew after a break. What
//! cannot be told any more, since the history was compacted, is heard as if it
//! had happened: the owner then looks again.

use crate::members::Members;
use etcd_client::{WatchFilterType, WatchOptions, WatchRequestSender, WatchResponse, WatchStream};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, timeout};

/// How often a stream without events is asked whether it lives, and how long the answer may take.
const PULSE: Duration = Duration::from_secs(5);
/// The pause before a stream is opened anew.
const REST: Duration = Duration::from_millis(50);

enum Command {
    Add(i64, Watched),
    Remove(i64),
}

struct Watched {
    key: String,
    from: i64,
    ear: Arc<Notify>,
}

/// The client's watches.
///
/// # Drop
/// The stream is closed.
pub(crate) struct Watches {
    commands: mpsc::UnboundedSender<Command>,
    ids: AtomicI64,
}

impl Watches {
    pub(crate) fn new(members: Arc<Members>) -> Self {
        let (commands, inbox) = mpsc::unbounded_channel();
        tokio::spawn(serve(members, inbox));
        Self { commands, ids: AtomicI64::new(1) }
    }

    /// Hears of the deletion of `key` after `revision`.
    pub(crate) fn listen(&self, key: &str, revision: i64) -> Ear {
        let id = self.ids.fetch_add(1, Ordering::SeqCst);
        let ear = Arc::new(Notify::new());
        let watched = Watched { key: key.to_owned(), from: revision.saturating_add(1), ear: Arc::clone(&ear) };
        if self.commands.send(Command::Add(id, watched)).is_err() {
            ear.notify_one();
        }
        Ear { id, ear, commands: self.commands.clone() }
    }
}

impl fmt::Debug for Watches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watches").finish_non_exhaustive()
    }
}

/// One watch; dropping it ends it.
pub(crate) struct Ear {
    id: i64,
    ear: Arc<Notify>,
    commands: mpsc::UnboundedSender<Command>,
}

impl Ear {
    /// Ends when the key was deleted, or may have been.
    pub(crate) async fn heard(&self) {
        self.ear.notified().await;
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        let _ = self.commands.send(Command::Remove(self.id));
    }
}

/// Serves until the client is gone, with a new stream after each break.
async fn serve(members: Arc<Members>, mut inbox: mpsc::UnboundedReceiver<Command>) {
    let mut watched = HashMap::new();
    loop {
        // Nothing is watched, so no stream is needed.
        while watched.is_empty() {
            match inbox.recv().await {
                Some(command) => note(&mut watched, command),
                None => return,
            }
        }
        let member = members.current();
        if let Some((stream, first)) = open(&members, member, &watched).await {
            let mut hub = Hub { watched: &mut watched, first, member };
            if hub.run(&members, stream, &mut inbox).await.is_none() {
                return;
            }
        } else {
            members.pass_over(member);
            tokio::time::sleep(REST).await;
        }
        while let Ok(command) = inbox.try_recv() {
            note(&mut watched, command);
        }
    }
}

fn note(watched: &mut HashMap<i64, Watched>, command: Command) {
    match command {
        Command::Add(id, watch) => {
            watched.insert(id, watch);
        }
        Command::Remove(id) => {
            watched.remove(&id);
        }
    }
}

fn options(id: i64, watch: &Watched) -> WatchOptions {
    WatchOptions::new().with_start_revision(watch.from).with_watch_id(id).with_filters([WatchFilterType::NoPut])
}

/// A stream opened with one of the watches; the others are added to it.
async fn open(members: &Members, member: usize, watched: &HashMap<i64, Watched>) -> Option<(WatchStream, i64)> {
    let (id, watch) = watched.iter().next()?;
    let begin = |mut client: etcd_client::Client| async move {
        client.watch(watch.key.as_str(), Some(options(*id, watch))).await
    };
    let opened = timeout(members.limit(), members.ask(member, None, begin)).await;
    opened.ok()?.ok().map(|stream| (stream, *id))
}

struct Hub<'a> {
    watched: &'a mut HashMap<i64, Watched>,
    first: i64,
    member: usize,
}

impl Hub<'_> {
    /// Serves one stream; none when the client is gone, else it is to be opened anew.
    async fn run(
        &mut self,
        members: &Members,
        stream: WatchStream,
        inbox: &mut mpsc::UnboundedReceiver<Command>,
    ) -> Option<()> {
        let (mut requests, mut answers) = stream.split();
        let mut moves = members.moves();
        moves.mark_unchanged();
        let added: Vec<_> = self.watched.keys().copied().filter(|id| *id != self.first).collect();
        for id in added {
            if self.begin(&mut requests, id).await.is_err() {
                return Some(());
            }
        }
        let (mut pulse, mut asked) = (Instant::now() + PULSE, false);
        loop {
            tokio::select! {
                command = inbox.recv() => {
                    if self.obey(&mut requests, command?).await.is_err() {
                        return Some(());
                    }
                }
                answer = answers.message() => {
                    (pulse, asked) = (Instant::now() + PULSE, false);
                    match answer {
                        Ok(Some(answer)) => if self.tell(&answer) {
                            tokio::time::sleep(REST).await;
                            return Some(());
                        },
                        _ => break,
                    }
                }
                // Somebody found this member failing.
                moved = moves.changed() => if moved.is_err() || *moves.borrow() != self.member { return Some(()) },
                () = tokio::time::sleep_until(pulse) => {
                    if asked || within(requests.request_progress()).await.is_err() {
                        break;
                    }
                    (pulse, asked) = (Instant::now() + PULSE, true);
                }
            }
        }
        members.pass_over(self.member);
        tokio::time::sleep(REST).await;
        Some(())
    }

    async fn obey(&mut self, requests: &mut WatchRequestSender, command: Command) -> Result<(), ()> {
        match command {
            Command::Add(id, watch) => {
                self.watched.insert(id, watch);
                self.begin(requests, id).await
            }
            Command::Remove(id) => match self.watched.remove(&id) {
                Some(_) => within(requests.cancel(id)).await,
                None => Ok(()),
            },
        }
    }

    async fn begin(&self, requests: &mut WatchRequestSender, id: i64) -> Result<(), ()> {
        let Some(watch) = self.watched.get(&id) else { return Ok(()) };
        within(requests.watch(watch.key.as_str(), Some(options(id, watch)))).await
    }

    /// Tells whom it concerns; true if the stream is of no use any more.
    fn tell(&self, answer: &WatchResponse) -> bool {
        let Some(watch) = self.watched.get(&answer.watch_id()) else { return false };
        let compacted = answer.compact_revision() > 0;
        if compacted || !answer.events().is_empty() {
            tracing::trace!(target: "fencelock", engine = "etcd", key = watch.key, compacted, "watch heard");
            watch.ear.notify_one();
        }
        // The server took a watch back for want of permission: this stream's token has expired.
        answer.canceled() && !compacted
    }
}

/// A stream that takes no requests is broken.
async fn within<T, E>(request: impl Future<Output = Result<T, E>>) -> Result<(), ()> {
    match timeout(PULSE, request).await {
        Ok(Ok(_)) => Ok(()),
        _ => Err(()),
    }
}
