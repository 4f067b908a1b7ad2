//! Memory lent to cuda-core, as a `DeviceBuffer`.

use millpond::PoolConfig;
use millpond::config::ReusePolicy;
use millpond_cuda_core::Error;

use crate::{Outcome, context, fill, hold};

#[test]
fn a_device_buffer_is_one_of_cuda_core_and_comes_back() -> Outcome {
    let Some(context) = context("lent::a_device_buffer_is_one_of_cuda_core_and_comes_back") else { return Ok(()) };
    let (left, right) = (context.stream()?, context.stream()?);
    let pool = context.device().default_pool();
    let x = left.alloc::<u8>(&pool, 4096)?;
    let address = x.address();
    let refused = context.device_buffer(&right, x).err().expect("unordered");
    let mut lent = context.device_buffer(&left, refused.buffer)?;
    assert_eq!((lent.cu_deviceptr(), lent.len()), (address, 4096));
    lent.zero_async(left.cuda_core())?;
    assert_eq!(lent.to_host_vec(left.cuda_core())?, [0; 4096]);

    // A second view, another element type and another allocation are refused: none of them is what was lent.
    let view = lent.storage().clone();
    let refused = context.buffer(lent).expect_err("it is not alone");
    assert!(matches!(refused.error, Error::InUse), "{refused}");
    drop(view);
    let lent = refused.buffer.expect("it is still there").cast_elem::<i8>();
    let refused = context.buffer(lent).expect_err("lent as bytes without a sign");
    assert!(matches!(refused.error, Error::NotLent), "{refused}");
    let lent = refused.buffer.expect("it is still there").cast_elem::<u8>();
    let other = cuda_core::DeviceBuffer::<u8>::zeroed(left.cuda_core(), 64)?;
    assert!(matches!(context.buffer(other).expect_err("cuda-core's own").error, Error::NotLent));

    let back = context.buffer(lent)?;
    assert_eq!(back.address(), address);
    let refused = right.free(back).expect_err("it is the other stream's again");
    let report = refused.report().to_string();
    assert!(!report.contains("src/"), "not the program's line: {report}");
    let back = refused.buffer;
    left.memset(back.write(), 3)?;
    assert_eq!(left.copy_to_host(back.read())?, [3; 4096]);
    left.free(back)?;
    assert_eq!(pool.statistics().used_bytes, 0);
    Ok(())
}

/// A buffer is not taken back while work on another stream uses it.
#[test]
fn a_device_buffer_in_use_elsewhere_stays_lent() -> Outcome {
    let Some(context) = context("lent::a_device_buffer_in_use_elsewhere_stays_lent") else { return Ok(()) };
    let (left, unknown) = (context.stream()?, context.cuda_core().new_stream()?);
    let x = left.alloc::<u8>(&context.device().default_pool(), 4096)?;
    let mut lent = context.device_buffer(&left, x)?;
    left.synchronize()?;
    let go = hold(&unknown);
    lent.zero_async(&unknown)?;
    let refused = context.buffer(lent).expect_err("a fill is in flight");
    assert!(matches!(refused.error, Error::InUse), "{refused}");
    drop(go);
    unknown.synchronize()?;
    let back = context.buffer(refused.buffer.expect("it is still there"))?;
    assert_eq!(left.copy_to_host(back.read())?, [0; 4096]);
    Ok(())
}

/// The buffer is dropped while work of a stream uses it. The memory is free only after that work.
#[test]
fn a_device_buffer_that_is_dropped_waits_for_its_uses() -> Outcome {
    let Some(context) = context("lent::a_device_buffer_that_is_dropped_waits_for_its_uses") else { return Ok(()) };
    let (home, slow) = (context.stream()?, context.stream()?);
    let reuse = ReusePolicy { allow_internal_dependencies: false, ..Default::default() };
    let pool = context.device().pool(PoolConfig::default().reuse(reuse))?;
    // Uses that cuda-core tracks, and a launch, which it does not track but whose stream Millpond knows.
    for is_tracked in [true, false] {
        let mut lent = context.device_buffer(&home, home.alloc::<u8>(&pool, 1 << 20)?)?;
        let address = lent.cu_deviceptr();
        slow.wait(&home.record()?)?;
        let go = hold(slow.cuda_core());
        match is_tracked {
            true => lent.zero_async(slow.cuda_core())?,
            false => fill(slow.cuda_core(), address, 0, 1 << 20)?,
        }
        drop(lent);
        std::thread::sleep(std::time::Duration::from_millis(20));
        let other = home.alloc::<u8>(&pool, 1 << 20)?;
        assert_ne!(other.address(), address, "the slow stream is not over");
        drop(go);
        context.device().synchronize()?;
        home.free(other)?;
        let mut polls = 0;
        while pool.statistics().used_bytes != 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
            polls += 1;
            assert!(polls < 5000, "the memory did not come back");
        }
    }
    Ok(())
}
