//! Captures of several streams, by the shape of what comes of them: what is ordered, and which bytes serve again.

use millpond::{Buffer, Device, Error, GraphError, HostConfig, Instantiate, Pool, Result, Stream};

struct Captured {
    device: Device,
    pool: Pool,
    main: Stream,
    side: Stream,
}

fn captured() -> Captured {
    let device = Device::host(HostConfig::default()).unwrap();
    let (main, side) = (device.stream().unwrap(), device.stream().unwrap());
    main.begin_capture().unwrap();
    Captured { pool: device.default_pool(), device, main, side }
}

impl Captured {
    fn alloc(&self, stream: &Stream) -> Buffer<u32> {
        stream.alloc(&self.pool, 1000).unwrap()
    }

    /// `to` comes after what `from` has so far.
    fn order(&self, from: &Stream, to: &Stream) {
        to.wait(&from.record().unwrap()).unwrap();
    }

    /// The capture ends well, and its graph runs.
    fn run(&self) {
        let exec = self.main.end_capture().unwrap().instantiate(Instantiate::default()).unwrap();
        for _ in 0..2 {
            drop(exec.launch(&self.main).unwrap());
        }
        self.device.synchronize().unwrap();
    }
}

fn write(stream: &Stream, x: &Buffer<u32>, value: u32) -> Result<()> {
    stream.launch(x.write(), move |x| x.fill(value))
}

fn check(stream: &Stream, x: &Buffer<u32>, value: u32) -> Result<()> {
    stream.launch(x.read(), move |x| assert!(x.iter().all(|x| *x == value)))
}

#[track_caller]
fn assert_fault<T: std::fmt::Debug>(refused: Result<T>) {
    let refused: Error = refused.unwrap_err();
    assert!(matches!(refused.graph(), Some(GraphError::Faults(_))), "{refused}");
}

#[test]
fn in_a_sequence_freed_bytes_serve_again() {
    let it = captured();
    let x = it.alloc(&it.main);
    write(&it.main, &x, 1).unwrap();
    check(&it.main, &x, 1).unwrap();
    let address = x.address();
    it.main.free(x).unwrap();
    let y = it.alloc(&it.main);
    assert_eq!(y.address(), address);
    write(&it.main, &y, 2).unwrap();
    check(&it.main, &y, 2).unwrap();
    it.main.free(y).unwrap();
    it.run();
}

#[test]
fn a_side_stream_does_not_take_bytes_that_the_main_one_frees_beside_it() {
    let it = captured();
    it.order(&it.main, &it.side);
    let x = it.alloc(&it.main);
    write(&it.main, &x, 1).unwrap();
    let address = x.address();
    it.main.free(x).unwrap();
    let y = it.alloc(&it.side);
    assert_ne!(y.address(), address, "nothing orders the two");
    write(&it.side, &y, 2).unwrap();
    it.side.free(y).unwrap();
    it.order(&it.side, &it.main);
    // After the join both serve again.
    let z: Buffer<u32> = it.main.alloc(&it.pool, 1000).unwrap();
    assert!(z.address() == address || z.address() > 0);
    it.main.free(z).unwrap();
    it.run();
}

#[test]
fn what_a_side_stream_allocates_is_the_main_ones_after_the_join() {
    let it = captured();
    it.order(&it.main, &it.side);
    let x = it.alloc(&it.side);
    write(&it.side, &x, 3).unwrap();
    assert_fault(check(&it.main, &x, 3));
    it.order(&it.side, &it.main);
    check(&it.main, &x, 3).unwrap();
    it.main.free(x).unwrap();
    it.run();
}

#[test]
fn what_is_allocated_before_the_fork_is_on_both_sides() {
    let it = captured();
    let x = it.alloc(&it.main);
    write(&it.main, &x, 4).unwrap();
    it.order(&it.main, &it.side);
    let late = it.alloc(&it.main);
    check(&it.main, &x, 4).unwrap();
    check(&it.side, &x, 4).unwrap();
    assert_fault(write(&it.side, &late, 0));
    it.order(&it.side, &it.main);
    it.main.free(x).unwrap();
    it.main.free(late).unwrap();
    it.run();
}

/// The free must come after the uses on both sides, on whichever side it is.
#[test]
fn a_free_after_a_fork_comes_after_both_sides() {
    for is_main in [true, false] {
        let it = captured();
        let (near, far) = if is_main { (&it.main, &it.side) } else { (&it.side, &it.main) };
        let x = it.alloc(&it.main);
        write(&it.main, &x, 5).unwrap();
        it.order(&it.main, &it.side);
        check(near, &x, 5).unwrap();
        check(far, &x, 5).unwrap();
        let refused = near.free(x).unwrap_err();
        assert!(refused.to_string().contains("with no path from kernel"), "{refused}");
        it.order(far, near);
        near.free(refused.buffer).unwrap();
        it.order(&it.side, &it.main);
        it.run();
    }
}

/// A captured free does not forget what its stream has waited for.
#[test]
fn a_free_keeps_what_its_stream_waited_for() {
    let it = captured();
    let (x, y) = (it.alloc(&it.main), it.alloc(&it.main));
    it.order(&it.main, &it.side);
    write(&it.side, &y, 6).unwrap();
    it.order(&it.side, &it.main);
    it.main.free(x).unwrap();
    check(&it.main, &y, 6).unwrap();
    it.main.free(y).unwrap();
    it.run();
}

/// A free on one side does not make the other wait for it.
#[test]
fn a_free_orders_its_own_stream_alone() {
    let it = captured();
    let (x, y) = (it.alloc(&it.main), it.alloc(&it.main));
    it.order(&it.main, &it.side);
    write(&it.side, &y, 7).unwrap();
    it.side.free(x).unwrap();
    assert_fault(check(&it.main, &y, 7));
    it.order(&it.side, &it.main);
    check(&it.main, &y, 7).unwrap();
    it.main.free(y).unwrap();
    it.run();
}

/// A stream that is opened for one allocation and gone again before the end of the capture.
#[test]
fn memory_of_a_side_stream_that_is_gone_lives_on() {
    let it = captured();
    let x = {
        let passing = it.device.stream().unwrap();
        it.order(&it.main, &passing);
        let x = it.alloc(&passing);
        write(&passing, &x, 8).unwrap();
        it.order(&passing, &it.main);
        x
    };
    check(&it.main, &x, 8).unwrap();
    it.main.free(x).unwrap();
    it.run();
}

#[test]
fn a_nested_fork_joins_through_its_parent() {
    let it = captured();
    let inner = it.device.stream().unwrap();
    let x = it.alloc(&it.main);
    it.order(&it.main, &it.side);
    it.order(&it.side, &inner);
    write(&inner, &x, 9).unwrap();
    it.order(&inner, &it.side);
    check(&it.side, &x, 9).unwrap();
    it.order(&it.side, &it.main);
    it.main.free(x).unwrap();
    it.run();
}

/// A capture whose stream is dropped is over: nothing is refused because of it.
#[test]
fn a_capture_ends_with_its_stream() -> Result<()> {
    let device = Device::host(HostConfig::default())?;
    let other = device.stream()?;
    let buffer = {
        let stream = device.stream()?;
        stream.begin_capture()?;
        other.wait(&stream.record()?)?;
        stream.alloc::<u32>(&device.default_pool(), 16)?
    };
    drop(buffer);
    // The stream that joined is in a capture that cannot end well, and is set free by that.
    drop(other);
    device.synchronize()?;
    let stream = device.stream()?;
    stream.capture(|s| s.launch((), |()| ())).map(|_| ())
}

#[test]
fn a_pool_of_another_device_is_refused_and_the_capture_goes_on() {
    let it = captured();
    let other = Device::host(HostConfig::default()).unwrap();
    let refused = it.main.alloc::<u32>(&other.default_pool(), 16).unwrap_err();
    assert!(refused.invalid().is_some(), "{refused}");
    assert!(it.main.alloc::<u32>(&it.pool, 0).unwrap().is_empty());
    it.main.launch((), |()| ()).unwrap();
    it.run();
}
