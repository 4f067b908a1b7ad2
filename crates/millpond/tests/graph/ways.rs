//! The five ways in which memory outlives its graph, each with its data checked.

use millpond::{Error, GraphError, Instantiate, Kind, PoolConfig, Result};

use crate::made::device;

const LEN: usize = 1 << 18;

#[test]
fn the_tour_of_a_capture() -> Result<()> {
    let device = device();
    let pool = device.pool(PoolConfig::default())?;
    let (left, right) = (device.stream()?, device.stream()?);
    let y = right.alloc::<f32>(&pool, 1024)?;
    right.launch(y.write(), |y| y.fill(2.0))?;
    left.wait(&right.record()?)?;
    let (graph, total) = left.capture(|s| {
        let scratch = s.alloc::<f32>(&pool, 1024)?;
        let total = s.alloc::<f32>(&pool, 1)?;
        s.launch((y.read(), scratch.write()), |(y, t)| t.copy_from_slice(y))?;
        s.launch((scratch.read(), total.write()), |(t, sum)| sum[0] = t.iter().sum())?;
        Ok(total.into_alloc_node())
    })?;
    let exec = graph.instantiate(Instantiate { auto_free_on_launch: true })?;
    for _ in 0..3 {
        let sum = exec.launch(&left)?.take(total)?;
        right.wait(&left.record()?)?;
        assert_eq!(right.copy_to_host(sum.read())?, [2048.0]);
        left.wait(&right.record()?)?;
        // The last one is freed by hand, the others by the next launch.
    }
    let sum = exec.launch(&left)?.take(total)?;
    right.wait(&left.record()?)?;
    right.free(sum)?;
    Ok(())
}

#[test]
fn way_1_one_stream() -> Result<()> {
    let device = device();
    let stream = device.stream()?;
    let mut graph = device.graph()?;
    let out = graph.add_alloc::<u32>(&[], LEN)?;
    let alloc = graph.node_of(out).unwrap();
    graph.add_kernel(&[alloc], out.write(), |out| out.iter_mut().enumerate().for_each(|(i, x)| *x = i as u32))?;
    let exec = graph.instantiate(Instantiate::default())?;
    for _ in 0..3 {
        let buffer = exec.launch(&stream)?.take(out)?;
        assert_eq!(buffer.address(), out.address());
        stream.launch(buffer.write(), |x| x.iter_mut().for_each(|x| *x += 1))?;
        let host = stream.copy_to_host(buffer.read())?;
        assert!(host.iter().enumerate().all(|(i, x)| *x == i as u32 + 1));
        // Relaunch is refused until it is freed; then it needs no waiting.
        let refused = exec.launch(&stream).unwrap_err();
        assert!(matches!(refused.graph(), Some(GraphError::Unfreed(_))), "{refused}");
        stream.free(buffer)?;
    }
    Ok(())
}

#[test]
fn way_2_events_between_three_streams() -> Result<()> {
    let device = device();
    let (a, b, c) = (device.stream()?, device.stream()?, device.stream()?);
    let mut producer = device.graph()?;
    let out = producer.add_alloc::<u32>(&[], LEN)?;
    let alloc = producer.node_of(out).unwrap();
    producer.add_kernel(&[alloc], out.write(), |out| out.fill(7))?;
    let mut freer = device.graph()?;
    freer.add_free(&[], out)?;
    let (produce, free) = (producer.instantiate(Instantiate::default())?, freer.instantiate(Instantiate::default())?);
    assert!(matches!(free.launch(&c).unwrap_err().graph(), Some(GraphError::NotLive(_))));
    for _ in 0..3 {
        let _ = produce.launch(&a)?;
        // Unordered use and free are refused, with both sides.
        assert_eq!(b.launch(out.read(), |_| ()).unwrap_err().violation().unwrap().kind, Kind::UseBeforeAlloc);
        b.wait(&a.record()?)?;
        b.launch(out.write(), |out| out.iter_mut().for_each(|x| *x *= 3))?;
        assert_eq!(b.copy_to_host(out.read())?, vec![21; LEN]);
        b.launch(out.write(), |out| out.fill(1))?;
        assert_eq!(free.launch(&c).unwrap_err().violation().unwrap().kind, Kind::FreeBeforeUse);
        c.wait(&b.record()?)?;
        let _ = free.launch(&c)?;
        // Freed once: again is refused, as the memory is not live.
        assert!(matches!(free.launch(&c).unwrap_err().graph(), Some(GraphError::NotLive(_))));
    }
    Ok(())
}

#[test]
fn way_4_the_immediate_free() -> Result<()> {
    let device = device();
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
    // The exec and the graph go while the memory lives.
    let buffer = exec.launch(&stream)?.take(out)?;
    drop((exec, graph));
    assert_eq!(stream.copy_to_host(buffer.read())?, vec![9; LEN]);
    stream.free(buffer)?;
    Ok(())
}

#[test]
fn way_5_producer_and_varying_consumers() -> Result<()> {
    let device = device();
    let (stream, other) = (device.stream()?, device.stream()?);
    let (producer, (a, b)) = stream.capture(|s| {
        let pool = device.default_pool();
        let (a, b) = (s.alloc::<u32>(&pool, LEN)?, s.alloc::<u32>(&pool, LEN)?);
        let mut round = 0;
        s.launch((a.write(), b.write()), move |(a, b)| {
            round += 1;
            a.fill(round);
            b.fill(10 * round);
        })?;
        Ok((a.into_alloc_node(), b.into_alloc_node()))
    })?;
    let produce = producer.instantiate(Instantiate { auto_free_on_launch: true })?;
    let result = stream.alloc::<u32>(&device.default_pool(), LEN)?;
    let consume = |from: millpond::MemAllocNode<u32>| -> Result<_> {
        let (graph, ()) = stream.capture(|s| s.copy(from.read(), result.write()))?;
        graph.instantiate(Instantiate::default())
    };
    let consumers = [consume(a)?, consume(b)?];
    drop(producer);
    for round in 1..=6u32 {
        let _ = produce.launch(&stream)?;
        let which = round as usize % 2;
        let _ = consumers[which].launch(&stream)?;
        let expected = if which == 0 { round } else { 10 * round };
        assert_eq!(stream.copy_to_host(result.read())?, vec![expected; LEN]);
    }
    // A consumer on another stream that nothing orders before the relaunch.
    other.wait(&stream.record()?)?;
    other.launch(a.read(), |_| ())?;
    let refused = produce.launch(&stream).unwrap_err();
    let violation = refused.violation().unwrap();
    assert_eq!((violation.kind, violation.earlier.stream), (Kind::FreeBeforeUse, other.id()));
    stream.wait(&other.record()?)?;
    let launch = produce.launch(&stream)?;
    let (a, b) = (launch.take(a)?, launch.take(b)?);
    drop((launch, produce));
    assert_eq!(stream.copy_to_host(a.read())?, vec![7; LEN]);
    assert_eq!(stream.copy_to_host(b.read())?, vec![70; LEN]);
    stream.free(a)?;
    stream.free(b)?;
    Ok(())
}
