//! Captures: the nodes that they make, and the refusals at the line of the mistake.

use std::sync::mpsc;
use std::time::Duration;

use millpond::check::Kind;
use millpond::error::Invalid;
use millpond::graph::{CaptureMode, Instantiate};
use millpond::{Error, Result, Stream};

use super::made::{each, expect, is_kind, is_of_graph, kind};
use crate::common::{on_parallel_devices_that_run_closures, visit};

/// Skipped if kernels are not closures: host functions may run one after the other there.
#[test]
fn a_side_stream_forks_and_joins_and_runs_at_the_same_time() {
    on_parallel_devices_that_run_closures(|on| {
        let device = &on.device;
        let (left, right) = (device.stream()?, device.stream()?);
        let x = left.alloc::<u32>(&device.default_pool(), 2)?;
        let y = left.alloc::<u32>(&device.default_pool(), 2)?;
        let (to_right, from_left) = mpsc::channel::<()>();
        let (to_left, from_right) = mpsc::channel::<()>();
        let (graph, ()) = left.capture(|s| {
            s.memset(x.write(), 0)?;
            right.wait(&s.record()?)?;
            // Each needs the other one to run: if they ran one after the other, no launch would end.
            s.launch(x.write(), move |x| {
                to_right.send(()).unwrap();
                from_right.recv_timeout(Duration::from_secs(20)).expect("the other branch runs meanwhile");
                x[0] += 1;
            })?;
            right.launch(y.write(), move |y| {
                to_left.send(()).unwrap();
                from_left.recv_timeout(Duration::from_secs(20)).expect("the other branch runs meanwhile");
                y[0] = 5;
            })?;
            s.wait(&right.record()?)?;
            s.launch((x.write(), y.read()), |(x, y)| x[1] = x[0] + y[0])
        })?;
        let exec = graph.instantiate(Instantiate::default())?;
        for _ in 0..20 {
            let _ = exec.launch(&left)?;
            assert_eq!(left.copy_to_host(x.read())?, [1, 6]);
        }
        // The side stream is an ordinary stream again.
        right.wait(&left.record()?)?;
        right.launch(y.write(), |y| y[0] = 0)?;
        Ok(())
    });
}

/// Branches of a device's own graph may run at once, and both have completed where they meet.
#[test]
fn a_side_stream_forks_and_joins() {
    each(|on| {
        let (pool, [left, right]) = (on.device.default_pool(), on.streams());
        let [x, y, z] = [(); 3].map(|()| left.alloc::<u32>(&pool, 1 << 16).unwrap());
        let (graph, ()) = left.capture(|s| {
            s.memset(x.write(), 1)?;
            right.wait(&s.record()?)?;
            right.copy(x.read(), y.write())?;
            right.memset(z.write(), 3)?;
            s.wait(&right.record()?)?;
            s.memset(x.write(), 2)
        })?;
        let exec = graph.instantiate(Instantiate::default())?;
        for _ in 0..20 {
            let _ = exec.launch(&left)?;
            for (it, byte) in [(&x, 2), (&y, 1), (&z, 3)] {
                expect(&left, it.read(), byte);
            }
        }
        // The side stream is an ordinary stream again.
        right.wait(&left.record()?)?;
        right.memset(y.write(), 0)?;
        expect(&right, y.read(), 0);
        Ok(())
    });
}

#[test]
fn a_refused_argument_leaves_the_capture_as_it_was() {
    each(|on| {
        let device = &on.device;
        let stream = device.stream()?;
        let plain = stream.alloc::<u32>(&device.default_pool(), 4)?;
        let (graph, plain) = stream.capture(|s| {
            s.memset(plain.write(), 3)?;
            let refused = s.free(plain).unwrap_err();
            assert!(is_kind(&refused.error, Kind::CaptureForeignFree), "{refused}");
            let by_address = s.free_address(refused.buffer.address()).unwrap_err();
            assert!(is_kind(&by_address, Kind::CaptureForeignFree), "{by_address}");
            let overlap = s.copy(refused.buffer.read(), refused.buffer.write()).unwrap_err();
            assert!(is_kind(&overlap, Kind::Aliased), "{overlap}");
            Ok(refused.buffer)
        })?;
        let _ = graph.instantiate(Instantiate::default())?.launch(&stream)?;
        expect(&stream, plain.read(), 3);
        Ok(())
    });
}

#[test]
fn host_bytes_are_kept_by_the_graph_and_drops_are_free_nodes() {
    each(|on| {
        let device = &on.device;
        let stream = device.stream()?;
        let out = stream.alloc::<u32>(&device.default_pool(), 3)?;
        let (graph, ()) = stream.capture(|s| {
            let staged = s.alloc::<u32>(&device.default_pool(), 3)?;
            s.copy_from_host(staged.write(), &[4, 5, 6])?;
            s.copy(staged.read(), out.write())
        })?;
        assert_eq!(graph.len(), 4, "alloc, two copies, free");
        let exec = graph.instantiate(Instantiate::default())?;
        for _ in 0..3 {
            stream.memset(out.write(), 0)?;
            let _ = exec.launch(&stream)?;
            assert_eq!(stream.copy_to_host(out.read())?, [4, 5, 6]);
        }
        Ok(())
    });
}

#[test]
fn memory_of_a_capture_has_no_life_before_the_launch() {
    each(|on| {
        let device = &on.device;
        let (stream, other) = (device.stream()?, device.stream()?);
        stream.begin_capture()?;
        let buffer = stream.alloc::<u32>(&device.default_pool(), 8)?;
        let refused = visit(&other, buffer.read()).unwrap_err();
        assert!(is_kind(&refused, Kind::UseBeforeAlloc), "{refused}");
        assert!(refused.report().to_string().contains("make the stream wait for an event"), "{refused:?}");
        let refused = other.free(buffer).unwrap_err();
        assert!(is_kind(&refused.error, Kind::FreeBeforeAlloc), "{refused}");
        assert!(other.free_address(refused.buffer.address()).unwrap_err().invalid().is_some());
        stream.free(refused.buffer)?;
        let exec = stream.end_capture()?.instantiate(Instantiate::default())?;
        let _ = exec.launch(&stream)?;
        Ok(())
    });
}

/// A buffer that leaves its capture is not a buffer of a launch.
#[test]
fn a_buffer_returned_from_a_capture_names_no_launch() {
    each(|on| {
        let (stream, pool) = (on.device.stream()?, on.device.default_pool());
        let (graph, buffer) = stream.capture(|s| s.alloc::<u32>(&pool, 8))?;
        let _ = graph.instantiate(Instantiate::default())?.launch(&stream)?;
        let refused = visit(&stream, buffer.read()).unwrap_err().to_string();
        assert!(refused.contains("leave the capture as an alloc node (`into_alloc_node`)"), "{refused}");
        Ok(())
    });
}

#[test]
fn a_launch_into_a_capturing_stream_is_a_child_node() {
    each(|on| {
        let device = &on.device;
        let stream = device.stream()?;
        let copied = stream.alloc::<u32>(&device.default_pool(), 4)?;
        let mut inner = device.symbolic_graph()?;
        let out = inner.add_alloc::<u32>(&[], 4)?;
        let fill = inner.add_memset(&[inner.node_of(out).unwrap()], out.write(), 2)?;
        inner.add_copy(&[fill], out.read(), copied.write())?;
        let inner = inner.instantiate(Instantiate::default())?;
        let (outer, ()) = stream.capture(|s| {
            let launch = inner.launch(s)?;
            assert!(matches!(launch.take(out).unwrap_err().invalid(), Some(Invalid::Taken)));
            s.memset(copied.view().slice(..2)?.write(), 3)
        })?;
        let exec = outer.instantiate(Instantiate::default())?;
        let buffer = exec.launch(&stream)?.take(out)?;
        expect(&stream, buffer.read(), 2);
        let both = stream.copy_to_host(copied.read())?;
        assert_eq!(both, [0x0303_0303, 0x0303_0303, 0x0202_0202, 0x0202_0202]);
        Ok(())
    });
}

/// A mistake in a capture is refused at its line, with both nodes. The capture goes on without it.
#[test]
fn a_wrong_order_in_a_capture_is_refused_at_its_line() {
    each(|on| {
        let device = &on.device;
        let (left, right) = (device.stream()?, device.stream()?);
        let pool = device.default_pool();
        let (outside, copied) = (left.alloc::<u32>(&pool, 4)?, left.alloc::<u32>(&pool, 4)?);
        let fault = |error: Error| {
            assert!(is_of_graph(&error), "{error}");
            (kind(&error), error.report().to_string())
        };
        let (graph, ()) = left.capture(|s| {
            right.wait(&s.record()?)?;
            let x = s.alloc::<u32>(&pool, 4)?;
            x.set_name("x");
            let (kind, text) = fault(right.memset(x.write(), 0).unwrap_err());
            assert_eq!(kind, Kind::UseBeforeAlloc);
            assert!(text.contains("`x`") && text.contains("no path from its alloc node"), "{text}");
            assert!(
                text.contains("for an event that stream 1 records after mem alloc `x`") && text.contains("capture.rs"),
                "{text}"
            );
            let refused = right.free(x).unwrap_err();
            assert_eq!(fault(refused.error).0, Kind::FreeBeforeAlloc);
            let x = refused.buffer;
            s.memset(x.write(), 1)?;
            s.memset(outside.write(), 1)?;
            assert_eq!(fault(visit(&right, outside.read()).unwrap_err()).0, Kind::Race);
            let allocated = s.record()?;
            right.wait(&allocated)?;
            s.copy(x.read(), copied.write())?;
            let refused = right.free(x).unwrap_err();
            let (kind, text) = fault(refused.error);
            assert_eq!(kind, Kind::FreeBeforeUse);
            assert!(text.contains("which reads it"), "{text}");
            let view = refused.buffer.view();
            s.free(refused.buffer)?;
            assert_eq!(fault(visit(s, view.read()).unwrap_err()).0, Kind::UseAfterFree);
            visit(&right, ())?;
            s.wait(&right.record()?)
        })?;
        // The graph has only what was right: alloc, two fills, a copy, the free, and the kernel.
        assert_eq!(graph.len(), 6);
        let _ = graph.instantiate(Instantiate::default())?.launch(&left)?;
        expect(&left, outside.read(), 1);
        expect(&left, copied.read(), 1);
        Ok(())
    });
}

#[test]
fn a_name_given_in_a_capture_is_the_outputs_name() {
    each(|on| {
        let device = &on.device;
        let (stream, other) = (device.stream()?, device.stream()?);
        let (graph, out) = stream.capture(|s| {
            let out = s.alloc::<u32>(&device.default_pool(), 4)?;
            out.set_name("total");
            Ok(out.into_alloc_node())
        })?;
        let _ = graph.instantiate(Instantiate::default())?.launch(&stream)?;
        let refused = visit(&other, out.read()).unwrap_err();
        assert!(refused.report().to_string().contains("`total`"), "{refused}");
        stream.free_address(out.address())
    });
}

#[test]
fn memory_of_a_capture_is_known_by_views_and_addresses() {
    each(|on| {
        let device = &on.device;
        let stream = device.stream()?;
        let out = stream.alloc::<u32>(&device.default_pool(), 2)?;
        let (graph, ()) = stream.capture(|s| {
            let x = s.alloc::<u32>(&device.default_pool(), 4)?;
            s.copy_from_host(x.write(), &[1, 2, 3, 4])?;
            s.copy(x.view().slice(1..3)?.read(), out.write())?;
            let address = x.into_address();
            s.free_address(address)?;
            assert!(is_of_graph(&s.free_address(address).unwrap_err()));
            // The address is used again: the last allocation there is meant.
            let y = s.alloc::<u32>(&device.default_pool(), 4)?;
            assert_eq!(y.address(), address);
            s.free_address(y.into_address())
        })?;
        assert_eq!(graph.len(), 6);
        let _ = graph.instantiate(Instantiate::default())?.launch(&stream)?;
        assert_eq!(stream.copy_to_host(out.read())?, [2, 3]);
        Ok(())
    });
}

/// Calls that act at once during a capture, by mode and thread. The device cannot be synchronised in any mode.
#[test]
fn modes_say_whose_calls_are_refused() {
    each(|on| {
        let device = &on.device;
        let table = [
            (CaptureMode::Global, false, false),
            (CaptureMode::ThreadLocal, true, false),
            (CaptureMode::Relaxed, true, true),
        ];
        for (mode, others_may, own_may) in table {
            for is_own in [false, true] {
                let stream = device.stream()?;
                let buffer = stream.alloc::<u8>(&device.default_pool(), 64)?;
                stream.synchronize()?;
                stream.begin_capture_in(mode)?;
                let there = device.clone();
                let call = move || there.free(buffer).map_err(|refused| refused.error);
                let result = if is_own { call() } else { std::thread::spawn(call).join().unwrap() };
                let may = if is_own { own_may } else { others_may };
                assert_eq!(result.is_ok(), may, "{mode:?}, own thread: {is_own}");
                assert_eq!(stream.end_capture().is_ok(), may);
                let there = device.clone();
                stream.begin_capture_in(mode)?;
                let result = match is_own {
                    true => there.synchronize(),
                    false => std::thread::spawn(move || there.synchronize()).join().unwrap(),
                };
                assert!(result.is_err() && stream.end_capture().is_err(), "{mode:?}, own thread: {is_own}");
            }
            let stream = device.stream()?;
            stream.begin_capture_in(mode)?;
            let there = stream.clone();
            let ended = std::thread::spawn(move || there.end_capture().map(|_| ())).join().unwrap();
            assert_eq!(ended.is_ok(), mode == CaptureMode::Relaxed);
        }
        Ok(())
    });
}

/// Captured nodes are added to an existing graph, and the nodes of that graph count for their order.
#[test]
fn a_capture_goes_on_in_a_graph() {
    each(|on| {
        let device = &on.device;
        let stream = device.stream()?;
        let out = stream.alloc::<u32>(&device.default_pool(), 4)?;
        let mut graph = device.graph()?;
        let x = graph.add_alloc::<u32>(&[], 4)?;
        let alloc = graph.node_of(x).unwrap();
        let fill = graph.add_memset(&[alloc], x.write(), 4)?;
        let refused = stream.capture_to(&mut graph, &[], CaptureMode::Global, |s| s.copy(x.read(), out.write()));
        assert!(is_of_graph(&refused.unwrap_err()), "nothing comes after the alloc node");
        assert_eq!(graph.len(), 2, "as before");
        stream.capture_to(&mut graph, &[fill], CaptureMode::Global, |s| {
            s.copy(x.read(), out.write())?;
            s.free_alloc_node(x)
        })?;
        assert_eq!(graph.len(), 4);
        let _ = graph.instantiate(Instantiate::default())?.launch(&stream)?;
        expect(&stream, out.read(), 4);
        Ok(())
    });
}

/// The graph of a capture with a closure belongs to its caller. The closure cannot end the capture, which would make
/// another graph with the same names for memory that it does not have.
#[test]
fn a_capture_ends_with_its_closure() {
    each(|on| {
        let device = &on.device;
        let (stream, pool) = (device.stream()?, device.default_pool());
        let ends = |stream: &Stream| {
            let refused = stream.end_capture().unwrap_err();
            assert!(matches!(refused.invalid(), Some(Invalid::EndsWithClosure { .. })), "{refused}");
            stream.abandon_capture();
            assert!(stream.begin_capture().is_err(), "it goes on");
        };
        let mut graph = device.graph()?;
        let first = graph.add_empty(&[])?;
        for mode in [CaptureMode::Global, CaptureMode::Relaxed] {
            let before = graph.len();
            stream.capture_to(&mut graph, &[first], mode, |stream| {
                ends(stream);
                std::thread::scope(|scope| scope.spawn(|| ends(stream)).join().unwrap());
                drop(stream.alloc::<u32>(&pool, 4)?);
                Ok(())
            })?;
            assert_eq!(graph.len(), before + 2);
        }
        // A stream that has joined cannot end it either, and captures nothing afterwards.
        let side = device.stream()?;
        let (captured, ()) = stream.capture(|stream| {
            side.wait(&stream.record()?)?;
            ends(stream);
            ends(&side);
            stream.wait(&side.record()?)?;
            drop(stream.alloc::<u32>(&pool, 4)?);
            Ok(())
        })?;
        assert_eq!(captured.len(), 2);
        assert!(side.end_capture().unwrap_err().violation().is_some(), "it captures nothing");
        side.begin_capture()?;
        assert!(side.end_capture()?.is_empty());
        let _ = graph.instantiate(Instantiate::default())?.launch(&stream)?;
        stream.synchronize()
    });
}

/// Two captures at once, each in its own thread.
#[test]
fn threads_capture_beside_each_other() {
    each(|on| {
        let device = &on.device;
        let capture = |value: u8| -> Result<()> {
            let stream = device.stream()?;
            let copied = stream.alloc::<u32>(&device.default_pool(), 64)?;
            for _ in 0..20 {
                stream.begin_capture_in(CaptureMode::ThreadLocal)?;
                let x = stream.alloc::<u32>(&device.default_pool(), 64)?;
                stream.memset(x.write(), value)?;
                stream.copy(x.read(), copied.write())?;
                stream.free(x)?;
                let exec = stream.end_capture()?.instantiate(Instantiate::default())?;
                stream.memset(copied.write(), 99)?;
                let _ = exec.launch(&stream)?;
                stream.synchronize()?;
                // Other threads may capture in a mode that forbids nothing here.
                expect(&stream, copied.read(), value);
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3).map(|value| scope.spawn(move || capture(value))).collect();
            threads.into_iter().try_for_each(|thread| thread.join().unwrap())
        })
    });
}

/// Empty graphs, and nodes without elements.
#[test]
fn nothing_is_launched_like_anything() {
    each(|on| {
        let device = &on.device;
        let stream = device.per_thread_stream()?;
        let x = stream.alloc::<u32>(&device.default_pool(), 4)?;
        let none = x.view().slice(2..2)?;
        let mut graph = device.graph()?;
        let first = graph.add_memset(&[], none.write(), 1)?;
        let copy = graph.add_copy_from_host(&[first], none.write(), &[])?;
        graph.add_copy(&[copy], none.read(), x.view().slice(0..0)?.write())?;
        let twice = graph.add_copy(&[copy], x.view().slice(0..3)?.read(), x.view().slice(1..4)?.write());
        assert!(is_kind(&twice.unwrap_err(), Kind::Aliased), "bytes written and used a second time");
        let mut removed = device.graph()?;
        let node = removed.add_empty(&[])?;
        removed.remove_node(node)?;
        let (captured, ()) = stream.capture(|s| {
            let empty = s.alloc::<u32>(&device.default_pool(), 0)?;
            visit(s, empty.write())
        })?;
        for graph in [&graph, &removed, &captured, &device.graph()?] {
            let exec = graph.instantiate(Instantiate::default().auto_free_on_launch(true))?;
            exec.upload(&stream)?;
            let _ = exec.launch(&stream)?;
            let (outer, ()) = stream.capture(|s| exec.launch(s).map(|_| ()))?;
            let _ = outer.instantiate(Instantiate::default())?.launch(&stream)?;
        }
        stream.synchronize()
    });
}

/// If one graph makes memory and another one uses it, the launching program must order them.
#[test]
fn a_consumer_graph_is_checked_against_the_producers_launch() {
    each(|on| {
        let device = &on.device;
        let (a, b) = (device.stream()?, device.stream()?);
        let result = b.alloc::<u32>(&device.default_pool(), 16)?;
        let (producer, out) = a.capture(|s| {
            let out = s.alloc::<u32>(&device.default_pool(), 16)?;
            s.memset(out.write(), 5)?;
            Ok(out.into_alloc_node())
        })?;
        let (consumer, ()) = b.capture(|s| s.copy(out.read(), result.write()))?;
        let (produce, consume) =
            (producer.instantiate(Instantiate::default())?, consumer.instantiate(Instantiate::default())?);
        assert!(is_kind(&consume.launch(&b).unwrap_err(), Kind::UseBeforeAlloc));
        for _ in 0..3 {
            let _ = produce.launch(&a)?;
            assert_eq!(consume.launch(&b).unwrap_err().violation().unwrap().kind, Kind::UseBeforeAlloc);
            b.wait(&a.record()?)?;
            let _ = consume.launch(&b)?;
            assert_eq!(a.free_address(out.address()).unwrap_err().violation().unwrap().kind, Kind::FreeBeforeUse);
            a.wait(&b.record()?)?;
            a.free_address(out.address())?;
            assert_eq!(consume.launch(&b).unwrap_err().violation().unwrap().kind, Kind::UseAfterFree);
            expect(&b, result.read(), 5);
            b.memset(result.write(), 0)?;
        }
        Ok(())
    });
}
