//! Whether a thread has ended, asked of the system by its number: a destructor of a thread-local value may run before
//! others of the program that still call CUDA.

/// The calling thread.
pub(crate) fn current() -> i32 {
    // SAFETY: it only answers.
    unsafe { libc::gettid() }
}

/// Whether this process has the thread, or another one by its number.
pub(crate) fn is_there(thread: i32) -> bool {
    // SAFETY: it only answers.
    let process = unsafe { libc::getpid() };
    // SAFETY: signal 0 is none.
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
