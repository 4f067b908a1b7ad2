//! Frees and allocations: pointers, sizes, the order of a free.

use millpond::Error;
use millpond::check::Kind;
use millpond_driver::cuda::abi::Code;

use super::runtime::Runtime;
use super::{compare, keeping};

#[test]
fn what_is_no_allocation_is_not_freed() {
    compare(|rows, cuda, device| {
        let (their_pool, theirs) = (cuda.pool(u64::MAX, 0), cuda.stream());
        let (pool, stream) = (keeping(device)?, device.stream()?);
        let x = cuda.had(their_pool, 4096, theirs);
        let y = stream.alloc::<u8>(&pool, 4096)?;
        let at = y.address();
        let on_heap = Box::new(0u8);
        let (heap, mut pinned) = (&raw const *on_heap as u64, std::ptr::null_mut());
        cuda.must("cuMemHostAlloc", cuda.table.host_alloc(&raw mut pinned, 4096, 0));
        for (what, their_address, address) in [
            ("base + 1", x + 1, at + 1),
            ("base + 256", x + 256, at + 256),
            ("a host pointer", heap, heap),
            ("0x1000", 0x1000, 0x1000),
            ("a pinned host pointer", pinned as u64, pinned as u64),
        ] {
            rows.agree(&format!("free of {what}"), cuda.free(their_address, theirs), stream.free_address(address));
        }
        rows.agree("a use: nothing was lost", cuda.touch(x, theirs), stream.memset(y.write(), 1));
        rows.agree("free of the base", cuda.free(x, theirs), stream.free(y));
        rows.agree("a second free", cuda.free(x, theirs), stream.free_address(at));
        cuda.finish(theirs);
        stream.synchronize()?;
        rows.agree("... after a synchronise", cuda.free(x, theirs), stream.free_address(at));
        rows.agree("... without a stream", cuda.table.free_now(x), device.free_address(at));
        cuda.must("cuMemFreeHost", cuda.table.host_free(pinned));
        Ok(())
    });
}

#[test]
fn memory_of_a_stream_is_freed_without_one() {
    compare(|rows, cuda, device| {
        let (their_pool, theirs) = (cuda.pool(u64::MAX, 0), cuda.stream());
        let (pool, stream) = (keeping(device)?, device.stream()?);
        let x = cuda.had(their_pool, 1 << 20, theirs);
        let y = stream.alloc::<u8>(&pool, 1 << 20)?;
        let at = y.address();
        rows.agree("a use", cuda.touch(x, theirs), stream.memset(y.write(), 1));
        cuda.finish(theirs);
        stream.synchronize()?;
        rows.agree("free without a stream", cuda.table.free_now(x), device.free(y));
        rows.agree("then on its stream", cuda.free(x, theirs), stream.free_address(at));
        Ok(())
    });
}

/// The runtime's answers about null and no bytes. The driver's own answers are printed beside them.
#[test]
fn null_and_no_bytes() {
    compare(|rows, cuda, device| {
        let (theirs, stream) = (cuda.stream(), device.stream()?);
        let mut at = 7;
        rows.note("cuMemAllocAsync of 0 bytes", cuda.table.alloc_async(&raw mut at, 0, theirs));
        rows.note("cuMemFreeAsync of null", cuda.free(0, theirs));
        rows.note("cuMemFree of null", cuda.table.free_now(0));
        let Some(runtime) = Runtime::load() else {
            println!("skipped: there is no CUDA runtime library to ask");
            return Ok(());
        };
        let (code, at) = runtime.alloc(0, theirs);
        if let Some(empty) = rows.agree("0 bytes", code, stream.alloc::<u8>(&keeping(device)?, 0)) {
            rows.equal("the address of 0 bytes", at, empty.address());
            rows.agree("free of 0 bytes", runtime.free_null(theirs), stream.free(empty));
        }
        rows.agree("free of null", runtime.free_null(theirs), stream.free_address(0));
        rows.agree("free of null without a stream", runtime.free_null_now(), device.free_address(0));
        Ok(())
    });
}

#[test]
fn more_than_there_is() {
    compare(|rows, cuda, device| {
        let (their_pool, theirs) = (cuda.pool(u64::MAX, 0), cuda.stream());
        let (pool, stream) = (keeping(device)?, device.stream()?);
        for bytes in [1 << 50, usize::MAX] {
            let (code, at) = cuda.alloc(their_pool, bytes, theirs);
            rows.agree(&format!("{bytes:#x} bytes"), code, stream.alloc::<u8>(&pool, bytes));
            rows.holds("CUDA's address is null", at == 0, format!("{at:#x}"));
        }
        let (code, x) = cuda.alloc(their_pool, 4096, theirs);
        if let Some(y) = rows.agree("4096 bytes after that", code, stream.alloc::<u8>(&pool, 4096)) {
            rows.agree("their free", cuda.free(x, theirs), stream.free(y));
        }
        Ok(())
    });
}

/// CUDA trusts the program that a free is ordered. Millpond knows the program's own calls.
#[test]
fn a_free_on_another_stream() {
    compare(|rows, cuda, device| {
        let (their_pool, theirs, others) = (cuda.pool(u64::MAX, 0), cuda.stream(), cuda.stream());
        let (pool, stream, other) = (keeping(device)?, device.stream()?, device.stream()?);
        let x = cuda.had(their_pool, 4096, theirs);
        let y = stream.alloc::<u8>(&pool, 4096)?;
        let at = y.address();
        rows.agree("a use", cuda.touch(x, theirs), stream.memset(y.write(), 1));
        rows.differ(
            "free with nothing ordering it",
            "the memory could be another's while it is still used",
            (cuda.free(x, others), Code::SUCCESS),
            other.free_address(at),
            |ours| is_violation(ours, Kind::FreeBeforeAlloc) || is_violation(ours, Kind::FreeBeforeUse),
        );
        let x = cuda.had(their_pool, 4096, theirs);
        cuda.must("cuLaunchKernel", cuda.touch(x, theirs));
        cuda.order(theirs, others);
        other.wait(&stream.record()?)?;
        rows.agree("free with an event between", cuda.free(x, others), other.free(y));
        Ok(())
    });
}

/// Returns `true` if an answer is that violation of the order.
pub(crate) fn is_violation<T>(ours: Result<T, &Error>, kind: Kind) -> bool {
    ours.err().and_then(Error::violation).is_some_and(|violation| violation.kind == kind)
}
