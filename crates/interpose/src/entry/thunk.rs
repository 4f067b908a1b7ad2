//! Entries: the exported functions, written without a prologue.
//!
//! An entry stores its stack pointer for the thread and jumps to its body, so that arguments in registers and on the
//! stack stay as the caller left them. The word at the stack pointer is the return address. On aarch64 the return
//! address is in a register, and is stored as well.
//!
//! The library is loaded with the program, so one load reaches its thread-local words (initial-exec). Rust's own
//! thread-local values would take a call each in a library.

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

/// The words of one thread, all 0 at first.
#[derive(Debug)]
#[repr(C)] // The entries write the first words.
pub(crate) struct Own {
    /// The stack pointer of the thread's last entry.
    entry: Cell<usize>,
    /// The return address of that entry.
    #[cfg(target_arch = "aarch64")]
    back: Cell<usize>,
    /// The process of the number; 0 if there is none.
    pub(crate) process: Cell<u64>,
    /// The thread's number in that process.
    pub(crate) number: Cell<u32>,
    /// `true` while the thread is in a wrapper.
    is_inside: Cell<bool>,
}

const _: () = assert!(size_of::<Own>() <= 32);

/// Gives `with` this thread's words.
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
    // SAFETY: they live as long as the thread, only this thread uses them, and 0 is a valid value of each.
    with(unsafe { &*std::ptr::with_exposed_provenance::<Own>(at) })
}

/// The instructions of an entry before its body: x9 and x10 are free at the start of every function.
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

/// The instructions of an entry before its body: `rax` is free at the start of every function without variable
/// arguments.
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

/// The instructions of an entry whose caller does not matter.
macro_rules! jump_asm {
    ($body:path) => {{
        #[cfg(target_arch = "aarch64")]
        std::arch::naked_asm!("b {body}", body = sym $body);
        #[cfg(target_arch = "x86_64")]
        std::arch::naked_asm!("jmp {body}", body = sym $body);
    }};
}
pub(crate) use jump_asm;

/// The place where the current entry was called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entered {
    /// The return address.
    pub(crate) pc: usize,
    /// The caller's stack pointer after the return.
    pub(crate) sp: usize,
}

/// Returns the place of this thread's last entry.
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

/// A guard: the thread is in a wrapper. Calls that the real library makes meanwhile are not the program's.
#[derive(Debug)]
pub(crate) struct Inside(());

impl Inside {
    /// Returns `None` if the thread is in a wrapper already.
    #[inline]
    pub(crate) fn enter() -> Option<Self> {
        // Constructed only on success: dropping another guard would end the outer one.
        (!own(|own| own.is_inside.replace(true))).then(|| Inside(()))
    }
}

/// Returns `true` if this thread is in a wrapper.
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
