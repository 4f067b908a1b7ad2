//! Graphs with symbolic addresses: placed as a whole at each instantiation, each instance at addresses of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use millpond::{
    CaptureMode, Device, Error, Graph, GraphError, GraphExec, HostConfig, Instantiate, Kind, MIB, MemAllocNode, Result,
    Schedule,
};

use crate::made::device;

fn instance(graph: &Graph) -> Result<GraphExec> {
    graph.instantiate(Instantiate::default())
}

fn is_symbolic(error: &Error) -> bool {
    matches!(error.graph(), Some(GraphError::Symbolic(_)))
}

/// A of 2 granules and B of 1, then A freed, then C of 3 while B lives: a place for each when it is made needs 6
/// granules, all together need 4.
fn three(graph: &mut Graph) -> Result<[MemAllocNode<u8>; 3]> {
    let granule = 2 * MIB as usize;
    let a = graph.add_alloc::<u8>(&[], 2 * granule)?;
    let fill = graph.add_memset(&[graph.node_of(a).unwrap()], a.write(), 1)?;
    let b = graph.add_alloc::<u8>(&[fill], granule)?;
    let copy = graph.add_kernel(&[graph.node_of(b).unwrap()], (a.read(), b.write()), |(a, b)| {
        b.copy_from_slice(&a[a.len() - b.len()..]);
    })?;
    let free = graph.add_free(&[copy], a)?;
    let c = graph.add_alloc::<u8>(&[free], 3 * granule)?;
    let upload = graph.add_copy_from_host(&[graph.node_of(c).unwrap()], c.write(), &vec![2; 3 * granule])?;
    let check = graph.add_kernel(&[upload], (b.read(), c.read()), |(b, c)| {
        assert!(b.iter().all(|x| *x == 1) && c.iter().all(|x| *x == 2));
    })?;
    let free = graph.add_free(&[check], b)?;
    graph.add_free(&[free], c)?;
    Ok([a, b, c])
}

#[test]
fn all_allocations_are_placed_together() -> Result<()> {
    let reserved = |graph: fn(&Device) -> Result<Graph>| -> Result<u64> {
        let device = device();
        let stream = device.stream()?;
        let mut graph = graph(&device)?;
        three(&mut graph)?;
        let exec = instance(&graph)?;
        let _ = exec.launch(&stream)?;
        let _ = exec.launch(&stream)?;
        stream.synchronize()?;
        Ok(device.graph_memory().reserved_high_bytes / MIB)
    };
    assert_eq!((reserved(Device::graph)?, reserved(Device::symbolic_graph)?), (12, 8));
    Ok(())
}

/// Where lives overlap the addresses are apart, and each instance has its own.
#[test]
fn instances_have_addresses_of_their_own() -> Result<()> {
    let device = device();
    let mut graph = device.symbolic_graph()?;
    let [a, b, c] = three(&mut graph)?;
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
}

/// Two instances run at once, and what both leave is live at once; with fixed addresses the second is refused.
#[test]
fn instances_run_at_once_and_both_leave_memory() -> Result<()> {
    let device = device();
    let (left, right) = (device.stream()?, device.stream()?);
    let mut graph = device.symbolic_graph()?;
    let out = graph.add_alloc::<u32>(&[], 1000)?;
    let count = Arc::new(AtomicUsize::new(0));
    graph.add_kernel(&[graph.node_of(out).unwrap()], out.write(), move |x| {
        x.fill(count.fetch_add(1, Ordering::Relaxed) as u32);
    })?;
    let (one, two) = (instance(&graph)?, instance(&graph)?);
    for _ in 0..3 {
        let (a, b) = (one.launch(&left)?.take(out)?, two.launch(&right)?.take(out)?);
        assert_ne!(a.address(), b.address());
        assert!(matches!(one.launch(&left).unwrap_err().graph(), Some(GraphError::Unfreed(_))));
        // Nothing orders the two: each is its own allocation.
        assert_eq!(right.launch(a.read(), |_| ()).unwrap_err().violation().unwrap().kind, Kind::UseBeforeAlloc);
        let (x, y) = (left.copy_to_host(a.read())?, right.copy_to_host(b.read())?);
        assert!(x.iter().all(|it| *it == x[0]) && y.iter().all(|it| *it == y[0]) && x[0] != y[0]);
        left.free_address(a.into_address())?;
        right.free(b)?;
    }
    Ok(())
}

/// Its names mean nothing where no instance is meant; each refusal says what to do, and changes nothing.
#[test]
fn names_are_refused_where_no_instance_is_meant() -> Result<()> {
    let device = device();
    let stream = device.stream()?;
    let mut graph = device.symbolic_graph()?;
    let out = graph.add_alloc::<u32>(&[], 16)?;
    let write = graph.add_memset(&[graph.node_of(out).unwrap()], out.write(), 1)?;
    let exec = instance(&graph)?;
    let buffer = exec.launch(&stream)?.take(out)?;
    let refused = stream.launch(out.read(), |_| ()).unwrap_err();
    assert!(is_symbolic(&refused) && refused.to_string().contains("Launch::take"), "{refused}");
    let mut other = device.graph()?;
    assert!(is_symbolic(&other.add_memset(&[], out.write(), 1).unwrap_err()));
    assert!(is_symbolic(&other.add_free(&[], out).unwrap_err()));
    let (captured, ()) = stream.capture(|s| {
        assert!(is_symbolic(&s.launch(out.read(), |_| ()).unwrap_err()));
        assert!(is_symbolic(&s.free_alloc_node(out).unwrap_err()));
        s.launch(buffer.write(), |x| x.fill(3))
    })?;
    assert_eq!((other.len(), captured.len()), (0, 1));
    // The buffer itself is memory like any other.
    let _ = instance(&captured)?.launch(&stream)?;
    assert_eq!(stream.copy_to_host(buffer.read())?, [3; 16]);
    stream.free(buffer)?;
    let into = stream.capture_to(&mut graph, &[write], CaptureMode::Global, |_| Ok(()));
    assert!(matches!(into.unwrap_err().graph(), Some(GraphError::SymbolicCapture(_))));
    Ok(())
}

/// A child with symbolic addresses, in a graph with fixed ones: its memory is named there, and where it leaves none
/// live it may be in there again and again.
#[test]
fn a_symbolic_child_has_addresses_in_its_parent() -> Result<()> {
    let device = device();
    let stream = device.stream()?;
    let result = stream.alloc::<u32>(&device.default_pool(), 100)?;
    let mut child = device.symbolic_graph()?;
    let x = child.add_alloc::<u32>(&[], 100)?;
    child.add_kernel(&[child.node_of(x).unwrap()], x.write(), |x| x.fill(4))?;
    let mut parent = device.graph()?;
    let y = parent.add_alloc::<u32>(&[], 100)?;
    let node = parent.add_child(&[parent.node_of(y).unwrap()], &child)?;
    let copy = parent.add_copy(&[node], x.read(), y.write())?;
    let add = parent.add_kernel(&[copy], (y.write(), x.read(), result.write()), |(y, x, r)| {
        assert_eq!(x, y);
        r.iter_mut().zip(y).for_each(|(r, y)| *r = *y + 1);
    })?;
    let free = parent.add_free(&[add], x)?;
    let end = parent.add_free(&[free], y)?;
    let exec = instance(&parent)?;
    for _ in 0..3 {
        stream.memset(result.write(), 0)?;
        let _ = exec.launch(&stream)?;
        assert_eq!(stream.copy_to_host(result.read())?, [5; 100]);
    }
    // Without the child the name has no address.
    parent.remove_node(free)?;
    parent.remove_node(node)?;
    parent.add_edge(parent.node_of(y).unwrap(), copy)?;
    parent.add_edge(add, end)?;
    assert!(is_symbolic(&instance(&parent).unwrap_err()));
    // Twice in a graph: with something left live no, else yes.
    let mut twice = device.graph()?;
    let first = twice.add_child(&[], &child)?;
    twice.add_child(&[first], &child)?;
    assert!(matches!(instance(&twice).unwrap_err().graph(), Some(GraphError::ChildTwice(_))));
    let last = *child.nodes().last().unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let counting = Arc::clone(&count);
    let seen = child.add_kernel(&[last], x.read(), move |x| {
        assert!(x.iter().all(|x| *x == 4));
        counting.fetch_add(1, Ordering::Relaxed);
    })?;
    child.add_free(&[seen], x)?;
    let mut twice = device.symbolic_graph()?;
    twice.add_child(&[], &child)?;
    twice.add_child(&[], &child)?;
    let _ = instance(&twice)?.launch(&stream)?;
    stream.synchronize()?;
    assert_eq!(count.load(Ordering::Relaxed), 2);
    Ok(())
}

/// An update keeps the addresses, and what is live.
#[test]
fn an_update_keeps_addresses_and_live_memory() -> Result<()> {
    let device = device();
    let stream = device.stream()?;
    let build = |value: u32| -> Result<(Graph, MemAllocNode<u32>)> {
        let mut graph = device.symbolic_graph()?;
        let scratch = graph.add_alloc::<u32>(&[], 1 << 20)?;
        let out = graph.add_alloc::<u32>(&[graph.node_of(scratch).unwrap()], 1000)?;
        let write =
            graph.add_kernel(&[graph.node_of(out).unwrap()], (scratch.write(), out.write()), move |(s, x)| {
                s.fill(value);
                x.copy_from_slice(&s[..1000]);
            })?;
        graph.add_free(&[write], scratch)?;
        Ok((graph, out))
    };
    let ((one, first), (two, second)) = (build(1)?, build(2)?);
    let mut exec = instance(&one)?;
    let buffer = exec.launch(&stream)?.take(first)?;
    exec.update(&two)?;
    assert_eq!(exec.address_of(second), Some(buffer.address()));
    assert!(matches!(exec.launch(&stream).unwrap_err().graph(), Some(GraphError::Unfreed(_))));
    assert_eq!(stream.copy_to_host(buffer.read())?, [1; 1000]);
    stream.free(buffer)?;
    let buffer = exec.launch(&stream)?.take(second)?;
    assert_eq!(stream.copy_to_host(buffer.read())?, [2; 1000]);
    stream.free(buffer)?;
    Ok(())
}

/// Faults are found as in any graph, before anything is placed.
#[test]
fn wrong_orders_are_refused_as_with_fixed_addresses() -> Result<()> {
    let device = device();
    let mut graph = device.symbolic_graph()?;
    let x = graph.add_alloc::<u32>(&[], 16)?;
    graph.add_kernel(&[], x.write(), |_| ())?;
    let refused = instance(&graph).unwrap_err();
    assert!(refused.to_string().contains("help: add an edge from node 0 to node 1"), "{refused}");
    Ok(())
}

/// Two thousand lives in chains that meet: placed, run under a seeded schedule, and no byte is lost.
#[test]
fn many_lives_are_placed_and_keep_their_bytes() -> Result<()> {
    let device = Device::host(HostConfig { schedule: Schedule::Seeded(7), ..HostConfig::default() })?;
    let stream = device.stream()?;
    let mut graph = device.symbolic_graph()?;
    let mut tails: Vec<Vec<millpond::GraphNode>> = vec![Vec::new(); 4];
    for at in 0..400usize {
        let lane = at % 4;
        let len = 64 + (at * 977) % 5000;
        let x = graph.add_alloc::<u64>(&tails[lane], len)?;
        let mark = at as u64 + 1;
        let write = graph.add_kernel(&[graph.node_of(x).unwrap()], x.write(), move |x| x.fill(mark))?;
        let mut after = vec![write];
        if at % 7 == 0 {
            after.extend(tails[(lane + 1) % 4].first().filter(|it| **it != write));
        }
        let read = graph.add_kernel(&after, x.read(), move |x| assert!(x.iter().all(|it| *it == mark)))?;
        tails[lane] = vec![graph.add_free(&[read], x)?];
    }
    let exec = instance(&graph)?;
    for _ in 0..2 {
        let _ = exec.launch(&stream)?;
    }
    stream.synchronize()
}
