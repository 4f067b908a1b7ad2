//! The ranks of this crate's locks: before those of the library, which it calls under them.

millpond_driver::ranks! {
    pub(crate) before millpond::raw::FIRST_RANK;
    Streams "the streams that are adopted";
}
