//! Statistics of pools step by step, what they give back and when, their limits, and their end.

use millpond::pool::PoolStatistics;
use millpond::{Pool, PoolConfig, Result, Stream};
use millpond_driver::cuda::abi::pool::{Pool as TheirPool, attribute};
use millpond_driver::cuda::abi::{Code, Stream as Theirs};

use super::cuda::Cuda;
use super::rows::Rows;

use super::{compare, keeping};

const BIG: usize = 64 << 20;

/// Checks that both sides' used bytes are equal, and neither reserves less.
fn compare_figures(rows: &mut Rows<'_>, what: &str, cuda: &Cuda, theirs: TheirPool, ours: &Pool) -> PoolStatistics {
    let statistics = ours.statistics();
    let used = (cuda.figure(theirs, attribute::USED), cuda.figure(theirs, attribute::USED_HIGH));
    rows.equal(&format!("used and its high mark {what}"), used, (statistics.used_bytes, statistics.used_high_bytes));
    let reserved = (cuda.figure(theirs, attribute::RESERVED), cuda.figure(theirs, attribute::RESERVED_HIGH));
    let is_enough = |used: u64, reserved: u64, high: u64| used <= reserved && reserved <= high;
    rows.equal(
        &format!("used <= reserved <= its high mark {what}"),
        is_enough(used.0, reserved.0, reserved.1),
        is_enough(statistics.used_bytes, statistics.reserved_bytes, statistics.reserved_high_bytes),
    );
    statistics
}

#[test]
fn used_bytes_follow_each_call() {
    compare(|rows, cuda, device| {
        let (their_pool, theirs) = (cuda.pool(u64::MAX, 0), cuda.stream());
        let (pool, stream) = (keeping(device)?, device.stream()?);
        let sizes = [1, 12, 511, 512, 513, 2048, 4095, 33 << 20, 100 << 20];
        let mut live = Vec::new();
        for bytes in sizes {
            let (code, x) = cuda.alloc(their_pool, bytes, theirs);
            let Some(y) = rows.agree(&format!("{bytes} B"), code, stream.alloc::<u8>(&pool, bytes)) else { continue };
            rows.equal("its address is a multiple of 256", x % 256, y.address() % 256);
            compare_figures(rows, &format!("with {bytes} B more"), cuda, their_pool, &pool);
            live.push((x, y));
        }
        // At the call, though the stream is still busy: the call does not wait.
        let busy = cuda.hold(theirs);
        for (x, y) in live.drain(2..) {
            let bytes = y.len();
            rows.agree(&format!("free of {bytes} B"), cuda.free(x, theirs), stream.free(y));
            compare_figures(rows, &format!("with {bytes} B less"), cuda, their_pool, &pool);
        }
        drop(busy);
        cuda.finish(theirs);
        stream.synchronize()?;
        compare_figures(rows, "after a synchronise", cuda, their_pool, &pool);
        cuda.must("cuMemPoolSetAttribute", cuda.reset(their_pool, attribute::USED_HIGH));
        cuda.must("cuMemPoolSetAttribute", cuda.reset(their_pool, attribute::RESERVED_HIGH));
        pool.reset_used_high();
        pool.reset_reserved_high();
        let now = compare_figures(rows, "after the high marks were reset", cuda, their_pool, &pool);
        rows.equal(
            "the high mark of reserved bytes is what is reserved",
            cuda.figure(their_pool, attribute::RESERVED_HIGH) == cuda.figure(their_pool, attribute::RESERVED),
            now.reserved_high_bytes == now.reserved_bytes,
        );
        for (x, y) in live {
            rows.agree("free of the rest", cuda.free(x, theirs), stream.free(y));
        }
        Ok(())
    });
}

/// Allocates, uses and frees on both sides.
fn pass(cuda: &Cuda, (their_pool, theirs): (TheirPool, Theirs), (pool, stream): (&Pool, &Stream)) -> Result<()> {
    let x = cuda.had(their_pool, BIG, theirs);
    cuda.must("cuLaunchKernel", cuda.touch(x, theirs));
    cuda.must("cuMemFreeAsync", cuda.free(x, theirs));
    let y = stream.alloc::<u8>(pool, BIG)?;
    stream.memset(y.write(), 1)?;
    Ok(stream.free(y)?)
}

#[test]
fn a_release_threshold_counts_at_a_synchronise_and_not_at_a_query() {
    compare(|rows, cuda, device| {
        for threshold in [0, u64::MAX] {
            let (their_pool, theirs) = (cuda.pool(threshold, 0), cuda.stream());
            let pool = device.pool(PoolConfig::default().release_threshold(threshold))?;
            let stream = device.stream()?;
            pass(cuda, (their_pool, theirs), (&pool, &stream))?;
            while cuda.table.stream_query(theirs) == Code::NOT_READY {}
            while !stream.is_idle()? {}
            let kept = |reserved: u64| reserved >= BIG as u64;
            let both = |what: &str, rows: &mut Rows<'_>| {
                let theirs = cuda.figure(their_pool, attribute::RESERVED);
                rows.equal(what, kept(theirs), kept(pool.statistics().reserved_bytes));
                theirs
            };
            both(&format!("threshold {threshold}: kept after a query that says yes"), rows);
            cuda.finish(theirs);
            stream.synchronize()?;
            let left = both(&format!("threshold {threshold}: kept after a synchronise"), rows);
            if threshold == 0 {
                rows.equal("what is reserved after it", left, pool.statistics().reserved_bytes);
            }
        }
        Ok(())
    });
}

#[test]
fn a_trim_takes_what_is_idle_and_nothing_else() {
    compare(|rows, cuda, device| {
        let (their_pool, theirs) = (cuda.pool(u64::MAX, 0), cuda.stream());
        let (pool, stream) = (keeping(device)?, device.stream()?);
        let x = [(); 2].map(|()| cuda.had(their_pool, BIG, theirs));
        let [y, live] = [stream.alloc::<u8>(&pool, BIG)?, stream.alloc::<u8>(&pool, BIG)?];
        let figures = || (cuda.figure(their_pool, attribute::RESERVED), pool.statistics().reserved_bytes);
        let full = figures();
        let more = 8 * BIG;
        rows.agree("a trim to more than there is", cuda.table.pool_trim(their_pool, more), pool.trim_to(more as u64));
        rows.equal("it takes nothing", figures().0 == full.0, figures().1 == full.1);
        rows.agree("free of one of two", cuda.free(x[0], theirs), stream.free(y));
        cuda.finish(theirs);
        stream.synchronize()?;
        rows.equal("both are kept after a synchronise", figures().0 == full.0, figures().1 == full.1);
        rows.agree("a trim to nothing", cuda.table.pool_trim(their_pool, 0), pool.trim_to(0));
        let now = figures();
        rows.equal("it takes something", now.0 < full.0, now.1 < full.1);
        rows.equal("it leaves what is live", now.0 >= BIG as u64, now.1 >= BIG as u64);
        rows.agree("a use of what is live", cuda.touch(x[1], theirs), stream.memset(live.write(), 1));
        rows.agree("its free", cuda.free(x[1], theirs), stream.free(live));
        cuda.finish(theirs);
        stream.synchronize()?;
        rows.agree("a trim to nothing, with nothing live", cuda.table.pool_trim(their_pool, 0), pool.trim_to(0));
        rows.equal("what is reserved then", figures().0, figures().1);
        Ok(())
    });
}

#[test]
fn a_limit_is_kept() {
    compare(|rows, cuda, device| {
        let limit = 32 << 20;
        let (their_pool, theirs) = (cuda.pool(u64::MAX, limit), cuda.stream());
        let (max_bytes, release_threshold) = (Some(limit as u64).filter(|limit| *limit > 0), u64::MAX);
        let pool = device.pool(PoolConfig::default().max_bytes(max_bytes).release_threshold(release_threshold))?;
        let stream = device.stream()?;
        let (code, x) = cuda.alloc(their_pool, 1 << 20, theirs);
        let live = rows.agree("1 MiB of 32", code, stream.alloc::<u8>(&pool, 1 << 20));
        let (code, at) = cuda.alloc(their_pool, 33 << 20, theirs);
        rows.agree("33 MiB more", code, stream.alloc::<u8>(&pool, 33 << 20));
        rows.holds("CUDA's address is null", at == 0, format!("{at:#x}"));
        if let Some(live) = live {
            rows.agree("free of the 1 MiB", cuda.free(x, theirs), stream.free(live));
        }
        cuda.finish(theirs);
        stream.synchronize()?;
        let (code, x) = cuda.alloc(their_pool, 30 << 20, theirs);
        if let Some(y) = rows.agree("30 MiB after it", code, stream.alloc::<u8>(&pool, 30 << 20)) {
            rows.agree("their free", cuda.free(x, theirs), stream.free(y));
        }
        Ok(())
    });
}

/// Millpond destroys a pool when its last handle is dropped, so no caller is left to allocate from it.
#[test]
fn a_pool_that_is_destroyed_keeps_what_is_live() {
    compare(|rows, cuda, device| {
        let (their_pool, theirs) = (cuda.pool(0, 0), cuda.stream());
        let (pool, stream) = (device.pool(PoolConfig::default())?, device.stream()?);
        let x = cuda.had(their_pool, 4 << 20, theirs);
        let y = stream.alloc::<u8>(&pool, 4 << 20)?;
        drop(pool);
        rows.silent("destroying it with a live allocation", cuda.table.pool_destroy(their_pool));
        rows.agree("a use", cuda.touch(x, theirs), stream.memset(y.write(), 3));
        let (code, _) = cuda.alloc(their_pool, 4096, theirs);
        let is_refused = code == Code::INVALID_VALUE;
        rows.holds("CUDA refuses a new allocation from it", is_refused, cuda.table.explain(code));
        rows.agree("the first bytes", Code::SUCCESS, stream.copy_to_host(y.view().slice(..64)?.read()));
        rows.agree("a free", cuda.free(x, theirs), stream.free(y));
        cuda.finish(theirs);
        stream.synchronize()?;
        Ok(())
    });
}
