//! Threads of a program that end while it shares.

use std::cell::RefCell;
use std::sync::Arc;

use millpond::Buffer;

use super::{Side, import};

/// Frees what is lent and given back, at the end of its thread.
struct Last(Arc<Side>, Option<Buffer<u32>>);

impl Drop for Last {
    fn drop(&mut self) {
        let Some(buffer) = self.1.take() else { return };
        // A panic here would end the process.
        let freed = self.0.stream.free(buffer).map_err(|refused| refused.error.to_string());
        println!("freed at the end of its thread: {freed:?}");
    }
}

#[test]
fn a_thread_that_ends_frees_what_is_lent() {
    thread_local!(static LAST: RefCell<Option<Last>> = const { RefCell::new(None) });
    // What is made first is dropped first or last, as the system likes: both are tried.
    for is_first in [false, true] {
        let (there, here) = (Arc::new(Side::new()), Side::new());
        let theirs = Arc::clone(&there);
        let run = move || {
            let buffer = theirs.filled(100, 1);
            let imported = import(&here.device, &buffer.export().unwrap()).unwrap();
            if is_first {
                LAST.set(Some(Last(Arc::clone(&theirs), None)));
            }
            assert_eq!(theirs.device.sharing().leases, 1);
            drop(imported);
            LAST.set(Some(Last(theirs, Some(buffer))));
        };
        std::thread::spawn(run).join().expect("no panic");
        assert_eq!(there.pool.statistics().used_bytes, 0, "it is freed");
    }
}
