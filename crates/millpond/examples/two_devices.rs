//! Two devices: a pool grants access to the other one, which copies from it, and each waits for the other's events.
//!
//! Run with `cargo run -p millpond --example two_devices`; with `-- cuda` on the first two CUDA devices.

use millpond::check::Kind;
use millpond::pool::PeerAccess;
use millpond::{Device, HostConfig, PoolConfig, Result};

fn main() -> Result<()> {
    let on_cuda = std::env::args().nth(1).is_some_and(|it| it == "cuda");
    let open = |number| if on_cuda { Device::cuda(number) } else { Device::host(HostConfig::default()) };
    let (here, there) = (open(0)?, open(1)?);
    let pool = here.pool(PoolConfig::default())?;
    let (left, right) = (here.stream()?, there.stream()?);
    println!("{} and {}", here.name(), there.name());

    let x = left.alloc::<u8>(&pool, 1 << 20)?;
    left.memset(x.write(), 7)?;
    let y = right.alloc::<u8>(&there.default_pool(), 1 << 20)?;
    // Access is checked before anything runs.
    let refused = right.copy(x.read(), y.write()).expect_err("nothing is granted");
    assert!(refused.violation().is_some_and(|it| it.kind == Kind::NoAccess));
    println!("error: {}\n", refused.report());

    // For all memory of the pool, present and future.
    pool.grant(&there, PeerAccess::ReadWrite)?;
    let refused = right.copy(x.read(), y.write()).expect_err("nothing orders it after the fill");
    assert!(refused.violation().is_some());
    println!("error: {}\n", refused.report());
    right.wait(&left.record()?)?; // a stream of one device waits for an event of the other
    right.copy(x.read(), y.write())?;
    right.memset(x.write(), 8)?; // the other device writes memory of this one

    // Access is revoked only when all uses are known to have completed.
    let refused = pool.revoke(&there).expect_err("a copy may be in flight");
    println!("error: {}\n", refused.report());
    left.wait(&right.record()?)?;
    assert_eq!(left.copy_to_host(x.read())?, vec![8; 1 << 20]);
    assert_eq!(right.copy_to_host(y.read())?, vec![7; 1 << 20]);
    pool.revoke(&there)?;
    assert!(right.copy_to_host(x.read()).is_err());

    left.free(x)?;
    right.free(y)?;
    here.synchronize()?;
    there.synchronize()?;
    assert_eq!(pool.statistics().reserved_bytes, 0);
    println!("two devices have handed memory to each other");
    Ok(())
}
