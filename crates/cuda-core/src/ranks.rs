//! The ranks of this crate's locks: before those of the crates that it calls under them.

millpond_driver::ranks! {
    before millpond_adaptor::FIRST_RANK;
    Lent "the buffers that are lent";
    Loan "a buffer that is lent";
}
