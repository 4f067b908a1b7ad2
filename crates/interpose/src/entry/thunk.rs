//! Entries: the exported functions, written without a prologue.
//!
//! An entry stores its stack pointer for the thread and jumps to its body, so that arguments in
//! registers and on the stack are as the caller left them. The word at the stack pointer is the return address; on
//! aarch64 that is in a register, and is stored as well.
//!
//! The library is loaded with the program, so its thread-local words are reached by one load (initial-exec). Those of
//! the language itself take a call each in a library.

use std::arch::{asm, global_asm};
use std::cell::Cell;

global_asm!(
    ".pushsection .tbss,\"awT\",@nobits",
    ".balign 16",
    ".globl millpond_entry",
    ".hidden millpond_entry",
    ".type millpond_entry, @object",
    ".size millpond_entry, 32",
    "millpond_entry:",
    ".zero 32",
    ".popsection",
);

/// What a thread has for itself, all 0 at first.
#[derive(Debug)]
#[repr(C)] // The entries write what comes first.
pub(crate) struct Own {
    /// The stack pointer of the entry that it came through last.
    entry: Cell<usize>,
    /// Where that returns to.
    #[cfg(target_arch = "aarch64")]
    back: Cell<usize>,
    /// Of which process the number is; 0 for none.
    pub(crate) process: Cell<u64>,
    /// The number that it has there.
    pub(crate) number: Cell<u32>,
    /// Whether it is in a wrapper.
    is_inside: Cell<bool>,
}

const _: () = assert!(size_of::<Own>() <= 32);

/// This thread's.
#[inline(always)]
pub(crate) fn own<R>(with: impl FnOnce(&Own) -> R) -> R {
    let at: usize;
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as below.
    unsafe {
        asm!(
            "adrp {at}, :gottprel:millpond_entry",
            "ldr {at}, [{at}, :gottprel_lo12:millpond_entry]",
            "mrs {thread}, tpidr_el0",
            "add {at}, {at}, {thread}",
            at = out(reg) at,
            thread = out(reg) _,
            options(nostack, readonly, preserves_flags),
        );
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: computes the address of this thread's words.
    unsafe {
        asm!(
            "mov {at}, qword ptr fs:[0]",
            "add {at}, qword ptr [rip + millpond_entry@GOTTPOFF]",
            at = out(reg) at,
            options(nostack, readonly),
        );
    }
    // SAFETY: they live as long as the thread, for which alone they are, and 0 is a value of each.
    with(unsafe { &*std::ptr::with_exposed_provenance::<Own>(at) })
}

/// What an entry does before its body: x9 and x10 are free at the start of every function.
#[cfg(target_arch = "aarch64")]
macro_rules! entry_asm {
    ($body:path) => {
        std::arch::naked_asm!(
            "adrp x9, :gottprel:millpond_entry",
            "ldr x9, [x9, :gottprel_lo12:millpond_entry]",
            "mrs x10, tpidr_el0",
            "add x9, x9, x10",
            "mov x10, sp",
            "stp x10, x30, [x9]",
            "b {body}",
            body = sym $body,
        )
    };
}

/// What an entry does before its body: `rax` is free at the start of every function that takes no variable arguments.
#[cfg(target_arch = "x86_64")]
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
    #[cfg(target_arch = "aarch64")]
    return own(|own| Entered { pc: own.back.get(), sp: own.entry.get() });
    #[cfg(target_arch = "x86_64")]
    {
        let at = own(|own| own.entry.get());
        // SAFETY: the entry's stack pointer, below which its body runs: the return address is there.
        let pc = unsafe { *std::ptr::with_exposed_provenance::<usize>(at) };
        Entered { pc, sp: at + 8 }
    }
}

/// A thread is in a wrapper: what the real library calls meanwhile is its own affair.
#[derive(Debug)]
pub(crate) struct Inside(());

impl Inside {
    /// None where the thread is in one already.
    #[inline]
    pub(crate) fn enter() -> Option<Self> {
        // Made only then: one that goes at once would end the other.
        (!own(|own| own.is_inside.replace(true))).then(|| Inside(()))
    }
}

/// Whether this thread is in a wrapper.
pub(crate) fn is_inside() -> bool {
    own(|own| own.is_inside.get())
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        own(|own| own.is_inside.set(false));
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
