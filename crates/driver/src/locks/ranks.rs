//! In which order locks may be taken.
//!
//! A thread that waits for a lock holds none of a later rank, so that no two threads wait for each other. Where several
//! locks of one rank are held at once, those have an order of their own, which is said where the rank is listed. The
//! ranks of a crate come before those of the crates that it calls.

/// The rank of a lock: a type without values.
pub trait Rank {
    /// What comes first may be taken first.
    const PLACE: u8;
    /// What the lock guards, in words, for messages.
    const NAME: &'static str;
    /// Whether a thread may hold several locks of the rank at once.
    const IS_SEVERAL: bool;
}

/// The rank of all locks under which no other lock is waited for. It comes after all others.
#[derive(Debug)]
pub enum Leaf {}

impl Rank for Leaf {
    const PLACE: u8 = u8::MAX;
    const NAME: &'static str = "a leaf";
    const IS_SEVERAL: bool = false;
}

/// Lists the ranks of a crate, first what may be taken first, each with its name and whether a thread may hold several:
/// all of them come before the place that is given. `FIRST` is where they begin.
#[macro_export]
#[doc(hidden)]
macro_rules! ranks {
    (@) => { false };
    (@ several) => { true };
    ($vis:vis before $end:expr; $($(#[doc = $doc:literal])* $rank:ident $name:literal $($several:ident)?;)*) => {
        #[allow(clippy::upper_case_acronyms)]
        #[repr(u8)]
        enum Number { $($rank),* }

        /// The place of the first of them.
        #[allow(dead_code)] // It is for the crates above, and the topmost ones have none.
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

/// Says that this thread holds a lock of a rank, for as long as it is there.
#[cfg(not(debug_assertions))]
#[derive(Debug)]
pub struct Held;

#[cfg(not(debug_assertions))]
impl Held {
    /// The lock may be waited for.
    #[inline]
    pub(super) fn in_order<R: Rank>() -> Self {
        Self
    }

    /// The lock is taken, and was not waited for.
    #[inline]
    pub(super) fn tried<R: Rank>() -> Self {
        Self
    }
}

#[cfg(debug_assertions)]
pub use checked::Held;

/// Locks from this rank on may be waited for here.
///
/// # Panics
/// As of [`lock`](super::lock).
#[cfg_attr(debug_assertions, track_caller)]
#[inline]
pub fn may_wait<R: Rank>() {
    // While a panic passes there would be no second one, but an abort.
    if !std::thread::panicking() {
        drop(Held::in_order::<R>());
    }
}

#[cfg(debug_assertions)]
mod checked {
    use std::cell::Cell;
    use std::panic::Location;

    use super::Rank;

    /// The locks of a rank that a thread holds: how many, the rank's name, and where the last of them was taken.
    type Count = Cell<(u32, &'static str, &'static Location<'static>)>;

    thread_local! {
        static HELD: [Count; 256] = const { [const { Cell::new((0, "", Location::caller())) }; 256] };
    }

    /// Says that this thread holds a lock of a rank, for as long as it is there.
    #[derive(Debug)]
    pub struct Held(u8);

    impl Held {
        /// The lock may be waited for.
        ///
        /// # Panics
        /// This thread holds one that comes later.
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

        /// The lock is taken, and was not waited for.
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
