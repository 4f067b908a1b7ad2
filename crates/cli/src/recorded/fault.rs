//! What no program can have done, as a refusal of its recording.

use millpond_core::trace::Fault;
use millpond_core::units::Bytes;

use crate::refusal::{Place, Refusal};

/// A step that no program can have done. `key` tells how the format writes its keys and `unit` what the
/// recorder's places count, such as `line`.
pub(super) fn refused(place: Place, fault: &Fault, key: impl Fn(u64) -> String, unit: &str) -> Refusal {
    let (reason, help) = match *fault {
        Fault::StillLive { key: k, since } => (
            format!("{} is allocated while it is still live since {unit} {since}", key(k)),
            "a free is missing between the two: was part of the recording lost?",
        ),
        Fault::UsedBefore { key: k, first } => (
            format!("{} is allocated a second time, first on {unit} {first}", key(k)),
            "ids are unique in a file: count them up from 0",
        ),
        Fault::Unknown { key: k } => (
            format!("{} is freed but was never allocated", key(k)),
            "its allocation is missing: was the beginning of the recording lost?",
        ),
        Fault::FreedBefore { key: k, at } => (
            format!("{} is freed a second time, first on {unit} {at}", key(k)),
            "the recorded program freed twice, or an allocation between the two is missing",
        ),
        Fault::NoBytes => {
            ("an allocation of 0 bytes".to_owned(), "leave allocations without bytes out, and their frees")
        }
        Fault::TooLarge { bytes } => (
            format!("an allocation of {bytes} bytes, more than any address space has"),
            "sizes are in bytes: was another column taken for the size?",
        ),
        Fault::TooMuchLive { bytes } => (
            format!("{} live at once, more than any address space has", Bytes(bytes)),
            "sizes are in bytes: was another column taken for the size?",
        ),
        Fault::TooLong => (fault.to_string(), "cut the recording into shorter ones"),
        Fault::Empty => {
            ("a recording without any allocation".to_owned(), "was recording switched on before the program allocated?")
        }
    };
    Refusal::new(place, reason).help(help)
}
