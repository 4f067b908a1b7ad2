//! The order in which locks may be taken.
//!
//! A thread that waits for a lock holds none of a later rank, so no two threads wait for each other. If a thread holds
//! several locks of one rank at once, these have an order of their own, which is stated where the rank is listed. The
//! ranks of a crate come before those of the crates that it calls.

/// The rank of a lock: a type without values.
pub trait Rank {
    /// The position in the order: a lower one is taken first.
    const PLACE: u8;
    /// The guarded object, for messages.
    const NAME: &'static str;
    /// `true` if a thread may hold several locks of the rank at once.
    const IS_SEVERAL: bool;
}

/// The rank of a lock that a thread takes inside a call to the driver library, as the library's own locks. A thread may
/// hold any other lock during such a call. It comes after all others.
#[derive(Debug)]
pub enum InDriver {}

impl Rank for InDriver {
    const PLACE: u8 = u8::MAX;
    const NAME: &'static str = "a lock inside the driver library";
    const IS_SEVERAL: bool = false;
}

/// The rank of all locks under which no thread waits for another lock of ours. It comes after all of them.
#[derive(Debug)]
pub enum Leaf {}

impl Rank for Leaf {
    const PLACE: u8 = InDriver::PLACE - 1;
    const NAME: &'static str = "a leaf";
    const IS_SEVERAL: bool = false;
}

/// Lists the ranks of a crate in the order in which they are taken, each with its name and with `several` if a thread
/// may hold several. All of them come before the given place. `FIRST` is the first place of the list.
#[macro_export]
#[doc(hidden)]
macro_rules! ranks {
    (@) => { false };
    (@ several) => { true };
    ($vis:vis before $end:expr; $($(#[doc = $doc:literal])* $rank:ident $name:literal $($several:ident)?;)*) => {
        #[allow(clippy::upper_case_acronyms)]
        #[repr(u8)]
        enum Number { $($rank),* }

        /// The place of the first rank.
        #[allow(dead_code)] // For the crates above; the topmost crates have none above.
        $vis const FIRST: u8 = $end - [$($name),*].len() as u8;

        $(
            $(#[doc = $doc])*
            #[derive(Debug)]
            pub(crate) enum $rank {}

            impl $crate::locks::Rank for $rank {
                const PLACE: u8 = FIRST + Number::$rank as u8;
                const NAME: &'static str = $name;
                const IS_SEVERAL: bool = $crate::ranks!(@ $($several)?);
            }
        )*
    };
}

/// Records that this thread holds a lock of a rank, until it is dropped.
#[cfg(not(debug_assertions))]
#[derive(Debug)]
pub struct Held;

#[cfg(not(debug_assertions))]
impl Held {
    /// Checks that this thread may wait for the lock.
    #[inline]
    pub(super) fn in_order<R: Rank>() -> Self {
        Self
    }

    /// Records a lock that was taken without waiting.
    #[inline]
    pub(super) fn tried<R: Rank>() -> Self {
        Self
    }
}

#[cfg(debug_assertions)]
pub use checked::Held;

/// Checks that this thread may wait for locks from this rank on.
///
/// # Panics
/// As of [`lock`](super::lock).
#[cfg_attr(debug_assertions, track_caller)]
#[inline]
pub fn may_wait<R: Rank>() {
    // During a panic a second one would abort the process.
    if !std::thread::panicking() {
        drop(Held::in_order::<R>());
    }
}

#[cfg(debug_assertions)]
mod checked {
    use std::cell::Cell;
    use std::panic::Location;

    use super::Rank;

    /// The locks of a rank that a thread holds: their number, the rank's name, and the place where the last of them was
    /// taken.
    type Count = Cell<(u32, &'static str, &'static Location<'static>)>;

    thread_local! {
        static HELD: [Count; 256] = const { [const { Cell::new((0, "", Location::caller())) }; 256] };
    }

    /// Records that this thread holds a lock of a rank, until it is dropped.
    #[derive(Debug)]
    pub struct Held(u8);

    impl Held {
        /// Checks that this thread may wait for the lock.
        ///
        /// # Panics
        /// This thread holds a lock of a later rank.
        #[track_caller]
        pub(crate) fn in_order<R: Rank>() -> Self {
            let first = usize::from(R::PLACE) + usize::from(R::IS_SEVERAL);
            let later = HELD.with(|held| held[first..].iter().map(Cell::get).find(|(count, ..)| *count > 0));
            if let Some((_, later, place)) = later {
                let wanted = R::NAME;
                panic!(
                    "this thread holds the lock of {later}, taken at {place}, and waits for that of {wanted}, which \
                     comes first"
                );
            }
            Self::tried::<R>()
        }

        /// Records a lock that was taken without waiting.
        #[track_caller]
        pub(crate) fn tried<R: Rank>() -> Self {
            let place = Location::caller();
            HELD.with(|held| held[usize::from(R::PLACE)].update(|(count, ..)| (count + 1, R::NAME, place)));
            Self(R::PLACE)
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            HELD.with(|held| held[usize::from(self.0)].update(|(count, name, place)| (count - 1, name, place)));
        }
    }
}
