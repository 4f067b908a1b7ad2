//! Graphs with symbolic addresses: placed as a whole at each instantiation, with different addresses for each instance.

use millpond::check::Kind;
use millpond::error::Invalid;
use millpond::graph::{CaptureMode, Graph, GraphExec, Instantiate, MemAllocNode};
use millpond::{Buffer, Device, Error, MIB, Result};

use super::made::{each, each_seed, expect, is_kind};
use crate::common::visit;

fn instance(graph: &Graph) -> Result<GraphExec> {
    graph.instantiate(Instantiate::default())
}

fn is_symbolic(error: &Error) -> bool {
    error.violation().is_some_and(|it| it.sentence.contains("are placed at each instantiation"))
}

const GRANULE: usize = 2 * MIB as usize;

/// A of 2 granules and B of 1, then A freed, then C of 3 while B is live. If each is placed when it is made, that needs
/// 6 granules; placed together, 4. At the end B is filled with 1, and C with 2. They are copied to `sinks`.
fn three(graph: &mut Graph, sinks: &[Buffer<u8>; 2]) -> Result<[MemAllocNode<u8>; 3]> {
    let a = graph.add_alloc::<u8>(&[], 2 * GRANULE)?;
    let fill = graph.add_memset(&[graph.node_of(a).unwrap()], a.write(), 1)?;
    let b = graph.add_alloc::<u8>(&[fill], GRANULE)?;
    let fill = graph.add_memset(&[graph.node_of(b).unwrap()], b.write(), 1)?;
    let free = graph.add_free(&[fill], a)?;
    let c = graph.add_alloc::<u8>(&[free], 3 * GRANULE)?;
    let upload = graph.add_copy_from_host(&[graph.node_of(c).unwrap()], c.write(), &vec![2; 3 * GRANULE])?;
    let copy = graph.add_copy(&[upload], b.read(), sinks[0].write())?;
    let free = graph.add_free(&[copy], b)?;
    let copy = graph.add_copy(&[free], c.read(), sinks[1].write())?;
    graph.add_free(&[copy], c)?;
    Ok([a, b, c])
}

fn sinks(stream: &millpond::Stream, device: &Device) -> Result<[Buffer<u8>; 2]> {
    let pool = device.default_pool();
    Ok([stream.alloc(&pool, GRANULE)?, stream.alloc(&pool, 3 * GRANULE)?])
}

#[test]
fn all_allocations_are_placed_together() {
    each(|on| {
        let reserved = |graph: fn(&Device) -> Result<Graph>| -> Result<u64> {
            let device = &on.another().device;
            let stream = device.stream()?;
            let sinks = sinks(&stream, device)?;
            let mut graph = graph(device)?;
            three(&mut graph, &sinks)?;
            let exec = instance(&graph)?;
            let _ = exec.launch(&stream)?;
            let _ = exec.launch(&stream)?;
            assert!(stream.copy_to_host(sinks[0].read())?.iter().all(|x| *x == 1));
            assert!(stream.copy_to_host(sinks[1].read())?.iter().all(|x| *x == 2));
            Ok(device.graph_memory().reserved_high_bytes / MIB)
        };
        assert_eq!((reserved(Device::graph)?, reserved(Device::symbolic_graph)?), (12, 8));
        Ok(())
    });
}

/// Allocations with overlapping lifetimes have disjoint addresses, and each instance has its own.
#[test]
fn instances_have_addresses_of_their_own() {
    each(|on| {
        let device = &on.device;
        let mut graph = device.symbolic_graph()?;
        let [a, b, c] = three(&mut graph, &sinks(&on.stream(), device)?)?;
        assert_eq!([a.address(), b.address(), c.address()], [0; 3]);
        let execs = [instance(&graph)?, instance(&graph)?];
        let mut ranges = Vec::new();
        for exec in &execs {
            let [a, b, c] =
                [a, b, c].map(|it| exec.address_of(it).unwrap()..exec.address_of(it).unwrap() + it.len() as u64);
            let apart = |x: &std::ops::Range<u64>, y: &std::ops::Range<u64>| x.end <= y.start || y.end <= x.start;
            assert!(apart(&a, &b) && apart(&b, &c) && !apart(&a, &c), "{a:x?} {b:x?} {c:x?}");
            ranges.push([a, b, c]);
        }
        let [first, second] = &ranges[..] else { unreachable!() };
        assert!(first.iter().all(|x| second.iter().all(|y| x.end <= y.start || y.end <= x.start)));
        let stranger = device.graph()?.add_alloc::<u8>(&[], 1)?;
        assert_eq!(execs[0].address_of(stranger), None);
        Ok(())
    });
}

/// Two instances run at once, and the outputs of both are live at once. With fixed addresses the second is refused.
#[test]
fn instances_run_at_once_and_both_leave_memory() {
    each(|on| {
        let device = &on.device;
        let (left, right) = (device.stream()?, device.stream()?);
        let mut graph = device.symbolic_graph()?;
        let out = graph.add_alloc::<u32>(&[], 1000)?;
        graph.add_memset(&[graph.node_of(out).unwrap()], out.write(), 5)?;
        let (one, two) = (instance(&graph)?, instance(&graph)?);
        for _ in 0..3 {
            let (a, b) = (one.launch(&left)?.take(out)?, two.launch(&right)?.take(out)?);
            assert_ne!(a.address(), b.address());
            assert!(is_kind(&one.launch(&left).unwrap_err(), Kind::UnfreedLaunch));
            // The two are not ordered: each has its own allocation.
            assert_eq!(visit(&right, a.read()).unwrap_err().violation().unwrap().kind, Kind::UseBeforeAlloc);
            left.memset(a.write(), 1)?;
            expect(&right, b.read(), 5);
            right.memset(b.write(), 2)?;
            expect(&left, a.read(), 1);
            expect(&right, b.read(), 2);
            left.free_address(a.into_address())?;
            right.free(b)?;
        }
        Ok(())
    });
}

/// Its names are refused if no instance is meant. Each refusal gives advice, and changes nothing.
#[test]
fn names_are_refused_where_no_instance_is_meant() {
    each(|on| {
        let device = &on.device;
        let stream = device.stream()?;
        let mut graph = device.symbolic_graph()?;
        let out = graph.add_alloc::<u32>(&[], 16)?;
        let write = graph.add_memset(&[graph.node_of(out).unwrap()], out.write(), 1)?;
        let exec = instance(&graph)?;
        let buffer = exec.launch(&stream)?.take(out)?;
        let refused = visit(&stream, out.read()).unwrap_err();
        assert!(
            is_symbolic(&refused) && refused.report().to_string().contains("take the memory from a launch"),
            "{refused}"
        );
        let mut other = device.graph()?;
        assert!(is_symbolic(&other.add_memset(&[], out.write(), 1).unwrap_err()));
        assert!(is_symbolic(&other.add_free(&[], out).unwrap_err()));
        let (captured, ()) = stream.capture(|s| {
            assert!(is_symbolic(&visit(s, out.read()).unwrap_err()));
            assert!(is_symbolic(&s.free_alloc_node(out).unwrap_err()));
            s.memset(buffer.write(), 3)
        })?;
        assert_eq!((other.len(), captured.len()), (0, 1));
        // The buffer itself is memory like any other.
        let _ = instance(&captured)?.launch(&stream)?;
        expect(&stream, buffer.read(), 3);
        stream.free(buffer)?;
        let into = stream.capture_to(&mut graph, &[write], CaptureMode::Global, |_| Ok(()));
        assert!(matches!(into.unwrap_err().invalid(), Some(Invalid::SymbolicCapture(_))));
        Ok(())
    });
}

/// A child with symbolic addresses in a graph with fixed ones: the parent can name its memory. If it leaves no memory
/// live, the parent may contain it several times.
#[test]
fn a_symbolic_child_has_addresses_in_its_parent() {
    each(|on| {
        let device = &on.device;
        let stream = device.stream()?;
        let result = stream.alloc::<u32>(&device.default_pool(), 100)?;
        let mut child = device.symbolic_graph()?;
        let x = child.add_alloc::<u32>(&[], 100)?;
        child.add_memset(&[child.node_of(x).unwrap()], x.write(), 4)?;
        let mut parent = device.graph()?;
        let y = parent.add_alloc::<u32>(&[], 100)?;
        let node = parent.add_child(&[parent.node_of(y).unwrap()], &child)?;
        let copy = parent.add_copy(&[node], x.read(), y.write())?;
        let out = parent.add_copy(&[copy], y.read(), result.write())?;
        let free = parent.add_free(&[out], x)?;
        let end = parent.add_free(&[free], y)?;
        let exec = instance(&parent)?;
        for _ in 0..3 {
            stream.memset(result.write(), 0)?;
            let _ = exec.launch(&stream)?;
            expect(&stream, result.read(), 4);
        }
        // Without the child the name has no address.
        parent.remove_node(free)?;
        parent.remove_node(node)?;
        assert!(is_symbolic(&parent.add_memset(&[copy], x.write(), 1).unwrap_err()));
        parent.add_edge(parent.node_of(y).unwrap(), copy)?;
        parent.add_edge(out, end)?;
        assert!(is_kind(&instance(&parent).unwrap_err(), Kind::GraphRefused));
        // Twice in one graph: not if it leaves memory live, otherwise yes.
        let mut twice = device.graph()?;
        let first = twice.add_child(&[], &child)?;
        twice.add_child(&[first], &child)?;
        assert!(is_kind(&instance(&twice).unwrap_err(), Kind::GraphRefused));
        let last = *child.nodes().last().unwrap();
        let early = stream.alloc::<u32>(&device.default_pool(), 100)?;
        let seen = child.add_copy(&[last], x.read(), result.write())?;
        child.add_free(&[seen], x)?;
        let mut twice = device.symbolic_graph()?;
        let first = twice.add_child(&[], &child)?;
        let keep = twice.add_copy(&[first], result.read(), early.write())?;
        let wipe = twice.add_memset(&[keep], result.write(), 0)?;
        twice.add_child(&[wipe], &child)?;
        let _ = instance(&twice)?.launch(&stream)?;
        expect(&stream, early.read(), 4);
        expect(&stream, result.read(), 4);
        Ok(())
    });
}

/// An update keeps the addresses, and the live memory.
#[test]
fn an_update_keeps_addresses_and_live_memory() {
    each(|on| {
        let device = &on.device;
        let stream = device.stream()?;
        let build = |value: u8| -> Result<(Graph, MemAllocNode<u32>)> {
            let mut graph = device.symbolic_graph()?;
            let scratch = graph.add_alloc::<u32>(&[], 1 << 20)?;
            let out = graph.add_alloc::<u32>(&[graph.node_of(scratch).unwrap()], 1000)?;
            let first = graph.add_memset(&[graph.node_of(out).unwrap()], scratch.write(), 9)?;
            let write = graph.add_memset(&[first], out.write(), value)?;
            graph.add_free(&[write], scratch)?;
            Ok((graph, out))
        };
        let ((one, first), (two, second)) = (build(1)?, build(2)?);
        let exec = instance(&one)?;
        let buffer = exec.launch(&stream)?.take(first)?;
        exec.update(&two)?;
        assert_eq!(exec.address_of(second), Some(buffer.address()));
        assert!(is_kind(&exec.launch(&stream).unwrap_err(), Kind::UnfreedLaunch));
        expect(&stream, buffer.read(), 1);
        stream.free(buffer)?;
        let buffer = exec.launch(&stream)?.take(second)?;
        expect(&stream, buffer.read(), 2);
        stream.free(buffer)?;
        Ok(())
    });
}

/// Faults are found as in any graph, before anything is placed.
#[test]
fn wrong_orders_are_refused_as_with_fixed_addresses() {
    each(|on| {
        let device = &on.device;
        let mut graph = device.symbolic_graph()?;
        let x = graph.add_alloc::<u32>(&[], 16)?;
        graph.add_memset(&[], x.write(), 0)?;
        let refused = instance(&graph).unwrap_err();
        assert!(refused.report().to_string().contains("help: add an edge from mem alloc node 0 ("), "{refused}");
        Ok(())
    });
}

/// Two thousand allocations in chains that meet: placed, run under a seeded schedule, and no byte is lost.
#[test]
fn many_lives_are_placed_and_keep_their_bytes() {
    each_seed(7..=7, many_lives);
    each(|on| many_lives(&on.device));
}

fn many_lives(device: &Device) -> Result<()> {
    let stream = device.stream()?;
    let mut graph = device.symbolic_graph()?;
    let (pool, mut sinks) = (device.default_pool(), Vec::new());
    let mut tails: Vec<Vec<millpond::graph::GraphNode>> = vec![Vec::new(); 4];
    for at in 0..400usize {
        let lane = at % 4;
        let len = 64 + (at * 977) % 5000;
        let x = graph.add_alloc::<u32>(&tails[lane], len)?;
        let (mark, sink) = ((at % 255) as u8 + 1, stream.alloc::<u32>(&pool, len)?);
        let write = graph.add_memset(&[graph.node_of(x).unwrap()], x.write(), mark)?;
        let mut after = vec![write];
        if at % 7 == 0 {
            after.extend(tails[(lane + 1) % 4].first().filter(|it| **it != write));
        }
        let read = graph.add_copy(&after, x.read(), sink.write())?;
        tails[lane] = vec![graph.add_free(&[read], x)?];
        sinks.push((sink, mark));
    }
    let exec = instance(&graph)?;
    for _ in 0..2 {
        sinks.iter().try_for_each(|(sink, _)| stream.memset(sink.write(), 0))?;
        let _ = exec.launch(&stream)?;
        sinks.iter().for_each(|(sink, mark)| expect(&stream, sink.read(), *mark));
    }
    Ok(())
}
