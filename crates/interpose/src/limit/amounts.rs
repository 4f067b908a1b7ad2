//! The amounts of a limit, as the command passes them on: `*=8589934592,1=50%`.
//!
//! `*` is every device that has no amount of its own. A part is of the device's memory.

/// The number of devices that a limit counts: device numbers are below this.
pub(super) const DEVICES_MAX: usize = 64;

/// The memory that a process and its children may use on a device.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Amount {
    Bytes(u64),
    /// A part of the device's memory, in percent.
    Percent(f64),
}

impl Amount {
    fn parse(text: &str) -> Option<Self> {
        match text.strip_suffix('%') {
            Some(number) => number.parse().ok().map(Amount::Percent),
            None => text.parse().ok().map(Amount::Bytes),
        }
    }

    /// Returns the amount in bytes, on a device with this much memory.
    pub(super) fn bytes(self, total: u64) -> u64 {
        match self {
            Amount::Bytes(bytes) => bytes,
            Amount::Percent(part) => (total as f64 * part / 100.0) as u64,
        }
    }
}

/// Returns the amount for a device; `None` if the device has no limit.
pub(super) fn of(text: &str, device: i32) -> Option<Amount> {
    named(text, &device.to_string()).or_else(|| of_all(text))
}

/// Returns the amount for devices that have no amount of their own.
pub(super) fn of_all(text: &str) -> Option<Amount> {
    named(text, "*")
}

fn named(text: &str, name: &str) -> Option<Amount> {
    let mut amounts = text.split(',').filter_map(|part| part.split_once('='));
    amounts.find(|(known, _)| *known == name).and_then(|(_, amount)| Amount::parse(amount))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_devices_own_amount_comes_before_that_of_all() {
        let text = "*=4096,1=12.5%";
        assert_eq!(of(text, 0), Some(Amount::Bytes(4096)));
        assert_eq!(of(text, 1).map(|amount| amount.bytes(64)), Some(8));
        assert_eq!((of("1=5", 0), of("1=5", 10), of("", 0)), (None, None, None));
    }
}
