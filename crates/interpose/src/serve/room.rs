//! Who is refused memory gets what is idle elsewhere: Millpond's pools give back what they do not use, the driver's
//! pools too, and the call is made once more.
//!
//! What is freed on a stream that still runs is idle only when that has completed. An allocation of ours waits for
//! that, as CUDA's own pool does before it says that no memory is left. A call that the driver answers does not wait.
//!
//! While a stream captures nothing is given back: a call that asks the device or trims a pool makes the capture
//! invalid.

use millpond::Error;

use super::devices::{self, Served};
use super::{captures, is_ours, pools};
use crate::abi::Code;
use crate::ask;

/// All pools give back what they do not use, unless a stream captures. Whether they did.
fn give_back() -> bool {
    let given = captures::while_none(|| {
        for pool in pools::all() {
            // What cannot be given back stays, and the call that is made again says so.
            let _ = pool.pool.trim_to(0);
            ask::trim_pool(pool.handle);
        }
        devices::all().for_each(|it| it.device.reclaim());
    });
    given.is_some()
}

/// An allocation of ours that was refused.
#[cold]
pub(super) fn retry<T>(served: &Served, mut alloc: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    let was_given = give_back();
    match alloc() {
        Err(error @ Error::OutOfMemory(_)) if was_given => match captures::while_none(|| served.device.synchronize()) {
            Some(waited) => {
                waited?;
                give_back();
                alloc()
            }
            None => Err(error),
        },
        other => other,
    }
}

/// Makes a call of the driver, and once more if it finds no memory.
pub(crate) fn made_for(real: impl Fn() -> Code + Copy) -> Code {
    let code = real();
    match code == Code::OUT_OF_MEMORY && is_ours() && give_back() {
        true => real(),
        false => code,
    }
}
