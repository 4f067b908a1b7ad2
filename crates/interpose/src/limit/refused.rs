//! The message about the first allocation that the limit refused, and the report to the command.

use std::cell::Cell;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use millpond_core::units::Bytes;
use millpond_driver::output::say;

use super::account::named;
use super::amounts::DEVICES_MAX;
use super::{Limited, State, current};
use crate::abi::Code;
use crate::session::At;
use crate::{mode, report};

/// The number of the program's lines that are named.
const LINES: usize = 3;

thread_local! {
    /// The device and the bytes of the thread's last allocation, if the limit has refused that.
    static LAST: Cell<Option<(i32, u64)>> = const { Cell::new(None) };
}

/// Notes whether the limit has refused the thread's allocation.
pub(super) fn set(refused: Option<(i32, u64)>) {
    // A thread that ends may still make calls: then nothing is said.
    let _ = LAST.try_with(|last| last.set(refused));
}

/// Counts a call of the program that the limit has refused after all attempts, and says so at the first time.
pub(crate) fn note(at: &At, code: Code) {
    let last = LAST.try_with(Cell::take).ok().flatten();
    if code != Code::OUT_OF_MEMORY {
        return;
    }
    let (Some((device, bytes)), Some(state)) = (last, current()) else { return };
    if state.refused.fetch_add(1, Ordering::Relaxed) == 0 {
        let mut lines = Vec::new();
        if mode::is_noting() {
            at.settle(|session| lines = session.most_by_place(device, LINES));
        }
        state.say_refused(device, bytes, &lines);
    }
}

impl State {
    #[cold]
    fn say_refused(&self, device: i32, bytes: u64, lines: &[(String, u64)]) {
        let Some(Limited { place, bytes: limit }) = self.limited(device) else { return };
        let (by_kind, others) = self.account.by_kind(place);
        let used = by_kind.iter().fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
        let (bytes, limit, sum) = (Bytes(bytes), Bytes(limit), Bytes(used));
        let refused = format!("{bytes} more would pass the limit of {limit}");
        let mut text = format!("millpond: device {device}: an allocation is refused: {refused}; {sum} are used");
        for (at, (name, bytes)) in named(&by_kind).into_iter().enumerate() {
            let _ = write!(text, "{} {} by {name}", if at == 0 { ":" } else { "," }, Bytes(bytes));
        }
        if others > 0 {
            let _ = write!(text, "; {} of all that by other processes", Bytes(others));
        }
        for (at, (place, bytes)) in lines.iter().enumerate() {
            let _ = write!(text, "{} {} by {place}", if at == 0 { "; most of them:" } else { "," }, Bytes(*bytes));
        }
        say(text);
    }
}

/// Reports to the command at the process's end.
pub(super) fn report() {
    static REPORTED: AtomicBool = AtomicBool::new(false);
    let Some(state) = current().filter(|_| mode::reports() && !REPORTED.swap(true, Ordering::Relaxed)) else { return };
    let mut lines = String::new();
    for (device, limit) in (0..DEVICES_MAX).zip(&state.limits) {
        if let Some(Some(Limited { place, bytes })) = limit.get() {
            let _ = writeln!(lines, "limit\t{device}\t{bytes}\t{}", state.account.peak(*place));
        }
    }
    let _ = writeln!(lines, "refused\t{}", state.refused.load(Ordering::Relaxed));
    report::add(&lines);
}
