//! The live driver as an oracle: where CUDA's own allocator is defined to answer in a certain way, it and Millpond are
//! asked the same in one run, and their answers compared. Where Millpond answers otherwise on purpose, both answers are
//! held, with the reason.
//!
//! Needs a GPU: runs where `MILLPOND_TEST_DEVICE` is `cuda`, and says that it is skipped elsewhere. All answers of a
//! test are printed, side by side.
//!
//! | module | one line |
//! |---|---|
//! | `table`, `cuda`, `runtime` | CUDA: the driver's functions, what tests do with them, and the runtime's few |
//! | `rows` | questions, answers, and what code a refusal of Millpond's is |
//! | `pointers`, `pools`, `reuse` | what may be freed; figures, limits and ends of pools; what serves whom |
//! | `lives`, `nodes`, `shapes`, `footprint` | graphs: lives of their memory, nodes, restrictions, physical memory |
//! | `capture` | captures |
//! | `contexts` | memory and streams of several contexts |
//! | `litmus` | nine programs, of which CUDA accepts all and Millpond the right one |

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

/// Asks both. One test at a time: figures of graph memory are the device's, and a capture of one thread forbids calls
/// to all.
#[track_caller]
fn compare(ask: impl FnOnce(&mut Rows<'_>, &Cuda, &Device) -> Result<()>) {
    static ONE: Mutex<()> = Mutex::new(());
    if std::env::var("MILLPOND_TEST_DEVICE").as_deref() != Ok("cuda") {
        println!("skipped on Cuda: MILLPOND_TEST_DEVICE is not `cuda`");
        return;
    }
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    // Its context is kept for all tests: making it takes longer than they do.
    static CUDA: OnceLock<Cuda> = OnceLock::new();
    let cuda = CUDA.get_or_init(Cuda::open);
    cuda.enter();
    let device = Device::cuda(0).expect("a CUDA device");
    let mut rows = Rows::new(cuda);
    let asked = ask(&mut rows, cuda, &device);
    drop(device);
    rows.finish(asked);
}

/// A pool that keeps all that it has.
fn keeping(device: &Device) -> Result<Pool> {
    device.pool(PoolConfig::default().release_threshold(u64::MAX))
}
