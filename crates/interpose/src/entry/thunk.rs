//! Entries: the exported functions, written without a prologue.
//!
//! An entry stores its stack pointer for the thread and jumps to its body, so that arguments in
//! registers and on the stack are as the caller left them. The word at the stack pointer is the return address.
//!
//! The library is loaded with the program, so its thread-local words are reached by one load (initial-exec).

use std::arch::{asm, global_asm};
use std::cell::Cell;

global_asm!(
    ".pushsection .tbss,\"awT\",@nobits",
    ".balign 16",
    ".globl millpond_entry",
    ".hidden millpond_entry",
    ".type millpond_entry, @object",
    ".size millpond_entry, 8",
    "millpond_entry:",
    ".zero 8",
    ".popsection",
);

/// What an entry does before its body: `rax` is free at the start of every function that takes no variable arguments.
macro_rules! entry_asm {
    ($body:path) => {
        std::arch::naked_asm!(
            "mov rax, qword ptr [rip + millpond_entry@GOTTPOFF]",
            "mov qword ptr fs:[rax], rsp",
            "jmp {body}",
            body = sym $body,
        )
    };
}
pub(crate) use entry_asm;

/// Where the entry at hand was called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entered {
    /// The address behind the call.
    pub(crate) pc: usize,
    /// The caller's stack pointer, once the call has returned.
    pub(crate) sp: usize,
}

/// Of the entry that this thread came through last.
#[inline(always)]
pub(crate) fn entered() -> Entered {
    let at: usize;
    // SAFETY: reads a word of this thread, which the entry wrote.
    unsafe {
        asm!(
            "mov {at}, qword ptr [rip + millpond_entry@GOTTPOFF]",
            "mov {at}, qword ptr fs:[{at}]",
            at = out(reg) at,
            options(nostack, readonly, preserves_flags),
        );
    }
    // SAFETY: the entry's stack pointer, below which its body runs: the return address is there.
    let pc = unsafe { *std::ptr::with_exposed_provenance::<usize>(at) };
    Entered { pc, sp: at + 8 }
}

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// A thread is in a wrapper: what the real library calls meanwhile is its own affair.
#[derive(Debug)]
pub(crate) struct Inside(());

impl Inside {
    /// None where the thread is in one already.
    #[inline]
    pub(crate) fn enter() -> Option<Self> {
        // Made only then: one that goes at once would end the other.
        (!INSIDE.replace(true)).then(|| Inside(()))
    }
}

/// Whether this thread is in a wrapper.
pub(crate) fn is_inside() -> bool {
    INSIDE.get()
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_inside_stays_so_while_others_are_refused() {
        let inside = Inside::enter();
        assert!(inside.is_some() && Inside::enter().is_none() && Inside::enter().is_none() && is_inside());
        drop(inside);
        assert!(!is_inside() && Inside::enter().is_some());
    }
}
