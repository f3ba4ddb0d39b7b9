//! Which cluster an answer comes from.

use etcd_client::{
    DeleteResponse, GetResponse, LeaseGrantResponse, LeaseKeepAliveResponse, LeaseKeepAliveStream, LeaseKeeper,
    LeaseRevokeResponse, LeaseTimeToLiveResponse, MemberListResponse, ResponseHeader, StatusResponse, TxnResponse,
    WatchResponse, WatchStream,
};

/// An answer, which may say which cluster gave it.
pub(crate) trait Answer {
    /// The cluster's id; none where the answer does not say.
    fn cluster(&self) -> Option<u64>;
}

/// A proxy may leave the id out.
fn named(header: Option<&ResponseHeader>) -> Option<u64> {
    header.map(ResponseHeader::cluster_id).filter(|id| *id != 0)
}

macro_rules! say {
    ($($answer:ty),+ $(,)?) => {
        $(impl Answer for $answer {
            fn cluster(&self) -> Option<u64> {
                named(self.header())
            }
        })+
    };
}

say!(
    DeleteResponse,
    GetResponse,
    LeaseGrantResponse,
    LeaseKeepAliveResponse,
    LeaseRevokeResponse,
    LeaseTimeToLiveResponse,
    MemberListResponse,
    StatusResponse,
    TxnResponse,
    WatchResponse,
);

/// What is answered on a stream says so message by message.
impl Answer for WatchStream {
    fn cluster(&self) -> Option<u64> {
        None
    }
}

impl Answer for (LeaseKeeper, LeaseKeepAliveStream) {
    fn cluster(&self) -> Option<u64> {
        None
    }
}
