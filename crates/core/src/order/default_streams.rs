//! The rule of the default streams: the implicit order between streams.
//!
//! A *home* is one device as one process uses it. Each home has one legacy default stream, its *barrier*. An
//! operation of the barrier comes after everything in all *tied* streams of its home, and their later work comes
//! after it. *Free* streams are exempt. A thread's default stream is tied. The work of a destroyed stream still
//! counts. The rule is applied lazily: a tied stream is noted at its first operation after the barrier's last one,
//! and the barrier's next operation waits for the noted streams.
//!
//! The rule is stated here and applied by the code that owns the streams of a home: `streams.rs` for a whole program,
//! and the live library behind each stream's own lock. If a tied stream is being captured, an operation of the
//! barrier would come after work that does not run. That is refused before anything is gathered
//! ([`Captures::check_legacy`]).
//!
//! [`Captures::check_legacy`]: crate::graph::Captures::check_legacy

use crate::op::StreamRole;

/// The relation of a stream to the barrier of its home.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Standing {
    /// There is no implicit order between them.
    Free,
    /// Each operation of the stream comes after the barrier's last one and before the barrier's next one.
    Tied,
    /// The stream is the barrier.
    Barrier,
}

impl StreamRole {
    /// Returns the relation of a stream with this role to the legacy default stream.
    #[inline]
    pub const fn standing(self) -> Standing {
        match self {
            StreamRole::NonBlocking => Standing::Free,
            StreamRole::Blocking | StreamRole::PerThread => Standing::Tied,
            StreamRole::Legacy => Standing::Barrier,
        }
    }
}

/// A stream that is about to get an operation. The owner of the streams implements what the rule needs.
pub trait Ties {
    /// The reason for a refusal.
    type Refused;

    /// Puts a tied stream after the barrier's last operation, if there is one.
    ///
    /// # Errors
    /// The edge could not be made; the operation must not be made either.
    fn follow(&mut self) -> Result<(), Self::Refused>;

    /// Notes that a tied stream has work that the barrier does not come after yet. The barrier's next operation must
    /// find the note even after the stream is destroyed.
    fn note(&mut self);

    /// Puts the barrier after all noted work, and removes the notes.
    ///
    /// # Errors
    /// An edge could not be made; the operation must not be made either. Work that was not gathered is still noted.
    fn gather(&mut self) -> Result<(), Self::Refused>;

    /// Records the barrier's operation as its last one, for tied streams to come after.
    fn publish(&mut self);
}

/// Applies the rule before each operation of a stream.
///
/// # Errors
/// Returns the error of the ties.
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

/// Applies the rule after each operation of a stream, once the operation is made.
#[inline]
pub fn after<T: Ties>(standing: Standing, ties: &mut T) {
    if matches!(standing, Standing::Barrier) {
        ties.publish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records the calls of the rule, and refuses one of the steps.
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

    /// Tests, for each role and each refused step, what is done for an operation: nothing after a refused step.
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

    /// Tests, for each pair of roles, whether the second operation comes after the first.
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
