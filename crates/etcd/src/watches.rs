//! One stream of events for all that a client watches.
//!
//! Each watch is of one key. It begins at a revision that its owner has seen, so
//! that nothing between the look and the watch is missed, nor while the stream is
//! opened anew after a break. What cannot be told any more, since the history was
//! compacted, is heard as if it had happened: the owner then looks again. So it
//! does after each break, since a server whose history begins at the very revision
//! of an event neither tells it nor says that it cannot.

use crate::members::Members;
use etcd_client::{WatchFilterType, WatchOptions, WatchRequestSender, WatchResponse, WatchStream};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, timeout};

/// How often a stream without events is asked whether it lives, and how long the answer may take.
///
/// It is asked by a watch that is begun, and the next time ended: each is answered. Progress is told by newer servers only while there are watches, and
/// only when each of them begins at a revision that has been (etcd #20229); on a quiet store none of ours does.
const PULSE: Duration = Duration::from_secs(5);
/// The id of the watch that asks.
const ASKS: i64 = i64::MAX;
/// The pause before a stream is opened anew.
const REST: Duration = Duration::from_millis(50);
/// How often that pause is doubled at most while watches are denied.
const MOST_DENIALS: u32 = 7;
/// A stream that has lasted so long was not denied from its beginning.
const LASTED: Duration = Duration::from_secs(1);

enum Command {
    Add(i64, Watched),
    Remove(i64),
}

/// A place in a queue, and who is told when something may have happened to it.
pub(crate) struct Place {
    pub(crate) key: Box<str>,
    /// Rung by the watch of it, and by whoever has reason to ask whether it, or its lease, is still there.
    pub(crate) told: Notify,
}

impl Place {
    pub(crate) fn at(key: impl Into<Box<str>>) -> Arc<Self> {
        Arc::new(Self { key: key.into(), told: Notify::new() })
    }
}

struct Watched {
    place: Arc<Place>,
    from: i64,
    /// Hears of what is written, too. Its owner is told by its lease to look again after a break.
    of_all: bool,
    /// A stream has carried it.
    begun: bool,
}

/// The client's watches.
///
/// # Drop
/// The stream is closed.
pub(crate) struct Watches {
    commands: mpsc::UnboundedSender<Command>,
    ids: AtomicI64,
    rebuilt: watch::Receiver<u64>,
}

impl Watches {
    pub(crate) fn new(members: Arc<Members>) -> Self {
        let (commands, inbox) = mpsc::unbounded_channel();
        let (counter, rebuilt) = watch::channel(0);
        tokio::spawn(serve(members, inbox, counter));
        Self { commands, ids: AtomicI64::new(1), rebuilt }
    }

    /// Tells when a stream was opened in the place of another, and may have missed something.
    pub(crate) fn rebuilt(&self) -> watch::Receiver<u64> {
        self.rebuilt.clone()
    }

    /// Hears of the deletion of `key` after `revision`.
    pub(crate) fn listen(&self, key: &str, revision: i64) -> Ear<'_> {
        self.begin(&Place::at(key), revision, false)
    }

    /// Tells a place of its deletion and of what is written there, after `revision`.
    pub(crate) fn listen_to_all(&self, place: &Arc<Place>, revision: i64) -> Ear<'_> {
        self.begin(place, revision, true)
    }

    fn begin(&self, place: &Arc<Place>, revision: i64, of_all: bool) -> Ear<'_> {
        let id = self.ids.fetch_add(1, Ordering::SeqCst);
        let watched = Watched { place: Arc::clone(place), from: revision.saturating_add(1), of_all, begun: false };
        if self.commands.send(Command::Add(id, watched)).is_err() {
            place.told.notify_one();
        }
        Ear { id, place: Arc::clone(place), commands: &self.commands }
    }
}

impl fmt::Debug for Watches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watches").finish_non_exhaustive()
    }
}

/// One watch; dropping it ends it.
pub(crate) struct Ear<'a> {
    id: i64,
    place: Arc<Place>,
    commands: &'a mpsc::UnboundedSender<Command>,
}

impl Ear<'_> {
    /// Ends when the key was deleted, or may have been.
    pub(crate) async fn heard(&self) {
        self.place.told.notified().await;
    }
}

impl Drop for Ear<'_> {
    fn drop(&mut self) {
        let _ = self.commands.send(Command::Remove(self.id));
    }
}

/// Serves until the client is gone, with a new stream after each break.
async fn serve(members: Arc<Members>, mut inbox: mpsc::UnboundedReceiver<Command>, rebuilt: watch::Sender<u64>) {
    let (mut watched, mut denials) = (HashMap::new(), 0);
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
            if look_again(&watched) {
                rebuilt.send_modify(|count| *count += 1);
            }
            let began = Instant::now();
            let mut hub = Hub { watched: &mut watched, first, member };
            match hub.run(&members, stream, &mut inbox).await {
                End::Gone => return,
                End::Moved => denials = 0,
                End::Broken => {
                    denials = 0;
                    members.doubt(member);
                    members.pass_over(member);
                    tokio::time::sleep(REST).await;
                }
                End::Denied => {
                    if began.elapsed() >= LASTED {
                        denials = 0;
                    }
                    members.refresh(member, members.limit()).await;
                    tokio::time::sleep(REST * 2_u32.pow(denials)).await;
                    denials = (denials + 1).min(MOST_DENIALS);
                }
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

/// Whether watches were carried by a stream before this one; their owners have reason to look.
fn look_again(watched: &HashMap<i64, Watched>) -> bool {
    let mut before = false;
    for watch in watched.values().filter(|watch| watch.begun) {
        before = true;
        if !watch.of_all {
            watch.place.told.notify_one();
        }
    }
    before
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
    let options = WatchOptions::new().with_start_revision(watch.from).with_watch_id(id);
    if watch.of_all { options } else { options.with_filters([WatchFilterType::NoPut]) }
}

/// A stream opened with one of the watches; the others are added to it.
async fn open(members: &Members, member: usize, watched: &HashMap<i64, Watched>) -> Option<(WatchStream, i64)> {
    let (id, watch) = watched.iter().next()?;
    let begin = |mut client: etcd_client::Client| async move {
        client.watch(&*watch.place.key, Some(options(*id, watch))).await
    };
    let opened = timeout(members.limit(), members.ask(member, None, begin)).await;
    opened.ok()?.ok().map(|stream| (stream, *id))
}

/// Why a stream is of no use any more.
enum End {
    /// The client is gone.
    Gone,
    /// Another member is asked first from now on.
    Moved,
    /// It ended, or does not answer.
    Broken,
    /// The server took a watch back.
    Denied,
}

struct Hub<'a> {
    watched: &'a mut HashMap<i64, Watched>,
    first: i64,
    member: usize,
}

impl Hub<'_> {
    /// Serves one stream to its end.
    async fn run(
        &mut self,
        members: &Members,
        stream: WatchStream,
        inbox: &mut mpsc::UnboundedReceiver<Command>,
    ) -> End {
        if let Some(watch) = self.watched.get_mut(&self.first) {
            watch.begun = true;
        }
        let (mut requests, mut answers) = stream.split();
        let mut moves = members.moves();
        moves.mark_unchanged();
        let added: Vec<_> = self.watched.keys().copied().filter(|id| *id != self.first).collect();
        for id in added {
            if self.begin(&mut requests, id).await.is_err() {
                return End::Broken;
            }
        }
        let (mut pulse, mut asked, mut asks) = (Instant::now() + PULSE, false, false);
        loop {
            tokio::select! {
                command = inbox.recv() => {
                    let Some(command) = command else { return End::Gone };
                    if self.obey(&mut requests, command).await.is_err() {
                        return End::Broken;
                    }
                }
                answer = answers.message() => {
                    (pulse, asked) = (Instant::now() + PULSE, false);
                    match answer {
                        // Want of permission: the token that this stream was opened with has expired.
                        Ok(Some(answer)) if answer.created() && answer.canceled() && answer.compact_revision() == 0 => {
                            return End::Denied;
                        }
                        Ok(Some(answer)) => match members.check(self.member, answer) {
                            Ok(answer) if answer.watch_id() == ASKS => asks = !answer.canceled(),
                            Ok(answer) => self.tell(&answer),
                            Err(_) => return End::Broken,
                        },
                        _ => return End::Broken,
                    }
                }
                // Somebody found this member failing.
                moved = moves.changed() => if moved.is_err() || *moves.borrow() != self.member { return End::Moved },
                () = tokio::time::sleep_until(pulse) => {
                    if asked || ask(&mut requests, &members.identity.key, asks).await.is_err() {
                        return End::Broken;
                    }
                    (pulse, asked) = (Instant::now() + PULSE, true);
                }
            }
        }
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

    async fn begin(&mut self, requests: &mut WatchRequestSender, id: i64) -> Result<(), ()> {
        let Some(watch) = self.watched.get_mut(&id) else { return Ok(()) };
        watch.begun = true;
        within(requests.watch(&*watch.place.key, Some(options(id, watch)))).await
    }

    fn tell(&self, answer: &WatchResponse) {
        let Some(watch) = self.watched.get(&answer.watch_id()) else { return };
        if answer.canceled() || !answer.events().is_empty() {
            tracing::trace!(target: "fencelock", engine = "etcd", key = &*watch.place.key, canceled = answer.canceled(), "watch heard");
            watch.place.told.notify_one();
        }
    }
}

/// Whoever answers this lives. Nothing is told of the key, which is one that we may read. Where the watch is there
/// already (`again`) it is ended.
async fn ask(requests: &mut WatchRequestSender, key: &str, again: bool) -> Result<(), ()> {
    if again {
        return within(requests.cancel(ASKS)).await;
    }
    let nothing = [WatchFilterType::NoPut, WatchFilterType::NoDelete];
    within(requests.watch(key, Some(WatchOptions::new().with_watch_id(ASKS).with_filters(nothing)))).await
}

/// A stream that takes no requests is broken.
async fn within<T, E>(request: impl Future<Output = Result<T, E>>) -> Result<(), ()> {
    match timeout(PULSE, request).await {
        Ok(Ok(_)) => Ok(()),
        _ => Err(()),
    }
}
