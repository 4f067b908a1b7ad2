//! The used and reserved bytes of graphs with one allocation each, program by program.

use millpond::graph::{Graph, GraphExec, Instantiate, MemAllocNode};
use millpond::{Device, MIB, Result, Stream};

use super::made::each;
use crate::common::Subject;

/// The bytes of one unit.
const UNIT: u64 = 8 * MIB;

fn device(on: &Subject) -> (&Device, Stream) {
    (&on.device, on.stream())
}

/// alloc -> write -> free, or without the free.
fn one(device: &Device, units: u64, has_free: bool) -> Result<(Graph, MemAllocNode<u8>)> {
    let mut graph = device.graph()?;
    let x = graph.add_alloc::<u8>(&[], (units * UNIT) as usize)?;
    let write = graph.add_memset(&[graph.node_of(x).unwrap()], x.write(), 1)?;
    if has_free {
        graph.add_free(&[write], x)?;
    }
    Ok((graph, x))
}

fn exec(device: &Device, units: u64, has_free: bool) -> Result<(GraphExec, MemAllocNode<u8>)> {
    let (graph, x) = one(device, units, has_free)?;
    Ok((graph.instantiate(Instantiate::default())?, x))
}

/// Returns the used and reserved memory, in units.
fn now(device: &Device) -> (u64, u64) {
    let memory = device.graph_memory();
    assert!(memory.used_bytes <= memory.reserved_bytes && memory.reserved_bytes <= memory.reserved_high_bytes);
    (memory.used_bytes / UNIT, memory.reserved_bytes / UNIT)
}

#[test]
fn nothing_is_used_before_the_first_launch() {
    each(|on| {
        let (device, stream) = device(on);
        let (exec, _) = exec(device, 1, true)?;
        assert_eq!(now(device), (0, 0));
        let _ = exec.launch(&stream)?;
        assert_eq!(now(device), (1, 1));
        Ok(())
    });
}

#[test]
fn graphs_of_one_size_in_one_stream_use_that_of_one() {
    each(|on| {
        let (device, stream) = device(on);
        let execs: Vec<_> = (0..8).map(|_| exec(device, 2, true).unwrap()).collect();
        for (at, (_, x)) in execs.iter().enumerate() {
            assert!(execs[..at].iter().all(|(_, other)| other.address() != x.address()));
        }
        for _ in 0..3 {
            for (exec, _) in &execs {
                let _ = exec.launch(&stream)?;
                assert_eq!(now(device), (2, 2));
            }
        }
        Ok(())
    });
}

#[test]
fn graphs_of_several_sizes_in_one_stream_use_that_of_the_largest() {
    each(|on| {
        let (device, stream) = device(on);
        for (units, most) in [(2, 2), (4, 4), (1, 4), (3, 4)] {
            let _ = exec(device, units, true)?.0.launch(&stream)?;
            assert_eq!(device.graph_memory().reserved_high_bytes / UNIT, most);
        }
        Ok(())
    });
}

#[test]
fn a_launch_again_and_again_uses_no_more() {
    each(|on| {
        let (device, stream) = device(on);
        let (exec, _) = exec(device, 2, true)?;
        for _ in 0..10 {
            let _ = exec.launch(&stream)?;
        }
        assert_eq!((now(device), device.graph_memory().used_high_bytes), ((2, 2), 2 * UNIT));
        stream.synchronize()?;
        device.trim_graph_memory()?;
        assert_eq!(now(device), (0, 0), "also while the exec is there");
        Ok(())
    });
}

#[test]
fn what_is_unfreed_keeps_its_memory_beside_what_graphs_share() {
    each(|on| {
        let (device, stream) = device(on);
        let orphan = exec(device, 1, false)?;
        let buffer = orphan.0.launch(&stream)?.take(orphan.1)?;
        // Kept, because mappings of dropped graphs are removed at some later time.
        let whole: Vec<_> = (0..3).map(|_| exec(device, 1, true).unwrap()).collect();
        whole.iter().try_for_each(|(exec, _)| exec.launch(&stream).map(drop))?;
        assert_eq!(now(device), (2, 2));
        stream.synchronize()?;
        device.trim_graph_memory()?;
        assert_eq!(now(device), (1, 1));
        stream.free(buffer)?;
        Ok(())
    });
}

#[test]
fn graphs_that_follow_each_other_on_several_streams_use_that_of_one() {
    each(|on| {
        let (device, _) = device(on);
        for _ in 0..4 {
            let stream = device.stream()?;
            let _ = exec(device, 1, true)?.0.launch(&stream)?;
            stream.synchronize()?;
        }
        assert_eq!(device.graph_memory().reserved_high_bytes, UNIT);
        Ok(())
    });
}

#[test]
fn graphs_that_run_at_once_use_the_sum() {
    each(|on| {
        let (device, _) = device(on);
        let mut kept = Vec::new();
        for running in 1..=7 {
            let stream = device.stream()?;
            let (exec, _) = exec(device, 1, true)?;
            let busy = on.hold(&stream, ());
            let _ = exec.launch(&stream)?;
            assert_eq!(now(device), (running, running));
            kept.push((busy, exec));
        }
        let _execs: Vec<_> = kept.into_iter().map(|(_busy, exec)| exec).collect();
        device.synchronize()
    });
}

/// Used and reserved stay when memory is freed, and fall with a trim, even while the instances exist.
#[test]
fn unfreed_memory_of_several_graphs_adds_up_and_is_trimmed_once_freed() {
    each(|on| {
        let (device, stream) = device(on);
        let mut live = Vec::new();
        for count in 1..=8 {
            let (exec, x) = exec(device, 1, false)?;
            live.push((exec.launch(&stream)?.take(x)?, exec));
            assert_eq!(now(device), (count, count));
        }
        stream.synchronize()?;
        device.trim_graph_memory()?;
        assert_eq!(now(device), (8, 8), "trim takes nothing that is live");
        let mut execs = Vec::new();
        for (buffer, exec) in live {
            device.free(buffer).map_err(millpond::Error::from)?;
            execs.push(exec);
        }
        assert_eq!(now(device), (8, 8));
        device.trim_graph_memory()?;
        assert_eq!(now(device), (0, 0));
        assert_eq!(device.graph_memory().used_high_bytes / UNIT, 8);
        Ok(())
    });
}

#[test]
fn auto_free_on_launch_never_grows_with_trims_in_between() {
    each(|on| {
        let (device, stream) = device(on);
        let (graph, x) = one(device, 2, false)?;
        let exec = graph.instantiate(Instantiate::default().auto_free_on_launch(true))?;
        for _ in 0..20 {
            let _ = exec.launch(&stream)?;
            stream.synchronize()?;
            device.trim_graph_memory()?;
            assert_eq!(now(device), (2, 2));
        }
        stream.free_address(x.address())
    });
}

/// Freed by another graph, or after its own graph was dropped: a trim takes all of it.
#[test]
fn memory_is_given_back_whoever_freed_it() {
    each(|on| {
        let (device, stream) = device(on);
        let (owner, x) = one(device, 1, false)?;
        let mut freeing = device.graph()?;
        freeing.add_free(&[], x)?;
        let (make, free) = (owner.instantiate(Instantiate::default())?, freeing.instantiate(Instantiate::default())?);
        let _ = make.launch(&stream)?;
        let _ = free.launch(&stream)?;
        stream.synchronize()?;
        device.trim_graph_memory()?;
        assert_eq!(now(device), (0, 0));
        let buffer = make.launch(&stream)?.take(x)?;
        drop((owner, freeing, make, free));
        stream.synchronize()?;
        device.trim_graph_memory()?;
        assert_eq!(now(device), (1, 1));
        device.free(buffer).map_err(millpond::Error::from)?;
        device.trim_graph_memory()?;
        assert_eq!(now(device), (0, 0));
        Ok(())
    });
}

/// The pool that is named in a capture is not used: the memory is the graph's.
#[test]
fn a_capture_takes_nothing_from_the_pool() {
    each(|on| {
        let (device, stream) = device(on);
        let pool = device.pool(millpond::PoolConfig::default())?;
        let (graph, ()) = stream.capture(|s| {
            let x = s.alloc::<u8>(&pool, UNIT as usize)?;
            s.memset(x.write(), 1)
        })?;
        let exec = graph.instantiate(Instantiate::default())?;
        let _ = exec.launch(&stream)?;
        let pool = pool.statistics();
        assert_eq!((pool.used_bytes, pool.reserved_bytes, now(device)), (0, 0, (1, 1)));
        Ok(())
    });
}
