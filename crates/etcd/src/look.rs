//! The safety look under the watches: are the places of a lease's holds still there?
//!
//! One request for all of them, since a lease knows its keys. A watch can miss the
//! end of a place: when its stream is opened anew after the history was compacted at
//! the very revision of that end, the server has nothing to tell, and says nothing.

use crate::failure::Failure;
use crate::members::Members;
use crate::shared::Shared;
use etcd_client::LeaseTimeToLiveOptions;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How many holds ask for themselves when the keys of all are too much for one answer.
const SOME: usize = 50;

/// Lets another look begin when this one ends, however it ends.
struct Looking(Arc<Shared>);

impl Drop for Looking {
    fn drop(&mut self) {
        self.0.looking.store(false, Ordering::SeqCst);
    }
}

/// Begins a look unless one is under way.
pub(crate) fn begin(shared: &Arc<Shared>, members: &Arc<Members>, lease: i64) {
    if shared.looking.swap(true, Ordering::SeqCst) {
        return;
    }
    let (looking, members) = (Looking(Arc::clone(shared)), Arc::clone(members));
    tokio::spawn(async move { look(&looking.0, &members, lease).await });
}

async fn look(shared: &Shared, members: &Members, lease: i64) {
    let asked = shared.holds.ids();
    if asked.is_empty() {
        return;
    }
    let ask = |mut client: etcd_client::Client| async move {
        client.lease_time_to_live(lease, Some(LeaseTimeToLiveOptions::new().with_keys())).await
    };
    match members.call(None, ask).await {
        Ok(found) if found.ttl() > 0 => shared.holds.suspect_without(&asked, found.keys()),
        // A keepalive says for sure.
        Ok(_) => shared.renew_now(),
        Err(Failure::Refused(_)) => shared.holds.suspect_some(SOME),
        // The next look will do.
        Err(_) => {}
    }
}
