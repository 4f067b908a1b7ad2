//! The same between CUDA devices: chunks are shareable handles there. Over `fakecuda`, and with
//! `MILLPOND_TEST_DEVICE=cuda` on a GPU.

use crate::child::Child;
use crate::{Side, copy_in, device, eventually, is_filled};

#[test]
fn memory_and_events_pass_between_processes() {
    match std::env::var("MILLPOND_TEST_DEVICE").as_deref() {
        Ok("cuda") => passes("cuda"),
        _ => passes("fake"),
    }
}

fn passes(kind: &str) {
    const LEN: usize = 1_200_000;
    let side = Side::of(device(kind));
    let mut children = [Child::on(kind), Child::on(kind)];
    let buffers = [0, 1].map(|seed| {
        let buffer = side.stream.alloc::<u32>(&side.pool, LEN).unwrap();
        copy_in(&side.stream, &buffer, seed).unwrap();
        buffer
    });
    for (seed, (child, buffer)) in children.iter_mut().zip(&buffers).enumerate() {
        child.must(format!("import x {}", buffer.export().unwrap()));
        let early = child.ask(format!("check x {seed}"));
        assert!(early.starts_with("error") && early.contains("with nothing ordering that after"), "{early}");
        child.must(format!("wait {}", side.stream.record().unwrap().export().unwrap()));
        assert_eq!(child.must(format!("check x {seed}")), "right", "on {kind}");
        child.must(format!("copy x {}", seed + 10));
    }
    let [first, second] = buffers;
    let [mut gone, mut good] = children;
    gone.must("sync");
    gone.kill();
    // What it wrote is there, and what it held is given back.
    assert!(is_filled(&side.stream, &first, 10).unwrap(), "on {kind}");
    side.stream.free(first).unwrap();
    good.must("free x");
    let back = side.device.import_event(&good.must("record").parse().unwrap()).unwrap();
    side.stream.wait(&back).unwrap();
    assert!(is_filled(&side.stream, &second, 11).unwrap(), "on {kind}");
    side.stream.free(second).unwrap();
    eventually("the child has nothing", || good.must("counts") == "0 0 0");
    good.end();
    side.assert_empty();
    let sharing = side.device.sharing();
    assert_eq!((sharing.lent, sharing.released, sharing.lost), (2, 1, 1), "on {kind}");
}

#[test]
fn what_the_driver_lacks_is_said() {
    let side = Side::of(device("fake"));
    let plain = side.device.default_pool();
    let buffer = side.stream.alloc::<u32>(&plain, 10).unwrap();
    assert!(buffer.export().unwrap_err().to_string().contains("PoolConfig::shareable"));
}
