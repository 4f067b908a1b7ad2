//! Processes of the system: which one this is, and which ones have ended.

use std::fs;
use std::os::unix::fs::MetadataExt;

/// A process, as every process of its namespace knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Process {
    pub(super) number: u32,
    /// The time of its start, in the system's ticks; 0 if it is not known.
    pub(super) start: u64,
    /// Its namespaces of process numbers and of times; 0 if the system does not say what it knows of processes there.
    pub(super) namespace: u64,
}

impl Process {
    pub(super) fn own() -> Self {
        let number = std::process::id();
        // `/proc` may be that of another namespace, with other numbers.
        let is_seen = fs::read_link("/proc/self").is_ok_and(|it| it.as_os_str() == &*number.to_string());
        let inode = |kind: &str| fs::metadata(format!("/proc/self/ns/{kind}")).map_or(0, |it| it.ino());
        let namespace = if is_seen { inode("pid") ^ inode("time").rotate_left(32) } else { 0 };
        Self { number, start: state_of(number).map_or(0, |it| it.start), namespace }
    }

    /// Returns `true` if the process has ended. Nothing is known of a process of other namespaces: it has another
    /// number and another start there.
    pub(super) fn has_ended(self, own: Process) -> bool {
        if self == own || self.namespace != own.namespace || own.namespace == 0 {
            return false;
        }
        match state_of(self.number) {
            Some(state) => state.has_ended || self.start != 0 && state.start != self.start,
            None => {
                // SAFETY: signal 0 is not delivered.
                let sent = unsafe { libc::kill(self.number as i32, 0) };
                sent != 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
            }
        }
    }
}

/// What the system says of a process.
pub(super) struct State {
    /// `true` if only its exit status is left.
    has_ended: bool,
    pub(super) start: u64,
}

pub(super) fn state_of(process: u32) -> Option<State> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name of the program is in parentheses, and may have any characters.
    let fields: Vec<&str> = text.get(text.rfind(')')? + 1..)?.split_ascii_whitespace().collect();
    let threads = fields.get(17)?.parse::<u64>().ok()?;
    // A process whose first thread has ended runs on while it has others.
    let has_ended = matches!(*fields.first()?, "Z" | "X" | "x") && threads <= 1;
    Some(State { has_ended, start: fields.get(19)?.parse().ok()? })
}
