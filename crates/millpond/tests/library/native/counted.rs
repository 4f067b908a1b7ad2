//! The library calls that graphs cost, as counted by `fakecuda`: one more call shows here.

use millpond::graph::{Graph, GraphNode, Instantiate, MemAllocNode};
use millpond::{Buffer, Device, MIB, Result, Stream};

use super::{Subject, expect, subject};

/// The counted functions: all that memory, graphs and their launches could need.
const NAMES: [&str; 18] = [
    "cuMemAddressReserve",
    "cuMemCreate",
    "cuMemMap",
    "cuMemSetAccess",
    "cuMemUnmap",
    "cuMemRelease",
    "cuGraphCreate",
    "cuGraphAddEmptyNode",
    "cuGraphAddMemsetNode",
    "cuGraphInstantiateWithFlags",
    "cuGraphDestroy",
    "cuGraphUpload",
    "cuGraphLaunch",
    "cuGraphExecDestroy",
    "cuEventRecord",
    "cuEventQuery",
    "cuStreamWaitEvent",
    "cuCtxGetCurrent",
];

/// Returns a device that counts its calls, or `None` on a GPU.
fn counting() -> Option<Subject> {
    if std::env::var("MILLPOND_TEST_DEVICE").is_ok_and(|device| !matches!(device.as_str(), "" | "fake")) {
        eprintln!("skipped: only fakecuda counts calls");
        return None;
    }
    subject()
}

/// Runs `act`. Returns its library calls as `cuMemMap 2, cuGraphLaunch 1`.
fn calls<R>(act: impl FnOnce() -> Result<R>) -> Result<(R, String)> {
    let hooks = fakecuda::Hooks::load();
    let before = NAMES.map(|name| hooks.calls(name));
    let done = act()?;
    let made = NAMES.iter().zip(before).map(|(name, before)| (name, hooks.calls(name) - before));
    let made: Vec<String> = made.filter(|(_, made)| *made > 0).map(|(name, made)| format!("{name} {made}")).collect();
    Ok((done, made.join(", ")))
}

/// Makes a graph of fills of 4 MiB, one after the other, each of whose memory is live in the next.
fn chain(device: &Device, length: usize) -> Result<Graph> {
    let mut graph = device.graph()?;
    let (mut last, mut before) = (Vec::new(), None);
    for _ in 0..length {
        let memory = graph.add_alloc::<u8>(&last, 4 * MIB as usize)?;
        let alloc = graph.node_of(memory).expect("its own");
        last = vec![graph.add_memset(&[alloc], memory.write(), 0)?];
        if let Some(before) = before.replace(memory) {
            last = vec![graph.add_free(&last, before)?];
        }
    }
    graph.add_free(&last, before.expect("there is one"))?;
    Ok(graph)
}

#[test]
fn a_graph_like_one_before_maps_nothing() -> Result<()> {
    let Some(subject) = counting() else { return Ok(()) };
    let (device, stream) = (&subject.device, subject.device.non_blocking_stream()?);
    for length in [1usize, 10, 100] {
        let mut last = None;
        for round in 0..4 {
            let (graph, built) = calls(|| chain(device, length))?;
            let (exec, made) = calls(|| graph.instantiate(Instantiate::default()))?;
            let (_, launched) = calls(|| exec.launch(&stream).map(drop))?;
            // The first graph takes chunks, the second has other addresses. From then on both are reused.
            if round >= 2 {
                assert_eq!((&*built, &*made), ("", ""));
                assert_eq!(
                    launched,
                    format!(
                        "cuGraphCreate 1, cuGraphAddMemsetNode {length}, cuGraphInstantiateWithFlags 1, \
                         cuGraphDestroy 1, cuGraphLaunch 1, cuCtxGetCurrent 2"
                    )
                );
            }
            stream.synchronize()?;
            let (_, again) = calls(|| exec.launch(&stream).map(drop))?;
            assert_eq!(again, "cuGraphLaunch 1, cuCtxGetCurrent 1");
            stream.synchronize()?;
            last = Some(exec);
        }
        drop(last);
    }
    Ok(())
}

/// Makes a graph with outputs of 64 KiB, each filled with a value after the one before.
fn producer(device: &Device, values: &[u8]) -> Result<(Graph, Vec<MemAllocNode<u8>>)> {
    let mut graph = device.graph()?;
    let (mut last, mut outs): (Vec<GraphNode>, _) = (Vec::new(), Vec::new());
    for value in values {
        let memory = graph.add_alloc::<u8>(&last, 64 << 10)?;
        let alloc = graph.node_of(memory).expect("its own");
        last = vec![graph.add_memset(&[alloc], memory.write(), *value)?];
        outs.push(memory);
    }
    Ok((graph, outs))
}

/// Launches it twice, and asserts that each output has its value. Returns the calls.
fn run(stream: &Stream, graph: &Graph, outs: &[MemAllocNode<u8>], values: &[u8]) -> Result<String> {
    let exec = graph.instantiate(Instantiate::default().auto_free_on_launch(true))?;
    let (_, first) = calls(|| exec.launch(stream).map(drop))?;
    let (launch, second) = calls(|| exec.launch(stream))?;
    assert_eq!(second, "cuGraphLaunch 1, cuCtxGetCurrent 1", "whatever it leaves live");
    for (out, value) in outs.iter().zip(values) {
        let found: Buffer<u8> = launch.take(*out)?;
        expect(stream, &found, *value);
        stream.free(found).map_err(|refused| refused.error)?;
    }
    Ok(first)
}

fn fills_in(calls: &str) -> Option<&str> {
    calls.split(", ").find_map(|call| call.strip_prefix("cuGraphAddMemsetNode "))
}

#[test]
fn small_fills_beside_each_other_are_one() -> Result<()> {
    let Some(subject) = counting() else { return Ok(()) };
    let (device, stream) = (&subject.device, subject.device.stream()?);
    for (values, nodes) in
        [([7; 16].as_slice(), "1"), (&[1, 1, 2, 2, 2, 1], "3"), (&[1, 2, 1, 2], "4"), (&[3; 65], "2"), (&[9], "1")]
    {
        let (graph, outs) = producer(device, values)?;
        assert_eq!(fills_in(&run(&stream, &graph, &outs, values)?), Some(nodes), "{values:?}");
    }
    Ok(())
}

#[test]
fn fills_that_something_comes_between_stay_apart() -> Result<()> {
    let Some(subject) = counting() else { return Ok(()) };
    let (device, stream) = (&subject.device, subject.device.stream()?);
    let source = stream.alloc::<u8>(&device.default_pool(), 512)?;
    stream.memset(source.write(), 5)?;
    let mut graph = device.graph()?;
    let outs: Vec<_> = (0..4).map(|_| graph.add_alloc::<u8>(&[], 512)).collect::<Result<_>>()?;
    let allocs: Vec<GraphNode> = outs.iter().map(|out| graph.node_of(*out).expect("its own")).collect();
    // A copy into the first output after its fill. The second fill comes after both, and the third after two fills.
    let first = graph.add_memset(&[allocs[0]], outs[0].write(), 1)?;
    let copied = graph.add_copy(&[first], source.read(), outs[0].write())?;
    let second = graph.add_memset(&[first, copied, allocs[1]], outs[1].write(), 1)?;
    let fourth = graph.add_memset(&[allocs[3]], outs[3].write(), 1)?;
    graph.add_memset(&[second, fourth, allocs[2]], outs[2].write(), 1)?;
    let first = run(&stream, &graph, &outs, &[5, 1, 1, 1])?;
    assert_eq!(fills_in(&first), Some("4"));
    Ok(())
}

#[test]
fn what_comes_after_the_first_of_joined_fills_finds_it() -> Result<()> {
    let Some(subject) = counting() else { return Ok(()) };
    let (device, stream) = (&subject.device, subject.device.stream()?);
    let to: Vec<Buffer<u8>> = (0..2).map(|_| stream.alloc(&device.default_pool(), 512)).collect::<Result<_>>()?;
    for _ in 0..8 {
        to.iter().try_for_each(|to| stream.memset(to.write(), 1))?;
        let mut graph = device.graph()?;
        let (x, y) = (graph.add_alloc::<u8>(&[], 512)?, graph.add_alloc::<u8>(&[], 512)?);
        let (at_x, at_y) = (graph.node_of(x).expect("its own"), graph.node_of(y).expect("its own"));
        let fill = graph.add_memset(&[at_x, at_y], x.write(), 6)?;
        let copy_x = graph.add_copy(&[fill], x.read(), to[0].write())?;
        let both = graph.add_memset(&[fill], y.write(), 6)?;
        let copy_y = graph.add_copy(&[both], y.read(), to[1].write())?;
        graph.add_free(&[copy_x], x)?;
        graph.add_free(&[copy_y], y)?;
        let exec = graph.instantiate(Instantiate::default())?;
        let (_, first) = calls(|| exec.launch(&stream).map(drop))?;
        assert_eq!(fills_in(&first), Some("1"));
        to.iter().for_each(|to| expect(&stream, to, 6));
    }
    Ok(())
}
