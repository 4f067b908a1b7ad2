//! The ranks of this crate's locks: before those of the library, which it calls under some of them.

millpond_driver::ranks! {
    before millpond::raw::FIRST_RANK;
    Attaching "who looks the real functions up";
    PassedNames "which calls were passed on";
    Session "the session";
    Current "the current pools";
    Pools "the pools that are served";
    Streams "the program's streams";
    Refused "which devices are not served";
    Origins "streams that capture";
    Live "what is live";
    Retired "figures of devices that are gone";
}
