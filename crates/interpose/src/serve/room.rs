//! Makes room when an allocation is refused: Millpond's pools and the driver's pools give back what they do not use,
//! and the call is made once more.
//!
//! Memory that was freed on a stream is idle only once the stream's work before the free has completed. An allocation
//! of Millpond's waits for that, as CUDA's own pool does before it reports that no memory is left. A call that the
//! driver answers does not wait, as in CUDA.
//!
//! While a stream captures, nothing is given back: a call that queries the device or trims a pool would make the
//! capture invalid.

use millpond::Error;

use super::devices::{self, Served};
use super::{is_ours, pools};
use crate::abi::Code;
use crate::ask;
use crate::capturing;
use crate::limit;

/// Makes all pools give back what they do not use, unless a stream captures. Returns `false` if one does.
fn give_back() -> bool {
    let given = capturing::while_none(|| {
        for pool in pools::all() {
            // If it cannot be given back, it stays, and the repeated call reports that.
            let _ = pool.pool.trim_to(0);
            ask::trim_pool(pool.handle);
        }
        // Under a limit, the pools that CUDA serves are known, too.
        limit::trim();
        devices::all().for_each(|it| it.device.reclaim());
    });
    given.is_some()
}

/// Repeats an allocation of Millpond's that was refused.
#[cold]
pub(super) fn retry<T>(served: &Served, mut alloc: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    let was_given = give_back();
    match alloc() {
        Err(error @ Error::OutOfMemory(_)) if was_given => {
            match capturing::while_none(|| served.device.synchronize()) {
                Some(waited) => {
                    waited?;
                    give_back();
                    alloc()
                }
                None => Err(error),
            }
        }
        other => other,
    }
}

/// Makes a driver call, and repeats it if no memory is left.
pub(crate) fn made_for(real: impl Fn() -> Code + Copy) -> Code {
    let code = real();
    match code == Code::OUT_OF_MEMORY && (is_ours() || limit::is_on()) && give_back() {
        true => real(),
        false => code,
    }
}
