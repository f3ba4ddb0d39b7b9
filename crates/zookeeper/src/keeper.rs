//! The task that keeps one session and tells its holds how it does.

use crate::session::Session;
use std::pin::pin;
use std::sync::{Arc, Weak};
use zookeeper_client::SessionState;

/// Sends heartbeats until the session has ended or nobody has it any more.
///
/// One heartbeat is under way at a time. It is never given up while its
/// connection stands: answered late it still proves contact from when it was sent.
pub(crate) fn keep(session: &Arc<Session>) -> impl Future<Output = ()> + Send + use<> {
    // Made here and not in the future, which a runtime may drop before it is ever polled.
    let kept = Kept(Arc::downgrade(session));
    async move { keeping(&kept.0).await }
}

/// A session that is kept by a task. When the task goes, and the runtime with it,
/// nobody sends for the session any more; so then it has ended.
struct Kept(Weak<Session>);

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(session) = self.0.upgrade() {
            session.end("the runtime that kept it is gone");
        }
    }
}

async fn keeping(session: &Weak<Session>) {
    let Some(mut states) = session.upgrade().map(|session| session.client.state_watcher()) else { return };
    let mut was_connected = true;
    loop {
        let Some(live) = session.upgrade() else { return };
        let state = states.state();
        if state.is_terminated() {
            live.end(&format!("the client says {state}"));
        }
        if live.has_ended() {
            live.end("the client says so");
            return;
        }
        if state != SessionState::SyncConnected {
            was_connected = false;
            live.holds.doubt("not connected");
            let ended = live.until_ended();
            drop(live);
            tokio::select! {
                _ = states.changed() => continue,
                () = ended => return,
            }
        }
        if !std::mem::replace(&mut was_connected, true) {
            tokio::spawn(probe_again(Weak::clone(session)));
        }
        let beaten = beat(&live).await;
        let interval = live.tempo.interval();
        let pause = if beaten { interval.saturating_sub(live.quiet()) } else { interval.min(live.tempo.patience()) };
        let ended = live.until_ended();
        drop(live);
        tokio::select! {
            biased;
            _ = states.changed() => was_connected = false,
            () = tokio::time::sleep(pause) => {}
            () = ended => {}
        }
    }
}

/// The time-out was negotiated anew, perhaps with a server that has changed.
async fn probe_again(session: Weak<Session>) {
    let Some(live) = session.upgrade() else { return };
    if let Err(e) = live.probe().await {
        tracing::debug!(target: "fencelock", event = "not_probed", error = %e, "no answer to a probe");
    }
}

async fn beat(session: &Session) -> bool {
    let mut beat = pin!(session.beat());
    loop {
        tokio::select! {
            beaten = &mut beat => {
                if let Err(e) = &beaten {
                    session.holds.doubt(&format!("heartbeat: {e:?}"));
                }
                return beaten.is_ok();
            }
            () = tokio::time::sleep(session.tempo.patience()) => session.holds.doubt("a heartbeat is not answered"),
        }
    }
}
