//! What a row of the lock table says, and who may judge it.

use super::frame::Frame;
use crate::micros::micros;
use crate::table::is_closed;
use fencelock_core::{ClaimId, FencingToken, HolderInfo};
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;
use std::time::Duration;

/// One lock as it was read.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) claim_id: Vec<u8>,
    pub(crate) token: i64,
    /// Microseconds on the clock of `boot_id`; 0 if it was freed.
    pub(crate) expires_at: i64,
    /// Microseconds, with the lock delay.
    pub(crate) ttl: i64,
    pub(crate) boot_id: String,
    pub(crate) holder: String,
    pub(crate) note: Option<String>,
    /// Unix time in microseconds.
    pub(crate) acquired_at: i64,
}

/// What a row means to those who would have the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It was freed, or has expired.
    Free,
    /// It is held for this much longer, unless renewed.
    Held(Duration),
    /// It is held, and its expiry is on a clock that cannot be read here.
    Foreign,
}

impl Row {
    pub(crate) fn read(row: &SqliteRow) -> sqlx::Result<Self> {
        Ok(Self {
            claim_id: row.try_get("claim_id")?,
            token: row.try_get("token")?,
            expires_at: row.try_get("expires_at")?,
            ttl: row.try_get("ttl")?,
            boot_id: row.try_get("boot_id")?,
            holder: row.try_get("holder")?,
            note: row.try_get("note")?,
            acquired_at: row.try_get("acquired_at")?,
        })
    }

    pub(crate) fn is_of(&self, id: ClaimId) -> bool {
        self.claim_id == id.to_bytes()
    }

    /// Whether the claim had it until it was ended by force.
    pub(crate) fn was_taken_from(&self, id: ClaimId) -> bool {
        is_closed(&self.claim_id) && self.claim_id.starts_with(&id.to_bytes())
    }

    /// Who holds it; nobody does where it is closed for a lock delay.
    pub(crate) fn holder(&self) -> Option<String> {
        (!is_closed(&self.claim_id)).then(|| self.holder.clone())
    }

    pub(crate) fn standing(&self, frame: &Frame, now: i64) -> Standing {
        if self.expires_at == 0 {
            Standing::Free
        } else if self.boot_id != frame.id() {
            Standing::Foreign
        } else if self.expires_at <= now {
            Standing::Free
        } else {
            Standing::Held(micros(self.expires_at.saturating_sub(now)))
        }
    }

    /// Who holds it; `None` if nobody does.
    pub(crate) fn holder_info(&self, frame: &Frame, now: i64, unix: i64) -> Option<HolderInfo> {
        let token = FencingToken::new(u64::try_from(self.token).unwrap_or(0));
        let mut info = HolderInfo::new(self.holder()?, token)
            .with_note(self.note.as_deref().map(Into::into))
            .with_held_for(micros(unix.saturating_sub(self.acquired_at)));
        if let Ok(id) = self.claim_id.as_slice().try_into() {
            info = info.with_claim(ClaimId::from_bytes(id));
        }
        match self.standing(frame, now) {
            Standing::Free => None,
            Standing::Held(remaining) => Some(info.with_remaining(remaining)),
            Standing::Foreign => Some(info),
        }
    }
}
