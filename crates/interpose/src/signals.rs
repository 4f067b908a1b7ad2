//! The ends of a process: by `exit`, by `_exit`, by a signal, by another program that replaces it. And forks.
//!
//! Handlers of fatal signals are installed only where the program has none. They only try the lock, write the rest of a
//! trace without allocating, and then let the signal take its usual effect.

use std::ffi::c_int;
use std::sync::OnceLock;

use crate::once::Once;

/// Signals that end a process without a handler, and that leave it time to act.
const FATAL: [c_int; 8] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT, libc::SIGTERM, libc::SIGINT, libc::SIGHUP];

/// The functions to call at the end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    /// The process ends.
    pub(crate) finish: fn(),
    /// This is a forked process.
    pub(crate) forget: fn(),
    /// Another program is about to replace this one, which may fail; `None` if there is nothing to do. It may be called
    /// in a signal handler, and in a process that shares this one's memory.
    #[cfg_attr(test, expect(dead_code, reason = "what calls it is the C library's in tests"))]
    pub(crate) leave: Option<fn()>,
    /// The process crashes; `None` if there is nothing to do.
    pub(crate) save: Option<fn()>,
}

/// The part of this library that registers the functions.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Who {
    /// The noting of operations.
    Noting,
    /// The serving of memory.
    Serving,
    /// The limit of memory.
    Limit,
    /// The delays of streams.
    Shaking,
}

/// By [`Who`].
static ENDS: [OnceLock<End>; 4] = [const { OnceLock::new() }; 4];

fn end(act: impl FnMut(&End)) {
    ENDS.iter().filter_map(OnceLock::get).for_each(act);
}

// SAFETY: a function of the C library that every program has; it keeps the handler that it is given.
unsafe extern "C" {
    safe fn atexit(handler: extern "C" fn()) -> c_int;
}

extern "C" fn at_exit() {
    end(|end| (end.finish)());
}

extern "C" fn in_child() {
    end(|end| (end.forget)());
}

extern "C" fn at_signal(signal: c_int, info: *mut libc::siginfo_t, _context: *mut std::ffi::c_void) {
    end(|end| end.save.into_iter().for_each(|save| save()));
    // A handler that was installed later may have called this one. That handler is still installed, and the signal is
    // blocked while it runs. The signal must end the process all the same.
    // SAFETY: a structure of numbers, for which 0 is a value: no flags, an empty set, the default.
    let default: libc::sigaction = unsafe { std::mem::zeroed() };
    let mut only = default.sa_mask;
    // SAFETY: it reads that structure.
    unsafe { libc::sigaction(signal, &raw const default, std::ptr::null_mut()) };
    // SAFETY: a set of this function.
    unsafe { libc::sigaddset(&raw mut only, signal) };
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const only, std::ptr::null_mut()) };
    // SAFETY: null, or the system's structure.
    let is_fault = unsafe { info.as_ref() }.is_some_and(|info| info.si_code > 0) && signal != libc::SIGABRT;
    if !is_fault || signal == libc::SIGTERM || signal == libc::SIGINT || signal == libc::SIGHUP {
        // A fault occurs again by itself.
        // SAFETY: a number of a signal.
        unsafe { libc::raise(signal) };
    }
}

/// Registers the functions to call when the process ends or forks.
pub(crate) fn watch(who: Who, functions: End) {
    static WATCHED: Once<()> = Once::new();
    // A forked process sets them again, to the same functions.
    let _ = ENDS[who as usize].set(functions);
    WATCHED.get_or_make(|| {
        // If the system has no room for a handler, the end of the trace is lost, as in a crash.
        let _ = atexit(at_exit);
        // SAFETY: a handler that takes nothing.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        Some(())
    });
    if functions.save.is_some() {
        FATAL.into_iter().for_each(watch_signal);
    }
}

fn watch_signal(signal: c_int) {
    // SAFETY: a structure of numbers, for which 0 is a value.
    let mut known: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: a place for the answer.
    let answer = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut known) };
    if answer != 0 || known.sa_sigaction != libc::SIG_DFL {
        return;
    }
    // SAFETY: as above.
    let mut new: libc::sigaction = unsafe { std::mem::zeroed() };
    new.sa_sigaction = at_signal as *const () as usize;
    new.sa_flags = libc::SA_SIGINFO | libc::SA_RESETHAND | libc::SA_NODEFER | libc::SA_ONSTACK;
    // SAFETY: a handler of that kind.
    unsafe { libc::sigaction(signal, &raw const new, std::ptr::null_mut()) };
}

/// Such an end of a program runs no `atexit` handler. The trace is written to its end all the same.
#[cfg(not(test))]
mod exits {
    use super::c_int;

    fn end(status: c_int) -> ! {
        super::end(|end| (end.finish)());
        // SAFETY: it ends the process.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
        std::process::abort()
    }

    #[unsafe(no_mangle)]
    extern "C" fn _exit(status: c_int) -> ! {
        end(status)
    }

    #[unsafe(no_mangle)]
    extern "C" fn _Exit(status: c_int) -> ! {
        end(status)
    }
}

/// Programs that replace this one. Each function jumps on to the C library's with all arguments unchanged, because some
/// take any number of them.
#[cfg(not(test))]
mod replaced {
    use std::ffi::{CStr, c_int};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use crate::entry::real::find_in;

    macro_rules! functions {
        ($($number:literal $name:ident $text:literal)*) => {
            const NAMES: [&CStr; [$($number),*].len()] = [$($text),*];

            $(
                #[unsafe(naked)]
                #[unsafe(no_mangle)]
                unsafe extern "C" fn $name() {
                    #[cfg(target_arch = "x86_64")]
                    std::arch::naked_asm!(
                        "push rdi",
                        "push rsi",
                        "push rdx",
                        "push rcx",
                        "push r8",
                        "push r9",
                        "push rax",
                        concat!("mov edi, ", $number),
                        "call {leave}",
                        "mov r11, rax",
                        "pop rax",
                        "pop r9",
                        "pop r8",
                        "pop rcx",
                        "pop rdx",
                        "pop rsi",
                        "pop rdi",
                        "jmp r11",
                        leave = sym leave,
                    );
                    #[cfg(target_arch = "aarch64")]
                    std::arch::naked_asm!(
                        "stp x29, x30, [sp, #-80]!",
                        "mov x29, sp",
                        "stp x0, x1, [sp, #16]",
                        "stp x2, x3, [sp, #32]",
                        "stp x4, x5, [sp, #48]",
                        "stp x6, x7, [sp, #64]",
                        concat!("mov w0, #", $number),
                        "bl {leave}",
                        "mov x16, x0",
                        "ldp x0, x1, [sp, #16]",
                        "ldp x2, x3, [sp, #32]",
                        "ldp x4, x5, [sp, #48]",
                        "ldp x6, x7, [sp, #64]",
                        "ldp x29, x30, [sp], #80",
                        "br x16",
                        leave = sym leave,
                    );
                }
            )*
        };
    }

    functions! {
        0 execve c"execve"
        1 execv c"execv"
        2 execvp c"execvp"
        3 execvpe c"execvpe"
        4 execl c"execl"
        5 execle c"execle"
        6 execlp c"execlp"
        7 fexecve c"fexecve"
        8 execveat c"execveat"
    }

    /// The C library's functions.
    static REAL: [AtomicUsize; NAMES.len()] = [const { AtomicUsize::new(0) }; NAMES.len()];

    /// Runs when the library is loaded: later, a process that is about to be replaced may not be allowed to call
    /// `dlsym`.
    #[used]
    #[unsafe(link_section = ".init_array")]
    static FIND: extern "C" fn() = find;

    extern "C" fn find() {
        for (place, name) in REAL.iter().zip(NAMES) {
            place.store(find_in(libc::RTLD_NEXT, name), Ordering::Relaxed);
        }
    }

    /// Writes what there is. Returns the address of the function to go on to.
    extern "C" fn leave(number: usize) -> usize {
        super::end(|end| end.leave.into_iter().for_each(|leave| leave()));
        match REAL.get(number).map(|place| place.load(Ordering::Relaxed)) {
            Some(at) if at != 0 => at,
            // A library that is loaded before this one makes the call.
            _ => {
                NAMES.get(number).map(|name| find_in(libc::RTLD_NEXT, name)).filter(|at| *at != 0).unwrap_or_else(none)
            }
        }
    }

    /// Returns a function for use if the C library lacks the real one.
    fn none() -> usize {
        extern "C" fn refuse() -> c_int {
            // SAFETY: takes nothing.
            let error = unsafe { libc::__errno_location() };
            // SAFETY: the place of this thread's error.
            unsafe { *error = libc::ENOSYS };
            -1
        }
        refuse as *const () as usize
    }
}
