//! Ways to be wrong. Each is a mistake that a lock library has made.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    /// Release deletes by name, whoever holds it.
    ReleasesAnybodys,
    /// Abandon deletes by name, whoever holds it.
    AbandonsAnybodys,
    /// Renewal creates the row again when it is gone.
    RenewalRevives,
    /// Renewal extends whoever holds the name.
    RenewsAnybodys,
    /// `sent_at` is read when the answer has come.
    CountsFromReceipt,
    AbandonDoesNothing,
    /// Abandon frees but lets a late request take the lock again.
    AbandonDoesNotVoid,
    ReleaseDoesNotVoid,
    TokenStandsStill,
    TokenFallsBack,
    /// The token is drawn at the first try, and kept until the grant.
    TokenAtFirstTry,
    SameIdNewToken,
    SameIdNotRearmed,
    /// A contended try is entered as next in line, and takes the lock when it is freed.
    TryLeavesAPlace,
    FoldsCase,
    CutsNamesAtSlash,
    CutsLongNames,
    TrimsNames,
    RenewsAfterRelease,
    NeverRenews,
    /// A lost hold is told as expired only, never as revoked.
    HidesRevocation,
    /// Says that nobody is in the way.
    GrantsAlways,
    GrantsTheFirstTwo,
    IgnoresLockDelay,
    /// Frees a lock after twice its time only.
    ExpiresLate,
    /// Frees a lock after half its time.
    ExpiresEarly,
    /// A renewal for less ends the lease sooner.
    RenewalShortens,
    ReleaseDoesNothing,
    /// Release of what was lost looks like success.
    ReleaseSaysYes,
    /// Release says lost when no answer came.
    ReleaseUnknownIsLost,
    ClaimsFifo,
    ClaimsPushLoss,
    HidesTheHolder,
    ShowsTheDead,
    /// Shows somebody who waits where nobody is known to.
    InventsWaiters,
    /// A renewal without an answer counts as done.
    UnknownIsRenewed,
    /// One renewal without an answer is a loss.
    UnknownIsLost,
    BlocksItsThread,
    ExtendDoesNothing,
    /// Waiters of one client do not queue.
    NoLocalQueue,
    /// No claim reports what stands in its way.
    WaitsInSilence,
    /// Says that it reaches other processes, and keeps its table to itself.
    KeepsToItself,
    /// A forced release frees at once, whatever lock delay the holder asked for.
    ForcesAtOnce,
    /// A forced release of one certain hold takes the lock from whoever holds it.
    ForcesAnybody,
    /// A forced release of one certain hold looks, and takes the lock in another step.
    ForcesInTwoSteps,
    /// The holder looks after its hold every other time that it should.
    RenewsHalfAsOften,
    /// Once the service was away, the connection stays broken.
    NeverReconnects,
    /// Says that tokens are reserved, and gives them out again.
    ReservesNothing,
    /// Reserves tokens anew each time that the same claim asks.
    ReservesAnew,
}

impl Flaw {
    pub(crate) const ALL: [Self; 50] = [
        Self::None,
        Self::ReleasesAnybodys,
        Self::AbandonsAnybodys,
        Self::RenewalRevives,
        Self::RenewsAnybodys,
        Self::CountsFromReceipt,
        Self::AbandonDoesNothing,
        Self::AbandonDoesNotVoid,
        Self::ReleaseDoesNotVoid,
        Self::TokenStandsStill,
        Self::TokenFallsBack,
        Self::TokenAtFirstTry,
        Self::SameIdNewToken,
        Self::SameIdNotRearmed,
        Self::TryLeavesAPlace,
        Self::FoldsCase,
        Self::CutsNamesAtSlash,
        Self::CutsLongNames,
        Self::TrimsNames,
        Self::RenewsAfterRelease,
        Self::NeverRenews,
        Self::HidesRevocation,
        Self::GrantsAlways,
        Self::GrantsTheFirstTwo,
        Self::IgnoresLockDelay,
        Self::ExpiresLate,
        Self::ExpiresEarly,
        Self::RenewalShortens,
        Self::ReleaseDoesNothing,
        Self::ReleaseSaysYes,
        Self::ReleaseUnknownIsLost,
        Self::ClaimsFifo,
        Self::ClaimsPushLoss,
        Self::HidesTheHolder,
        Self::ShowsTheDead,
        Self::InventsWaiters,
        Self::UnknownIsRenewed,
        Self::UnknownIsLost,
        Self::BlocksItsThread,
        Self::ExtendDoesNothing,
        Self::NoLocalQueue,
        Self::WaitsInSilence,
        Self::KeepsToItself,
        Self::ForcesAtOnce,
        Self::ForcesAnybody,
        Self::ForcesInTwoSteps,
        Self::RenewsHalfAsOften,
        Self::NeverReconnects,
        Self::ReservesNothing,
        Self::ReservesAnew,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::None => "own",
            _ => "flawed",
        }
    }
}
