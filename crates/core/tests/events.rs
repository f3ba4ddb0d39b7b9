#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says what it expects by panicking")]
//! The events that a client emits are those of the schema, with its fields, in the caller's trace.
//!
//! Whether anybody wants an event is asked once, at its first use, and for as long as there is one subscriber only
//! that of the thread which uses it first is asked. Another test's thread, which has none, would have it never heard.
//! So each test that listens is here, and each test here runs in [`listening`].

mod common;

use common::{World, drained, ms};
use fencelock_core::memory::{Delivery, Operation};
use fencelock_core::{LockName, ReentrantScope};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tracing::field::{Field, Visit};
use tracing::{Event, Instrument, Level, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry};

#[derive(Clone, Debug, Default)]
struct Seen {
    fields: BTreeMap<&'static str, String>,
    /// The names of the spans around it, from the root.
    spans: Vec<&'static str>,
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.fields.insert(field.name(), format!("{value:?}").trim_matches('"').to_owned());
    }
}

#[derive(Clone, Default)]
struct Events(Arc<Mutex<Vec<Seen>>>);

impl<S: Subscriber + for<'s> LookupSpan<'s>> Layer<S> for Events {
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        if event.metadata().target() != "fencelock" {
            return;
        }
        let mut seen = Seen::default();
        event.record(&mut seen);
        seen.fields.insert("level", event.metadata().level().to_string());
        let spans = context.event_scope(event).into_iter().flat_map(|scope| scope.from_root());
        seen.spans = spans.map(|span| span.name()).collect();
        self.0.lock().unwrap().push(seen);
    }
}

impl Events {
    fn of(&self, event: &str) -> Vec<Seen> {
        let seen = self.0.lock().unwrap();
        seen.iter().filter(|seen| seen.fields.get("event").is_some_and(|name| name == event)).cloned().collect()
    }

    fn one(&self, event: &str) -> Seen {
        self.of(event).first().unwrap_or_else(|| panic!("no event {event}")).clone()
    }
}

/// Runs a test on one thread, which a layer listens to, while no other test of this file runs.
///
/// Its client's own tasks are heard too, and all of them are over when the next test begins.
fn listening<F>(layer: impl Layer<Registry> + Send + Sync, test: impl FnOnce() -> F + Send + 'static)
where
    F: Future<Output = ()>,
{
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (running, ended) = channel::<()>();
    let thread = std::thread::spawn(move || {
        let _running = running;
        let _heard = tracing::subscriber::set_default(Registry::default().with(layer));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(test());
    });
    assert_eq!(ended.recv_timeout(Duration::from_secs(60)), Err(RecvTimeoutError::Disconnected), "it hangs");
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// The table of the schema: the fields of each event beside those that all have.
fn schema() -> BTreeMap<String, BTreeSet<String>> {
    let text = include_str!("../src/observe/schema.rs");
    let mut events = BTreeMap::new();
    for line in text.lines().skip_while(|line| !line.contains("`engine`, `name`, `claim`, `holder`")).skip(2) {
        let cells: Vec<_> = line.trim_start_matches("//! ").split('|').map(str::trim).collect();
        let [_, event, _, _, fields, ..] = cells[..] else { break };
        let common = ["engine", "name", "claim", "holder"].map(str::to_owned);
        // Between backquotes, but not the values after a colon.
        let own = fields.split(';').flat_map(|part| {
            let names = part.split(':').next().unwrap_or_default();
            let names: Vec<_> = names.split('`').skip(1).step_by(2).map(str::to_owned).collect();
            names
        });
        let own = own.filter(|name| !name.contains(' ') && name != "claim" && name != "holder");
        let mut all: BTreeSet<_> = common.into_iter().chain(own).collect();
        if event == "`hot_name`" {
            all.retain(|name| name != "claim" && name != "holder");
        }
        events.insert(event.trim_matches('`').to_owned(), all);
    }
    events
}

/// Makes a client emit each of the schema's events.
async fn everything_that_happens_to_a_lock() {
    let w = World::new();
    let (a, b) = (w.client("a"), w.client("b"));
    let request = tracing::info_span!("request");
    async {
        let guard = a.named("x").ttl(ms(900)).note("n").max_hold(ms(2_000)).acquire().await.unwrap();
        assert!(b.try_acquire("x").await.unwrap().is_none());
        let waiting = tokio::spawn(b.named("x").wait_at_most(ms(300)).acquire().in_current_span());
        assert!(waiting.await.unwrap().is_err());
        assert!(a.named("x").wait_at_most(ms(1_300)).acquire().await.is_err());
        guard.release().await.unwrap();

        let guard = a.named("y").ttl(ms(900)).acquire().await.unwrap();
        w.server.steal(&LockName::new("y").unwrap(), ms(5_000)).unwrap();
        guard.lost().await;
        guard.release().await.unwrap_err();

        let guard = a.named("z").ttl(ms(900)).acquire().await.unwrap();
        w.server.set_hung(true);
        tokio::time::sleep(ms(600)).await;
        assert!(guard.in_jeopardy());
        w.server.set_hung(false);
        tokio::time::sleep(ms(300)).await;
        w.server.inject(Operation::Release, Delivery::Lost);
        guard.release().await.unwrap_err();
        drained(&a).await;
    }
    .instrument(request)
    .await;
    for at in 0..12 {
        let guard = a.named("hot").ttl(ms(60_000)).acquire().await.unwrap();
        let waiting: Vec<_> = (0..12).map(|_| tokio::spawn(a.acquire("hot"))).collect();
        tokio::time::sleep(ms(1_500 + at)).await;
        guard.release().await.unwrap();
        for guard in waiting {
            guard.await.unwrap().unwrap().release().await.unwrap();
        }
    }
    drained(&a).await;
}

#[test]
fn every_event_has_the_fields_of_the_schema_and_the_callers_trace() {
    let events = Events::default();
    listening(events.clone(), everything_that_happens_to_a_lock);
    let schema = schema();
    assert!(schema.len() >= 12, "{schema:?}");
    let extra = ["event", "message", "level"];
    for (event, fields) in &schema {
        let seen = events.of(event);
        assert!(!seen.is_empty(), "no event {event}");
        for one in &seen {
            let found: BTreeSet<_> =
                one.fields.keys().filter(|name| !extra.contains(name)).map(|name| (*name).to_owned()).collect();
            let optional = ["note", "wait_ms", "failure"];
            let missing: Vec<_> = fields.difference(&found).filter(|name| !optional.contains(&name.as_str())).collect();
            assert!(missing.is_empty(), "{event} lacks {missing:?}: {one:?}");
            let unknown: Vec<_> = found.difference(fields).collect();
            assert!(unknown.is_empty(), "{event} has {unknown:?}, which the schema does not");
        }
    }
    for (event, level) in [("granted", "DEBUG"), ("lost", "WARN"), ("jeopardy", "WARN"), ("released", "DEBUG")] {
        assert_eq!(events.one(event).fields["level"], level, "{event}");
    }
    let unknown = events.of("released").into_iter().find(|one| one.fields["outcome"] == "unknown").unwrap();
    assert_eq!(unknown.fields["level"], "WARN");
    for event in ["acquire", "contended", "granted", "renewed", "jeopardy", "lost", "released", "stale_release"] {
        let spans = events.one(event).spans;
        assert_eq!(spans.first(), Some(&"request"), "{event} is outside the caller's trace: {spans:?}");
    }
    assert_eq!(events.one("lost").fields["reason"], "revoked");
    let granted = events.one("granted");
    assert_eq!((&*granted.fields["holder"], &*granted.fields["note"]), ("a", "n"));
    assert_eq!(granted.fields["claim"], events.one("released").fields["claim"]);
}

#[test]
fn a_fixed_lease_is_warned_about_by_its_newest_end() {
    let events = Events::default();
    listening(events.clone(), || async move {
        let w = World::new();
        let client = w.client("a");
        let guard = client.named("x").ttl(ms(1_000)).auto_renew(false).acquire().await.unwrap();
        tokio::time::sleep(ms(600)).await;
        guard.extend(ms(2_000)).await.unwrap();
        tokio::time::sleep(ms(900)).await;
        assert!(events.of("long_hold").is_empty());
        tokio::time::sleep(ms(800)).await;
        assert_eq!(events.one("long_hold").fields["limit"], "ttl");
        assert_eq!(events.of("long_hold").len(), 1);
    });
}

/// Asks a scope about itself whenever it is told of a loss.
#[derive(Clone, Default)]
struct Curious(Arc<OnceLock<ReentrantScope>>, Arc<AtomicUsize>);

impl<S: Subscriber> Layer<S> for Curious {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if event.metadata().level() == &Level::WARN
            && let Some(scope) = self.0.get()
        {
            self.1.fetch_add(scope.names(), Ordering::SeqCst);
        }
    }
}

#[test]
fn a_subscriber_may_ask_the_scope_that_finds_out_a_loss() {
    let curious = Curious::default();
    let Curious(asked, names) = curious.clone();
    listening(curious, || async move {
        let w = World::new();
        let job = w.client("a").reentrant("job");
        let outer = job.named("x").ttl(ms(500)).acquire().await.unwrap();
        asked.set(job.clone()).unwrap();
        // Past the deadline, and nobody has looked yet.
        w.clock.suspend(ms(60_000));
        let next = job.try_acquire("x").await.unwrap().unwrap();
        assert!(next.is_held() && !outer.is_held() && next.token() > outer.token());
        drop(outer);
        next.release().await.unwrap();
    });
    assert_eq!(names.load(Ordering::SeqCst), 1, "told of one loss, while the scope had one name");
}
