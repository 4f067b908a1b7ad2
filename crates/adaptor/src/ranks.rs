//! The ranks of this crate's locks. They come before the library's, because the library is called under them.

millpond_driver::ranks! {
    pub(crate) before millpond::raw::FIRST_RANK;
    Streams "the streams that are adopted";
}
