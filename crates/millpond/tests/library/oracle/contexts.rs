//! Memory belongs to the device: memory allocated in one context is freed in another.

use millpond::config::StreamKind;
use millpond_driver::cuda::abi::Context;

use super::{compare, keeping};

#[test]
fn memory_of_one_context_is_freed_in_another() {
    compare(|rows, cuda, device| {
        let (their_pool, theirs) = (cuda.pool(u64::MAX, 0), cuda.stream());
        let (pool, stream) = (keeping(device)?, device.stream()?);
        let (mut now, mut other) = (0, Context::default());
        cuda.must("cuMemAlloc", cuda.table.alloc_now(&raw mut now, 4096));
        let plain = stream.alloc::<u8>(&pool, 4096)?;
        stream.synchronize()?;
        cuda.must("cuCtxCreate", cuda.table.create_context(&raw mut other, 0, cuda.device));
        let freed = cuda.table.free_now(now);
        rows.agree("a free without a stream, in another context", freed, device.free(plain));

        // A stream of the other context allocates, one of the primary context frees.
        let elsewhere = cuda.stream();
        // SAFETY: it is open, and dropped here before it is closed.
        let adopted = unsafe { device.adopt_stream(elsewhere.0 as u64, StreamKind::NonBlocking) }?;
        let (code, x) = cuda.alloc(their_pool, 4096, elsewhere);
        let y = rows.agree("an allocation on a stream of the other context", code, adopted.alloc::<u8>(&pool, 4096));
        cuda.finish(elsewhere);
        adopted.synchronize()?;
        cuda.enter();
        if let Some(y) = y {
            let at = y.address();
            rows.agree("its free on a stream of this one", cuda.free(x, theirs), stream.free(y));
            rows.agree("a second free", cuda.free(x, theirs), stream.free_address(at));
        }
        drop(adopted);
        cuda.must("cuStreamDestroy", cuda.table.stream_destroy(elsewhere));
        cuda.must("cuCtxDestroy", cuda.table.destroy_context(other));
        cuda.enter();
        Ok(())
    });
}
