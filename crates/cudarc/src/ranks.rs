//! The ranks of this crate's locks. They come before those of the crates that it calls under them.

millpond_driver::ranks! {
    before millpond_adaptor::FIRST_RANK;
    Served "the devices that serve";
}
