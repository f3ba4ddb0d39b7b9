//! The events that every client emits, as a schema that programs may read.
//!
//! All have the target `fencelock` and a field `event` with one of the names
//! below. They are emitted through [`tracing`](https://docs.rs/tracing); a
//! program that writes them as JSON lines, with `tracing-subscriber`'s `json`
//! layer for instance or by `fencelock run --log-format json`, can be checked
//! afterwards by `fencelock audit`: events from several processes laid side by
//! side show two holders of one lock. Fields may be added; those below keep
//! their names, types and meaning.
//!
//! | `event` | level | when | fields beside `engine`, `name`, `claim`, `holder` |
//! |---|---|---|---|
//! | `acquire` | debug | a call begins to ask | `note`, `ttl_ms`, `wait_ms` (0 for a single try, absent for ever) |
//! | `contended` | debug | it met another holder, or another one than before | `held_by` |
//! | `granted` | debug | the lock is the caller's | `token`, `at_us`, `note`, `ttl_ms`, `waited_us` |
//! | `renewed` | debug | a renewal was acknowledged | `token`, `at_us`, `held_us`, `remaining_ms` |
//! | `jeopardy` | warn | contact is broken or a renewal was not answered | `token`, `at_us`, `held_us`, `remaining_ms`, `why` |
//! | `lost` | warn | the hold ended by loss, `overdue_us` before it was noticed | `token`, `at_us`, `held_us`, `overdue_us`, `reason`, `why` |
//! | `released` | debug | a release that began `took_us` before was answered, or (warn) not | `token`, `at_us`, `held_us`, `took_us`, `outcome`: `released`, `unknown` |
//! | `stale_release` | warn | a guard was released whose hold had been lost | `token`, `at_us`, `reason` |
//! | `abandoned` | debug | what a call left at the service is undone, or (warn) runs out | `outcome`: `undone`, `expires`; `failure` |
//! | `long_hold` | warn | over half of `max_hold` is used, or over 80 % of a fixed lease | `token`, `at_us`, `held_us`, `limit`: `max_hold`, `ttl` |
//! | `contended_here` | warn | a call has waited a second for a lock of its own client | `waited_us` |
//! | `hot_name` | warn | many calls of this client wait for the name (without `claim` and `holder`) | `waiting` |
//!
//! | field | type | meaning |
//! |---|---|---|
//! | `engine` | text | the engine, as [`Guarantees::engine`](crate::Guarantees::engine) names it |
//! | `name` | text | the lock's name |
//! | `claim` | text, 32 hexadecimal digits | the attempt; the same in every event of one hold, and at the server unless the lock was [passed on](crate::AcquireOptions::cohort) to it |
//! | `token` | number | the hold's fencing token |
//! | `holder`, `note` | text | as they stand beside the lock |
//! | `held_by` | text | the holder that was met, or `unknown` |
//! | `at_us` | microseconds since 1970 | the time of day by the host's clock, read before all else in the event was measured |
//! | `waited_us` | microseconds | from the call to the grant |
//! | `held_us` | microseconds | from the grant to the hold's end, or until now |
//! | `took_us` | microseconds | from the call of the release, when the hold ended, to this event |
//! | `overdue_us` | microseconds | from the hold's end, its deadline for instance, to this event |
//! | `reason` | text | `expired`, `revoked`, `session_ended`, `max_hold`, `degraded` |
//! | `waiting` | number | how many calls of this client waited on average |
//!
//! So a hold was believed from `at_us` of its `granted` until `at_us` less
//! `took_us` of its `released`, or `at_us` less `overdue_us` of its `lost`. The
//! log's own time stamp is later by what the process was kept waiting before it
//! wrote the line.
//!
//! # Measures
//! With the feature `metrics` the same is counted through the crate
//! [`metrics`](https://docs.rs/metrics), for whichever recorder the program has
//! set (the example `metrics` sets one for Prometheus). Without the feature
//! nothing is counted and it costs nothing. Names of locks are no labels, since
//! there may be millions of them.
//!
//! | measure | kind | labels | counts |
//! |---|---|---|---|
//! | `fencelock_acquires_total` | counter | `engine`, `outcome` | calls that ended: `granted`, `contended` (a single try), `timeout`, `unavailable`, `failed`, `cancelled` |
//! | `fencelock_contended_total` | counter | `engine` | events `contended` |
//! | `fencelock_renewals_total` | counter | `engine` | renewals that were acknowledged |
//! | `fencelock_jeopardies_total` | counter | `engine` | events `jeopardy` |
//! | `fencelock_releases_total` | counter | `engine` | holds that ended by release, answered or not |
//! | `fencelock_losses_total` | counter | `engine`, `reason` | holds that ended by loss |
//! | `fencelock_stale_releases_total` | counter | `engine` | releases of what had been lost |
//! | `fencelock_abandoned_total` | counter | `engine`, `outcome` | claims that were undone, or left to run out |
//! | `fencelock_held` | gauge | `engine` | locks held by this process |
//! | `fencelock_waiting` | gauge | `engine` | calls under way |
//! | `fencelock_wait_seconds` | histogram | `engine` | from the call to the grant |
//! | `fencelock_hold_seconds` | histogram | `engine` | from the grant to the hold's end |
//!
//! So `acquires{outcome="granted"} = releases + losses + held`, once nothing is under way.
//! Calls of a [`ReentrantScope`](crate::ReentrantScope) that join one attempt or share
//! one hold are one call here, and one claim in the events: an attempt that all its callers
//! have given up, for whatever reason, is `cancelled`. [`LockClient::all`](crate::LockClient::all)
//! counts, and tells of, each name by itself.
//!
//! # Spans and traces
//! A call to acquire runs in a span `acquire` (`acquire_all` for several names),
//! a child of the caller's current span. What happens to the hold afterwards, in
//! the client's own tasks, is emitted with the caller's span as parent, so that a
//! renewal in jeopardy or a loss stands in the trace of the request that holds
//! the lock. That span counts as open for as long as the hold lasts.
