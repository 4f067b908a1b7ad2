//! Which freed memory serves which stream while the freeing stream is still busy: the same address, or another.

use std::sync::mpsc::{Sender, channel};

use millpond::config::ReusePolicy;
use millpond::{Buffer, Device, Pool, PoolConfig, Result, Stream};

use super::compare;
use super::cuda::Cuda;

const BYTES: usize = 64 << 20;

/// The order of the second stream after the free on the first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tie {
    /// The same stream.
    Same,
    /// An event recorded after the free.
    Event,
    /// The host synchronised with the first stream.
    Host,
}

/// Returns `true` if CUDA reuses the memory freed on a stream: the address is the same.
fn their_reuse(cuda: &Cuda, allowed: [bool; 3], tie: Tie) -> bool {
    let (pool, first) = (cuda.pool(u64::MAX, 0), cuda.stream());
    let second = if tie == Tie::Same { first } else { cuda.stream() };
    cuda.set_reuse(pool, allowed);
    let x = cuda.had(pool, BYTES, first);
    let busy = (tie != Tie::Host).then(|| cuda.hold(first));
    cuda.must("cuLaunchKernel", cuda.touch(x, first));
    cuda.must("cuMemFreeAsync", cuda.free(x, first));
    match tie {
        Tie::Same => {}
        Tie::Event => cuda.order(first, second),
        Tie::Host => cuda.finish(first),
    }
    let y = cuda.had(pool, BYTES, second);
    cuda.must("cuMemFreeAsync", cuda.free(y, second));
    drop(busy);
    cuda.finish(first);
    cuda.finish(second);
    cuda.must("cuMemPoolDestroy", cuda.table.pool_destroy(pool));
    x == y
}

/// Keeps a stream busy with a buffer until the returned sender is dropped.
fn hold(stream: &Stream, x: &Buffer<u8>) -> Result<Sender<()>> {
    let (go, gate) = channel::<()>();
    let wait = move || {
        let _ = gate.recv_timeout(std::time::Duration::from_secs(5));
    };
    // SAFETY: a host function uses no memory of the device.
    unsafe { stream.enqueue(x.write(), |queue, _| queue.host_function(wait)) }?;
    Ok(go)
}

/// The same for Millpond.
fn our_reuse(device: &Device, allowed: [bool; 3], tie: Tie) -> Result<bool> {
    let [follow_event_dependencies, allow_opportunistic, allow_internal_dependencies] = allowed;
    let reuse = ReusePolicy { follow_event_dependencies, allow_opportunistic, allow_internal_dependencies };
    let pool: Pool = device.pool(PoolConfig::default().release_threshold(u64::MAX).reuse(reuse))?;
    let first = device.stream()?;
    let second = if tie == Tie::Same { first.clone() } else { device.stream()? };
    let x = first.alloc::<u8>(&pool, BYTES)?;
    let address = x.address();
    let busy = if tie == Tie::Host { None } else { Some(hold(&first, &x)?) };
    first.memset(x.write(), 1)?;
    first.free(x)?;
    match tie {
        Tie::Same => {}
        Tie::Event => second.wait(&first.record()?)?,
        Tie::Host => first.synchronize()?,
    }
    let y = second.alloc::<u8>(&pool, BYTES)?;
    let again = y.address();
    second.free(y)?;
    drop(busy);
    first.synchronize()?;
    second.synchronize()?;
    Ok(address == again)
}

#[test]
fn freed_memory_serves_who_comes_after_the_free() {
    compare(|rows, cuda, device| {
        for (what, allowed, tie) in [
            ("the same stream", [true; 3], Tie::Same),
            ("the same stream, with every reuse policy off", [false; 3], Tie::Same),
            ("another stream after an event", [true, false, false], Tie::Event),
            ("another stream after an event, with every reuse policy off", [false; 3], Tie::Event),
            ("another stream after a synchronise, with every reuse policy off", [false; 3], Tie::Host),
        ] {
            let (theirs, ours) = (their_reuse(cuda, allowed, tie), our_reuse(device, allowed, tie)?);
            rows.equal(&format!("the address comes back to {what}"), theirs, ours);
        }
        Ok(())
    });
}
