//! Tells whether a thread has ended, by asking the system about its number. A thread-local destructor would come too
//! early: other destructors of the program that run later may still call CUDA.

/// Returns the number of the calling thread.
pub(crate) fn current() -> i32 {
    // SAFETY: it has no preconditions.
    unsafe { libc::gettid() }
}

/// Returns `true` if this process has a thread with this number: the same thread, or a later one.
pub(crate) fn is_there(thread: i32) -> bool {
    // SAFETY: it has no preconditions.
    let process = unsafe { libc::getpid() };
    // SAFETY: signal 0 is not delivered.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, process, thread, 0) };
    sent == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_was_joined_has_ended() {
        assert!(is_there(current()));
        let ended = std::thread::spawn(current).join().unwrap();
        assert!(!is_there(ended));
    }
}
