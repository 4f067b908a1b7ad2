//! The live driver as a reference: if CUDA's own allocator has a defined answer, it and Millpond get the same calls in
//! one run, and their answers are compared. If Millpond deliberately answers differently, the test asserts both
//! answers, and has the reason.
//!
//! Needs a GPU: runs if `MILLPOND_TEST_DEVICE` is `cuda`, and otherwise prints that it is skipped. All answers of a
//! test are printed, side by side.
//!
//! | module | one line |
//! |---|---|
//! | `table`, `cuda`, `runtime` | CUDA: the driver's functions, the tests' helpers for them, and the few of the runtime
//! |
//! | `rows` | questions, answers, and the code for each refusal of Millpond |
//! | `pointers`, `pools`, `reuse` | which pointers may be freed; statistics, limits and ends of pools; reuse of memory
//! |
//! | `lives`, `nodes`, `shapes`, `footprint` | graphs: lifetimes of their memory, nodes, restrictions, physical memory
//! |
//! | `capture` | captures |
//! | `contexts` | memory and streams of several contexts |
//! | `litmus` | nine programs: CUDA accepts all of them, Millpond only the right one |

mod capture;
mod contexts;
mod cuda;
mod footprint;
mod litmus;
mod lives;
mod nodes;
mod pointers;
mod pools;
mod reuse;
mod rows;
mod runtime;
mod shapes;
pub(crate) mod table;

use std::sync::{Mutex, OnceLock, PoisonError};

use millpond::{Device, Pool, PoolConfig, Result};

use cuda::Cuda;
use rows::Rows;

/// Asks both. One test at a time: the statistics of graph memory are the device's, and a capture of one thread forbids
/// calls to all threads.
#[track_caller]
fn compare(ask: impl FnOnce(&mut Rows<'_>, &Cuda, &Device) -> Result<()>) {
    static ONE: Mutex<()> = Mutex::new(());
    if std::env::var("MILLPOND_TEST_DEVICE").as_deref() != Ok("cuda") {
        println!("skipped on Cuda: MILLPOND_TEST_DEVICE is not `cuda`");
        return;
    }
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    // Its context is kept for all tests: creating it takes longer than they do.
    static CUDA: OnceLock<Cuda> = OnceLock::new();
    let cuda = CUDA.get_or_init(Cuda::open);
    cuda.enter();
    let device = Device::cuda(0).expect("a CUDA device");
    let mut rows = Rows::new(cuda);
    let asked = ask(&mut rows, cuda, &device);
    drop(device);
    rows.finish(asked);
}

/// Makes a pool that keeps all its memory.
fn keeping(device: &Device) -> Result<Pool> {
    device.pool(PoolConfig::default().release_threshold(u64::MAX))
}
