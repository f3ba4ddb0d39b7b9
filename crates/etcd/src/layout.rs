//! The version of the key scheme, kept in the store: programs that disagree must not both lock.

use crate::failure::Failure;
use crate::keys::{Keys, LAYOUT};
use crate::members::{Again, Members};
use etcd_client::{Client, Compare, CompareOp, Txn, TxnOp};
use fencelock_core::{Error, ErrorKind, Result};

async fn stored(members: &Members, keys: &Keys) -> Result<Option<String>, Failure> {
    let get = |mut client: Client| async move { client.get(keys.meta(), None).await };
    let got = members.call(None, Again::Same, get).await?;
    Ok(got.kvs().first().map(|kv| String::from_utf8_lossy(kv.value()).into_owned()))
}

/// Writes the version where there is none; refuses another one.
pub(crate) async fn check(members: &Members, keys: &Keys) -> Result<()> {
    let mut found = stored(members, keys).await?;
    if found.is_none() {
        let first = Compare::create_revision(keys.meta(), CompareOp::Equal, 0);
        let write = Txn::new().when([first]).and_then([TxnOp::put(keys.meta(), LAYOUT, None)]);
        let send = |mut client: Client| {
            let write = write.clone();
            async move { client.txn(write).await }
        };
        members.call(None, Again::Same, send).await?;
        found = stored(members, keys).await?;
    }
    match found {
        Some(found) if found == LAYOUT => Ok(()),
        found => {
            let found = found.unwrap_or_default();
            let message = format!(
                "`{}` says `{found}` where this version writes `{LAYOUT}`: use another prefix, or one version everywhere",
                keys.meta()
            );
            Err(Error::new(ErrorKind::Refused, message).with_engine("etcd"))
        }
    }
}
