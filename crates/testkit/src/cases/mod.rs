//! The cases, in rooms by what they are about.

mod exclusion;
mod faults;
mod names;

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
    }
    alone {
        faults { unreachable_is_lost_by_the_deadline, hung_renewal_is_lost_by_the_deadline }
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
