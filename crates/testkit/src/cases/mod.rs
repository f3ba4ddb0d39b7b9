//! The cases, in rooms by what they are about.

mod cancel;
mod claims;
mod cohort;
mod contest;
mod drops;
mod exclusion;
mod faults;
mod forced;
mod lease;
mod loss;
mod names;
mod observe;
mod processes;
mod reentrant;
mod several;

use crate::failure::Outcome;
use crate::stage::Stage;
use std::fmt;
use std::future::Future;
use std::pin::Pin;

type Run = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// One case of the suite.
pub struct Case {
    name: &'static str,
    alone: bool,
    body: fn(Stage) -> Run,
}

impl Case {
    /// The case's name, unique in the suite.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Whether it does the service harm, so that no other case may run meanwhile.
    #[must_use]
    pub const fn is_alone(&self) -> bool {
        self.alone
    }

    pub(crate) fn body(&self) -> fn(Stage) -> Run {
        self.body
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("name", &self.name).field("alone", &self.alone).finish_non_exhaustive()
    }
}

/// Cases by room and function; the function's name is the case's.
macro_rules! cases {
    (
        together { $($room:ident { $($case:ident),+ $(,)? })+ }
        alone { $($alone_room:ident { $($alone_case:ident),+ $(,)? })+ }
    ) => {
        /// Every case of the suite. Names are stable, so that a test can call the roll.
        pub static CASES: &[Case] = &[
            $($(Case { name: stringify!($case), alone: false, body: |stage| Box::pin($room::$case(stage)) },)+)+
            $($(Case { name: stringify!($alone_case), alone: true, body: |stage| Box::pin($alone_room::$alone_case(stage)) },)+)+
        ];
    };
}

cases! {
    together {
        exclusion {
            excludes_across_clients, hands_over_and_the_token_grows, counter_under_contention,
            every_waiter_is_served_in_order_where_promised, waiters_of_one_client_are_served_in_order,
        }
        names { names_are_isolated, invalid_names_are_refused }
        lease {
            outlives_its_ttl, stays_free_after_release, waiter_outwaits_renewals, fixed_lease_ends,
            fixed_lease_can_be_extended, renewing_hold_refuses_extension, extension_takes_nothing_away,
            longest_hold_is_lost_and_passed_on, lock_delay_counts_after_failure_only, ttl_at_and_beyond_its_bounds,
        }
        loss {
            seized_is_told_and_stays_lost, old_holder_leaves_the_thief_alone,
            release_of_a_stolen_lease_never_frees_the_thiefs, loss_is_told_at_once_where_promised,
            seized_stays_closed_for_its_lock_delay, work_is_cut_at_loss, monitors_agree_with_the_guard, stale_writer_is_refused,
        }
        drops { drop_frees, drop_off_the_runtime_frees, guard_outlives_its_runtime, close_drains }
        cancel {
            cancelled_at_every_await_point, waiter_cancelled_at_every_await_point, cancelled_at_random_instants,
            waiters_that_give_up_leave_nothing, contended_try_leaves_no_trace,
            a_caller_that_does_not_poll_holds_nobody_up,
        }
        claims {
            same_claim_twice_is_one_hold, late_acquire_after_abandon_leaves_no_lock,
            late_acquire_after_release_leaves_no_lock, abandoning_nothing_is_fine, abandon_never_frees_anothers_hold,
            time_counts_from_before_the_request,
        }
        observe { inspect_shows_the_holder, inspect_shows_who_waits, wait_limit_is_one_deadline, guards_travel, guarantees_hold_together }
        processes {
            excludes_across_processes, counter_across_processes, killed_holder_frees_within_its_ttl,
            killed_holder_frees_after_its_lock_delay, stopped_holder_finds_it_lost,
        }
        reentrant {
            nested_acquires_share_one_hold, joined_acquires_outlive_one_that_is_cancelled,
            a_loss_ends_all_nested_guards, nested_options_must_fit_the_hold, nested_work_cancelled_at_random_instants,
        }
        several {
            several_names_are_all_or_nothing, losing_one_of_several_loses_all,
            several_names_in_any_order_never_deadlock, several_cancelled_at_random_instants,
        }
        cohort {
            a_lease_passes_on_within_a_client, a_range_of_tokens_is_reserved_once, cohorts_exclude_each_other,
            others_are_served_between_cohorts, a_cohort_cancelled_at_random_instants,
            a_lease_that_passed_on_is_kept_and_its_loss_told, the_holder_before_is_stale_once_the_next_has_entered,
        }
        forced { a_forced_release_stops_a_working_holder, a_forced_release_frees_the_hold_that_was_meant }
    }
    alone {
        faults {
            unreachable_is_lost_by_the_deadline, hung_renewal_is_lost_by_the_deadline,
            short_interruption_is_jeopardy_and_no_loss, release_while_unreachable_is_made_good,
            acquire_while_unreachable_is_unavailable, nothing_blocks_its_thread,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let names: std::collections::BTreeSet<_> = CASES.iter().map(Case::name).collect();
        assert_eq!(names.len(), CASES.len());
    }
}
