//! The rule of the default streams: what comes between streams without a call that says so.
//!
//! What one process has of one device is a *home*, and each has one legacy default stream, its *barrier*. An operation
//! of the barrier comes after everything in all *tied* streams of its home, and their later work after it; *free*
//! streams are exempt. A thread's default stream is a tied one, and the work of a stream that was destroyed still
//! counts. That is settled lazily: a tied stream is noted with its first operation after the barrier's last, and the
//! barrier's next takes the notes.
//!
//! Stated here, and done by whoever keeps the streams of a home: those of a whole program by `streams.rs`, the live
//! library's behind each stream's own lock. Where a tied stream is captured, an operation of the barrier would come
//! after work that is none: that is refused before anything is gathered ([`Captures::check_legacy`]).
//!
//! [`Captures::check_legacy`]: crate::graph::Captures::check_legacy

use crate::op::StreamRole;

/// How a stream stands to the barrier of its home.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Standing {
    /// Nothing comes between them.
    Free,
    /// Each of its operations comes after the barrier's last, and the barrier's next after it.
    Tied,
    /// It is the barrier.
    Barrier,
}

impl StreamRole {
    /// How it stands to the legacy default stream.
    #[inline]
    pub const fn standing(self) -> Standing {
        match self {
            StreamRole::NonBlocking => Standing::Free,
            StreamRole::Blocking | StreamRole::PerThread => Standing::Tied,
            StreamRole::Legacy => Standing::Barrier,
        }
    }
}

/// A stream of a home, about to have an operation: what the rule asks of whoever keeps it.
pub trait Ties {
    /// Why it could not be done.
    type Refused;

    /// A tied stream comes after the barrier's last operation, where there was one.
    ///
    /// # Errors
    /// It could not be done: the operation is not to be made.
    fn follow(&mut self) -> Result<(), Self::Refused>;

    /// A tied stream has work that the barrier does not come after yet: its next operation has to find it, also once
    /// the stream is destroyed.
    fn note(&mut self);

    /// The barrier comes after all work that was noted, which is not noted any more.
    ///
    /// # Errors
    /// It could not be done: the operation is not to be made, and what was not gathered is still noted.
    fn gather(&mut self) -> Result<(), Self::Refused>;

    /// The barrier's operation is made: it is the last, for tied streams to come after.
    fn publish(&mut self);
}

/// What is done before each operation of a stream.
///
/// # Errors
/// What the ties refuse.
#[inline]
pub fn before<T: Ties>(standing: Standing, ties: &mut T) -> Result<(), T::Refused> {
    match standing {
        Standing::Free => Ok(()),
        Standing::Tied => {
            ties.follow()?;
            ties.note();
            Ok(())
        }
        Standing::Barrier => ties.gather(),
    }
}

/// What is done after each operation of a stream, once it is made.
#[inline]
pub fn after<T: Ties>(standing: Standing, ties: &mut T) {
    if matches!(standing, Standing::Barrier) {
        ties.publish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes down what is asked of it; refuses one of the steps.
    #[derive(Default)]
    struct Asked {
        steps: Vec<&'static str>,
        refuses: &'static str,
    }

    impl Asked {
        fn step(&mut self, step: &'static str) -> Result<(), ()> {
            self.steps.push(step);
            if step == self.refuses { Err(()) } else { Ok(()) }
        }
    }

    impl Ties for Asked {
        type Refused = ();

        fn follow(&mut self) -> Result<(), ()> {
            self.step("follow")
        }

        fn note(&mut self) {
            self.steps.push("note");
        }

        fn gather(&mut self) -> Result<(), ()> {
            self.step("gather")
        }

        fn publish(&mut self) {
            self.steps.push("publish");
        }
    }

    /// Each role, what it refuses, and what is done for an operation: nothing after a step that was refused.
    #[test]
    fn the_rule_as_a_table() {
        const TABLE: &[(StreamRole, &str, &[&str])] = &[
            (StreamRole::NonBlocking, "", &[]),
            (StreamRole::Blocking, "", &["follow", "note"]),
            (StreamRole::PerThread, "", &["follow", "note"]),
            (StreamRole::Legacy, "", &["gather", "publish"]),
            (StreamRole::Blocking, "follow", &["follow"]),
            (StreamRole::PerThread, "follow", &["follow"]),
            (StreamRole::Legacy, "gather", &["gather"]),
        ];
        for (role, refuses, expected) in TABLE {
            let mut asked = Asked { refuses, ..Asked::default() };
            if before(role.standing(), &mut asked).is_ok() {
                after(role.standing(), &mut asked);
            }
            assert_eq!(asked.steps, *expected, "{role:?}, which refuses `{refuses}`");
        }
    }

    /// What the rule puts between two operations, for each pair of roles: whether the second comes after the first.
    #[test]
    fn who_comes_after_whom() {
        use crate::order::{Host, Knows, Streams};
        use StreamRole::{Blocking, Legacy, NonBlocking, PerThread};
        let is_after = |first: StreamRole, then: StreamRole, is_destroyed: bool| {
            let (mut streams, host) = (Streams::default(), Host::new(0));
            let home = streams.open_home(1);
            let [a, b] = [first, then].map(|role| streams.create(home, role, host.base().clone(), ()));
            streams.enter(a, host.base(), |_| ());
            let point = streams.get_mut(a).unwrap().chain.submit();
            streams.leave(a);
            if is_destroyed {
                streams.destroy(a);
            }
            streams.enter(b, host.base(), |_| ());
            streams.get(b).unwrap().chain.covers(point)
        };
        for first in [Blocking, PerThread, NonBlocking, Legacy] {
            for then in [Blocking, PerThread, NonBlocking, Legacy] {
                let both = [first.standing(), then.standing()];
                let expected =
                    matches!(both, [Standing::Tied, Standing::Barrier] | [Standing::Barrier, Standing::Tied]);
                // There is one legacy default stream in a home.
                if first != Legacy || then != Legacy {
                    for is_destroyed in [false, true] {
                        assert_eq!(is_after(first, then, is_destroyed), expected, "{first:?}, then {then:?}");
                    }
                }
            }
        }
    }
}
