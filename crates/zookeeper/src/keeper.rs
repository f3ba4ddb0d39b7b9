//! The task that keeps one session and tells its holds how it does.

use crate::session::Session;
use std::pin::pin;
use std::sync::Weak;
use zookeeper_client::SessionState;

/// Sends heartbeats until the session has ended or nobody has it any more.
///
/// One heartbeat is under way at a time. It is never given up while its
/// connection stands: answered late it still proves contact from when it was sent.
pub(crate) async fn keep(session: Weak<Session>) {
    let Some(mut states) = session.upgrade().map(|session| session.client.state_watcher()) else { return };
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
            live.holds.doubt("not connected");
            let ended = live.until_ended();
            drop(live);
            tokio::select! {
                _ = states.changed() => continue,
                () = ended => return,
            }
        }
        let beaten = beat(&live).await;
        let pause = if beaten { live.tempo.interval().saturating_sub(live.age()) } else { live.tempo.patience() };
        let ended = live.until_ended();
        drop(live);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = states.changed() => {}
            () = ended => {}
        }
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
