//! Captures of several streams, by the shape of their graphs: the order, and which bytes are used again.

use std::cell::Cell;

use millpond::graph::Instantiate;
use millpond::{Buffer, Device, Error, Pool, Result, Stream};

use super::made::{each, expect, is_of_graph};
use crate::common::{Subject, visit};

const LEN: usize = 1000;

struct Captured {
    device: Device,
    pool: Pool,
    main: Stream,
    side: Stream,
    /// The destinations of the checks, each with the byte to expect there once it is in use.
    sinks: [(Buffer<u32>, Cell<Option<u8>>); 4],
}

fn captured(on: &Subject) -> Captured {
    let (pool, [main, side]) = (on.device.default_pool(), on.streams());
    let sinks = std::array::from_fn(|_| (main.alloc(&pool, LEN).unwrap(), Cell::new(None)));
    main.begin_capture().unwrap();
    Captured { pool, device: on.device.clone(), main, side, sinks }
}

impl Captured {
    fn alloc(&self, stream: &Stream) -> Buffer<u32> {
        stream.alloc(&self.pool, LEN).unwrap()
    }

    /// Makes `to` come after what `from` has so far.
    fn order(&self, from: &Stream, to: &Stream) {
        to.wait(&from.record().unwrap()).unwrap();
    }

    /// Checks for `byte` at this point of the stream.
    fn check(&self, stream: &Stream, x: &Buffer<u32>, byte: u8) -> Result<()> {
        let (sink, found) = self.sinks.iter().find(|(_, byte)| byte.get().is_none()).expect("few checks");
        stream.copy(x.read(), sink.write())?;
        found.set(Some(byte));
        Ok(())
    }

    /// Ends the capture, runs its graph, and compares the results of the checks.
    fn run(&self) {
        let exec = self.main.end_capture().unwrap().instantiate(Instantiate::default()).unwrap();
        for _ in 0..2 {
            self.sinks.iter().for_each(|(sink, _)| self.main.memset(sink.write(), 99).unwrap());
            drop(exec.launch(&self.main).unwrap());
            for (sink, byte) in &self.sinks {
                expect(&self.main, sink.read(), byte.get().unwrap_or(99));
            }
        }
        self.device.synchronize().unwrap();
    }
}

#[track_caller]
fn assert_fault<T: std::fmt::Debug>(refused: Result<T>) {
    let refused: Error = refused.unwrap_err();
    assert!(is_of_graph(&refused), "{refused}");
}

#[test]
fn in_a_sequence_freed_bytes_serve_again() {
    each(|on| {
        let it = captured(on);
        let x = it.alloc(&it.main);
        it.main.memset(x.write(), 1).unwrap();
        it.check(&it.main, &x, 1).unwrap();
        let address = x.address();
        it.main.free(x).unwrap();
        let y = it.alloc(&it.main);
        assert_eq!(y.address(), address);
        it.main.memset(y.write(), 2).unwrap();
        it.check(&it.main, &y, 2).unwrap();
        it.main.free(y).unwrap();
        it.run();
        Ok(())
    });
}

#[test]
fn a_side_stream_does_not_take_bytes_that_the_main_one_frees_beside_it() {
    each(|on| {
        let it = captured(on);
        it.order(&it.main, &it.side);
        let x = it.alloc(&it.main);
        it.main.memset(x.write(), 1).unwrap();
        let address = x.address();
        it.main.free(x).unwrap();
        let y = it.alloc(&it.side);
        assert_ne!(y.address(), address, "nothing orders the two");
        it.side.memset(y.write(), 2).unwrap();
        it.side.free(y).unwrap();
        it.order(&it.side, &it.main);
        // After the join both can be used again.
        let z = it.alloc(&it.main);
        assert!(z.address() == address || z.address() > 0);
        it.main.free(z).unwrap();
        it.run();
        Ok(())
    });
}

#[test]
fn what_a_side_stream_allocates_is_the_main_ones_after_the_join() {
    each(|on| {
        let it = captured(on);
        it.order(&it.main, &it.side);
        let x = it.alloc(&it.side);
        it.side.memset(x.write(), 3).unwrap();
        assert_fault(it.check(&it.main, &x, 3));
        it.order(&it.side, &it.main);
        it.check(&it.main, &x, 3).unwrap();
        it.main.free(x).unwrap();
        it.run();
        Ok(())
    });
}

#[test]
fn what_is_allocated_before_the_fork_is_on_both_sides() {
    each(|on| {
        let it = captured(on);
        let x = it.alloc(&it.main);
        it.main.memset(x.write(), 4).unwrap();
        it.order(&it.main, &it.side);
        let late = it.alloc(&it.main);
        it.check(&it.main, &x, 4).unwrap();
        it.check(&it.side, &x, 4).unwrap();
        assert_fault(it.side.memset(late.write(), 0));
        it.order(&it.side, &it.main);
        it.main.free(x).unwrap();
        it.main.free(late).unwrap();
        it.run();
        Ok(())
    });
}

/// The free must come after the uses on both sides, on either side.
#[test]
fn a_free_after_a_fork_comes_after_both_sides() {
    each(|on| {
        for is_main in [true, false] {
            let it = captured(on);
            let (near, far) = if is_main { (&it.main, &it.side) } else { (&it.side, &it.main) };
            let x = it.alloc(&it.main);
            it.main.memset(x.write(), 5).unwrap();
            it.order(&it.main, &it.side);
            it.check(near, &x, 5).unwrap();
            it.check(far, &x, 5).unwrap();
            let refused = near.free(x).unwrap_err();
            assert!(refused.report().to_string().contains("with no path from copy"), "{refused}");
            it.order(far, near);
            near.free(refused.buffer).unwrap();
            it.order(&it.side, &it.main);
            it.run();
        }
        Ok(())
    });
}

/// A captured free keeps what its stream has waited for.
#[test]
fn a_free_keeps_what_its_stream_waited_for() {
    each(|on| {
        let it = captured(on);
        let (x, y) = (it.alloc(&it.main), it.alloc(&it.main));
        it.order(&it.main, &it.side);
        it.side.memset(y.write(), 6).unwrap();
        it.order(&it.side, &it.main);
        it.main.free(x).unwrap();
        it.check(&it.main, &y, 6).unwrap();
        it.main.free(y).unwrap();
        it.run();
        Ok(())
    });
}

/// A free on one side does not make the other side wait for it.
#[test]
fn a_free_orders_its_own_stream_alone() {
    each(|on| {
        let it = captured(on);
        let (x, y) = (it.alloc(&it.main), it.alloc(&it.main));
        it.order(&it.main, &it.side);
        it.side.memset(y.write(), 7).unwrap();
        it.side.free(x).unwrap();
        assert_fault(it.check(&it.main, &y, 7));
        it.order(&it.side, &it.main);
        it.check(&it.main, &y, 7).unwrap();
        it.main.free(y).unwrap();
        it.run();
        Ok(())
    });
}

/// A stream is opened for one allocation and dropped again before the end of the capture.
#[test]
fn memory_of_a_side_stream_that_is_gone_lives_on() {
    each(|on| {
        let it = captured(on);
        let x = {
            let passing = it.device.stream().unwrap();
            it.order(&it.main, &passing);
            let x = it.alloc(&passing);
            passing.memset(x.write(), 8).unwrap();
            it.order(&passing, &it.main);
            x
        };
        it.check(&it.main, &x, 8).unwrap();
        it.main.free(x).unwrap();
        it.run();
        Ok(())
    });
}

#[test]
fn a_nested_fork_joins_through_its_parent() {
    each(|on| {
        let it = captured(on);
        let inner = it.device.stream().unwrap();
        let x = it.alloc(&it.main);
        it.order(&it.main, &it.side);
        it.order(&it.side, &inner);
        inner.memset(x.write(), 9).unwrap();
        it.order(&inner, &it.side);
        it.check(&it.side, &x, 9).unwrap();
        it.order(&it.side, &it.main);
        it.main.free(x).unwrap();
        it.run();
        Ok(())
    });
}

/// A capture whose stream is dropped has ended: nothing is refused because of it.
#[test]
fn a_capture_ends_with_its_stream() {
    each(|on| {
        let device = &on.device;
        let other = device.stream()?;
        let buffer = {
            let stream = device.stream()?;
            stream.begin_capture()?;
            other.wait(&stream.record()?)?;
            stream.alloc::<u32>(&device.default_pool(), 16)?
        };
        drop(buffer);
        // The stream that joined is not captured any more.
        drop(other);
        device.synchronize()?;
        let stream = device.stream()?;
        stream.capture(|s| visit(s, ())).map(|_| ())
    });
}

#[test]
fn a_pool_of_another_device_is_refused_and_the_capture_goes_on() {
    each(|on| {
        let it = captured(on);
        let other = on.another().device;
        let refused = it.main.alloc::<u32>(&other.default_pool(), 16).unwrap_err();
        assert!(refused.invalid().is_some(), "{refused}");
        assert!(it.main.alloc::<u32>(&it.pool, 0).unwrap().is_empty());
        visit(&it.main, ()).unwrap();
        it.run();
        Ok(())
    });
}

/// A child is a snapshot: a graph may contain an older version of itself, and each names its own memory.
#[test]
fn an_older_snapshot_of_a_graph_is_inside_it() {
    each(|on| {
        let (pool, [s]) = (on.device.default_pool(), on.streams());
        let [x, y] = std::array::from_fn(|_| s.alloc::<u32>(&pool, 64).unwrap());
        let (mut inner, mut outer) = (on.device.graph()?, on.device.graph()?);
        // The older one writes what the newer one does not name, and vice versa.
        let first = outer.add_memset(&[], x.write(), 1)?;
        inner.add_child(&[], &outer)?;
        outer.remove_node(first)?;
        let second = outer.add_memset(&[], y.write(), 2)?;
        outer.add_child(&[second], &inner)?;
        let exec = outer.instantiate(Instantiate::default())?;
        drop(exec.launch(&s)?);
        expect(&s, x.read(), 1);
        expect(&s, y.read(), 2);
        Ok(())
    });
}
