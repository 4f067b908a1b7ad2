//! Functions that are not wrapped and may matter: passed on, and counted.
//!
//! A function of a newer driver that this library does not know is found when the program asks for its address. The
//! program gets the address of a *counter*: instructions that add one and jump on with all arguments unchanged. Queries
//! (names with `Get` or `Query` in them) and calls that create neither work nor memory are not counted.

use millpond_driver::locks::{Leaf, Mutex, lock};
use std::ffi::c_char;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The number of functions that can be counted. Further ones are passed on without a count.
const COUNTERS: usize = 256;
/// The size of a counter's code in bytes.
const CODE_BYTES: usize = 64;

/// Makes all counters, each with these instructions, and their two tables.
macro_rules! counters {
    ($($instruction:literal)*) => {
        std::arch::global_asm!(
            ".pushsection .text.millpond_counters,\"ax\",@progbits",
            ".balign 64",
            ".globl millpond_counters",
            ".hidden millpond_counters",
            "millpond_counters:",
            ".set n, 0",
            ".rept 256",
            ".balign 64",
            $($instruction,)*
            ".set n, n + 1",
            ".endr",
            ".popsection",
            ".pushsection .bss.millpond_counters,\"aw\",@nobits",
            ".balign 64",
            ".globl millpond_counts",
            ".hidden millpond_counts",
            "millpond_counts:",
            ".zero 2048",
            ".globl millpond_targets",
            ".hidden millpond_targets",
            "millpond_targets:",
            ".zero 2048",
            ".popsection",
        );
    };
}

#[cfg(target_arch = "x86_64")]
counters! {
    "lock inc qword ptr [rip + millpond_counts + 8 * n]"
    "jmp qword ptr [rip + millpond_targets + 8 * n]"
}

// A caller may lose these registers: x9 to x15, and x16 and x17, which stubs use.
#[cfg(target_arch = "aarch64")]
counters! {
    "adrp x16, millpond_counts + 8 * n"
    "add x16, x16, :lo12:millpond_counts + 8 * n"
    "1:"
    "ldxr x17, [x16]"
    "add x17, x17, #1"
    "stxr w9, x17, [x16]"
    "cbnz w9, 1b"
    "adrp x16, millpond_targets + 8 * n"
    "ldr x16, [x16, :lo12:millpond_targets + 8 * n]"
    "br x16"
}

static NAMES: Mutex<Leaf, Vec<String>> = Mutex::new(Vec::new());

// SAFETY: these are the labels above: the code, of which only the address is used, and two tables of words that start
// as 0.
unsafe extern "C" {
    #[link_name = "millpond_counters"]
    static CODE: c_char;
    #[link_name = "millpond_counts"]
    safe static COUNTS: [AtomicU64; COUNTERS];
    #[link_name = "millpond_targets"]
    safe static TARGETS: [AtomicUsize; COUNTERS];
}

/// Returns `true` if a function that is not wrapped may create work, memory or order.
fn may_matter(name: &str) -> bool {
    let makers = ["cuMem", "cuGraph", "cuStream", "cuLaunch", "cuEvent", "cuCtxRecord", "cuCtxWait", "cuGreenCtx"];
    // Streams, pools and events from calls that are not wrapped are noted at their first use; virtual memory, by its
    // mappings.
    let harmless = [
        "Get",
        "Query",
        "IsCapturing",
        "Advise",
        "Trim",
        "DebugDot",
        "Retain",
        "Export",
        "Create",
        "Release",
        "cuMemAddress",
        "cuMemSetAccess",
        "Import",
        "Attribute",
        "UserObject",
        "AttachMem",
        "OpenEvent",
    ];
    makers.iter().any(|part| name.starts_with(part)) && !harmless.iter().any(|part| name.contains(part))
}

/// Returns the counter of a function; `None` if the function is not counted.
pub(super) fn counter(name: &str, real: usize) -> Option<usize> {
    if !may_matter(name) {
        return None;
    }
    let mut names = lock(&NAMES);
    let known = (0..names.len()).find(|at| TARGETS[*at].load(Ordering::Relaxed) == real);
    let at = known.unwrap_or(names.len());
    if at >= COUNTERS {
        return None;
    }
    if known.is_none() {
        TARGETS[at].store(real, Ordering::Release);
        names.push(name.to_owned());
    }
    let code = &raw const CODE;
    Some(code.addr() + at * CODE_BYTES)
}

/// Returns the functions that were called so far without being understood, and how often.
pub(crate) fn counts() -> Vec<(String, u64)> {
    // A call from a signal handler must not wait.
    let Some(names) = NAMES.try_lock() else { return Vec::new() };
    let counts = names.iter().cloned().zip(COUNTS.iter().map(|count| count.load(Ordering::Relaxed)));
    counts.filter(|(_, count)| *count > 0).collect()
}
