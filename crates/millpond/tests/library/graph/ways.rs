//! The five ways in which memory outlives its graph, each with its data checked.

use millpond::check::Kind;
use millpond::graph::Instantiate;
use millpond::{Error, PoolConfig, Result};

use super::made::{each, expect, is_kind};
use crate::common::visit;

const LEN: usize = 1 << 18;

#[test]
fn the_tour_of_a_capture() {
    each(|on| {
        let device = &on.device;
        let pool = device.pool(PoolConfig::default())?;
        let (left, right) = (device.stream()?, device.stream()?);
        let y = right.alloc::<u32>(&pool, 1024)?;
        right.memset(y.write(), 2)?;
        left.wait(&right.record()?)?;
        let (graph, last) = left.capture(|s| {
            let scratch = s.alloc::<u32>(&pool, 1024)?;
            let last = s.alloc::<u32>(&pool, 1)?;
            s.copy(y.read(), scratch.write())?;
            s.copy(scratch.view().slice(1023..)?.read(), last.write())?;
            Ok(last.into_alloc_node())
        })?;
        let exec = graph.instantiate(Instantiate::default().auto_free_on_launch(true))?;
        for _ in 0..3 {
            let it = exec.launch(&left)?.take(last)?;
            right.wait(&left.record()?)?;
            expect(&right, it.read(), 2);
            left.wait(&right.record()?)?;
            // The last one is freed by the program, the others by the next launch.
        }
        let it = exec.launch(&left)?.take(last)?;
        right.wait(&left.record()?)?;
        right.free(it)?;
        Ok(())
    });
}

#[test]
fn way_1_one_stream() {
    each(|on| {
        let device = &on.device;
        let stream = device.stream()?;
        let mut graph = device.graph()?;
        let out = graph.add_alloc::<u32>(&[], LEN)?;
        let alloc = graph.node_of(out).unwrap();
        let count: Vec<u32> = (0..LEN as u32).collect();
        graph.add_copy_from_host(&[alloc], out.write(), &count)?;
        let exec = graph.instantiate(Instantiate::default())?;
        for _ in 0..3 {
            let buffer = exec.launch(&stream)?.take(out)?;
            assert_eq!(buffer.address(), out.address());
            assert!(stream.copy_to_host(buffer.read())? == count);
            stream.memset(buffer.write(), 1)?;
            expect(&stream, buffer.read(), 1);
            // A relaunch is refused until the output is freed. Then it needs no wait.
            let refused = exec.launch(&stream).unwrap_err();
            assert!(is_kind(&refused, Kind::UnfreedLaunch), "{refused}");
            stream.free(buffer)?;
        }
        Ok(())
    });
}

#[test]
fn way_2_events_between_three_streams() {
    each(|on| {
        let device = &on.device;
        let (a, b, c) = (device.stream()?, device.stream()?, device.stream()?);
        let mut producer = device.graph()?;
        let out = producer.add_alloc::<u32>(&[], LEN)?;
        let alloc = producer.node_of(out).unwrap();
        producer.add_memset(&[alloc], out.write(), 7)?;
        let mut freer = device.graph()?;
        freer.add_free(&[], out)?;
        let (produce, free) =
            (producer.instantiate(Instantiate::default())?, freer.instantiate(Instantiate::default())?);
        assert!(is_kind(&free.launch(&c).unwrap_err(), Kind::FreeBeforeAlloc));
        for _ in 0..3 {
            let _ = produce.launch(&a)?;
            // An unordered use and an unordered free are refused, with both sides.
            assert_eq!(visit(&b, out.read()).unwrap_err().violation().unwrap().kind, Kind::UseBeforeAlloc);
            b.wait(&a.record()?)?;
            expect(&b, out.read(), 7);
            b.memset(out.write(), 21)?;
            expect(&b, out.read(), 21);
            b.memset(out.write(), 1)?;
            assert_eq!(free.launch(&c).unwrap_err().violation().unwrap().kind, Kind::FreeBeforeUse);
            c.wait(&b.record()?)?;
            let _ = free.launch(&c)?;
            // It can be freed only once.
            assert_eq!(free.launch(&c).unwrap_err().violation().unwrap().kind, Kind::DoubleFree);
        }
        Ok(())
    });
}

#[test]
fn way_4_the_immediate_free() {
    each(|on| {
        let device = &on.device;
        let stream = device.stream()?;
        let (graph, out) = stream.capture(|s| {
            let out = s.alloc::<u8>(&device.default_pool(), LEN)?;
            s.memset(out.write(), 9)?;
            Ok(out.into_alloc_node())
        })?;
        let exec = graph.instantiate(Instantiate::default())?;
        let buffer = exec.launch(&stream)?.take(out)?;
        let refused = device.free(buffer).unwrap_err();
        assert_eq!(refused.error.violation().unwrap().kind, Kind::FreeBeforeAlloc);
        stream.synchronize()?;
        device.free(refused.buffer)?;
        assert!(matches!(device.free_address(out.address()), Err(Error::InvalidArgument(_))));
        // The instance and the graph are dropped while the memory is live.
        let buffer = exec.launch(&stream)?.take(out)?;
        drop((exec, graph));
        assert_eq!(stream.copy_to_host(buffer.read())?, vec![9; LEN]);
        stream.free(buffer)?;
        Ok(())
    });
}

#[test]
fn way_5_producer_and_varying_consumers() {
    each(|on| {
        let device = &on.device;
        let (stream, other) = (device.stream()?, device.stream()?);
        let pool = device.default_pool();
        let (ones, tens) = (stream.alloc::<u32>(&pool, LEN)?, stream.alloc::<u32>(&pool, LEN)?);
        let (producer, (a, b)) = stream.capture(|s| {
            let (a, b) = (s.alloc::<u32>(&pool, LEN)?, s.alloc::<u32>(&pool, LEN)?);
            s.copy(ones.read(), a.write())?;
            s.copy(tens.read(), b.write())?;
            Ok((a.into_alloc_node(), b.into_alloc_node()))
        })?;
        let produce = producer.instantiate(Instantiate::default().auto_free_on_launch(true))?;
        let result = stream.alloc::<u32>(&pool, LEN)?;
        let consume = |from: millpond::graph::MemAllocNode<u32>| -> Result<_> {
            let (graph, ()) = stream.capture(|s| s.copy(from.read(), result.write()))?;
            graph.instantiate(Instantiate::default())
        };
        let consumers = [consume(a)?, consume(b)?];
        drop(producer);
        let next = |round: u8| {
            stream.memset(ones.write(), round)?;
            stream.memset(tens.write(), 10 * round)
        };
        for round in 1..=6 {
            next(round)?;
            let _ = produce.launch(&stream)?;
            let which = usize::from(round) % 2;
            let _ = consumers[which].launch(&stream)?;
            let expected = if which == 0 { round } else { 10 * round };
            expect(&stream, result.read(), expected);
        }
        // A consumer on another stream that is not ordered before the relaunch.
        other.wait(&stream.record()?)?;
        visit(&other, a.read())?;
        let refused = produce.launch(&stream).unwrap_err();
        let violation = refused.violation().unwrap();
        assert_eq!(
            (violation.kind, violation.earlier.as_ref().unwrap().stream),
            (Kind::AutoFreeBeforeUse, Some(other.id()))
        );
        stream.wait(&other.record()?)?;
        next(7)?;
        let launch = produce.launch(&stream)?;
        let (a, b) = (launch.take(a)?, launch.take(b)?);
        drop((launch, produce));
        expect(&stream, a.read(), 7);
        expect(&stream, b.read(), 70);
        stream.free(a)?;
        stream.free(b)?;
        Ok(())
    });
}
