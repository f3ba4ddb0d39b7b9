//! The version of the key scheme, kept in the store: programs that disagree must not both lock.
//!
//! With it stand random digits, which tell this store from every other.

use crate::failure::Failure;
use crate::keys::{Keys, LAYOUT};
use crate::members::Members;
use etcd_client::{Client, Compare, CompareOp, Txn, TxnOp};
use fencelock_core::{ClaimId, Error, ErrorKind, Result};

async fn stored(members: &Members, keys: &Keys) -> Result<Option<String>, Failure> {
    let get = |mut client: Client| async move { client.get(keys.meta(), None).await };
    let got = members.call(None, get).await?;
    Ok(got.kvs().first().map(|kv| String::from_utf8_lossy(kv.value()).into_owned()))
}

/// Writes the version where there is none; refuses another one. From then on no other store is taken for this one.
pub(crate) async fn check(members: &Members, keys: &Keys) -> Result<()> {
    let mut found = stored(members, keys).await?;
    if found.is_none() {
        let first = Compare::create_revision(keys.meta(), CompareOp::Equal, 0);
        let value = format!("{LAYOUT} {}", ClaimId::random()?);
        let write = Txn::new().when([first]).and_then([TxnOp::put(keys.meta(), value, None)]);
        let send = |mut client: Client| {
            let write = write.clone();
            async move { client.txn(write).await }
        };
        members.call(None, send).await?;
        found = stored(members, keys).await?;
    }
    let found = found.unwrap_or_default();
    if found.strip_prefix(LAYOUT).is_some_and(|digits| digits.starts_with(' ')) {
        members.identity.set_mark(found);
        return Ok(());
    }
    let message = format!(
        "`{0}` says `{found}` where this version writes `{LAYOUT}` and digits: use another prefix, or one version \
         everywhere; when every program that locks here has ended, `{0}` may be deleted",
        keys.meta()
    );
    Err(Error::new(ErrorKind::Refused, message).with_engine("etcd"))
}
