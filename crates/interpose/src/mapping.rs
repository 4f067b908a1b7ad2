//! Asks the system about an address of this process: is it plain memory now?
//!
//! This changes nothing and never faults. It knows no driver call and no allocation.

use std::fs::File;
use std::io::{BufRead, BufReader};

/// Returns `true` if the process may read the address and no device's file is mapped there. A range without access, as
/// a driver reserves it, is not usable.
pub(crate) fn is_usable(at: u64) -> bool {
    is_readable(at) && !is_of_device(at)
}

/// Returns `true` if a byte can be read there. Most ranges of a driver cannot be read, so this decides for them.
fn is_readable(at: u64) -> bool {
    let mut byte = 0u8;
    let to = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let from = libc::iovec { iov_base: std::ptr::with_exposed_provenance_mut(at as usize), iov_len: 1 };
    // SAFETY: takes nothing.
    let own = unsafe { libc::getpid() };
    // SAFETY: a place of one byte of this function's; what cannot be read is an error.
    let read = unsafe { libc::process_vm_readv(own, &raw const to, 1, &raw const from, 1, 0) };
    // If a sandbox forbids this call, the list of mappings decides alone.
    read == 1 || read < 0 && is_refused(std::io::Error::last_os_error().raw_os_error())
}

fn is_refused(error: Option<i32>) -> bool {
    matches!(error, Some(libc::ENOSYS | libc::EPERM))
}

/// Returns `true` if a driver's file is mapped there, or nothing usable. Managed memory is readable, and is still a
/// device's.
fn is_of_device(at: u64) -> bool {
    let Ok(maps) = File::open("/proc/self/maps") else { return false };
    let lines = BufReader::new(maps).split(b'\n').map_while(Result::ok);
    let found = lines.map(|line| String::from_utf8_lossy(&line).into_owned()).find(|line| has(line, at));
    let Some(line) = found else { return true };
    let mut words = line.split_ascii_whitespace().skip(1);
    let (access, path) = (words.next().unwrap_or_default(), words.nth(3).unwrap_or_default());
    !access.contains(['r', 'w']) || DEVICES.iter().any(|device| path.starts_with(device))
}

/// The prefixes of drivers' files.
const DEVICES: [&str; 3] = ["/dev/nvidia", "/dev/dri", "/dev/dxg"];

/// Returns `true` if a line of the list is the mapping that the address is in.
fn has(line: &str, at: u64) -> bool {
    let bounds = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
    let number = |text| u64::from_str_radix(text, 16).ok();
    let bounds = bounds.and_then(|(start, end)| Some(number(start)?..number(end)?));
    bounds.is_some_and(|bounds| bounds.contains(&at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_the_host_is_told_from_what_is_reserved_or_not_there() {
        let page = 4096;
        let map = |access| {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            // SAFETY: a new mapping, wherever there is room.
            let at = unsafe { libc::mmap(std::ptr::null_mut(), page, access, flags, -1, 0) };
            assert_ne!(at, libc::MAP_FAILED);
            at
        };
        let (plain, reserved) = (map(libc::PROT_READ | libc::PROT_WRITE), map(libc::PROT_NONE));
        let on_stack = 0u8;
        assert!(is_usable(plain.addr() as u64) && is_usable(plain.addr() as u64 + page as u64 - 1));
        assert!(is_usable((&raw const on_stack).addr() as u64));
        assert!(!is_usable(reserved.addr() as u64));
        assert!(is_of_device(reserved.addr() as u64), "the list of mappings says so, too");
        // SAFETY: it was mapped above, and nothing uses it.
        assert_eq!(unsafe { libc::munmap(reserved, page) }, 0);
        assert!(!is_usable(reserved.addr() as u64) && !is_usable(0) && !is_usable(u64::MAX));
        // SAFETY: as above.
        assert_eq!(unsafe { libc::munmap(plain, page) }, 0);
    }

    #[test]
    fn lines_of_the_list_are_read() {
        let line = "7f0a00000000-7f0a00200000 rw-s 00000000 00:06 531                        /dev/nvidia-uvm";
        assert!(has(line, 0x7f0a_0000_0000) && has(line, 0x7f0a_001f_ffff) && !has(line, 0x7f0a_0020_0000));
        assert!(!has("", 0) && !has("x-y rw-p", 0));
    }
}
