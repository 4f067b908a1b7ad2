//! Who may free what, and what each misuse is answered with: every row of the two tables of CUDA's contract that
//! concerns graphs or capture (R160 to R237, R290), one case a row. Where more is allowed than CUDA allows the row says
//! so. What a row refuses leaves everything as it was: each case ends with a right launch of the same graph.

use millpond::{Buffer, Device, Error, Graph, GraphError, HostConfig, Instantiate, Kind, MemAllocNode, Result, Stream};
use millpond_core::graph::{CaptureError as Rule, GraphError as Change, UpdateRefused};

/// Which memory, by who allocated it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum From {
    /// `cudaMallocAsync`.
    Pool,
    /// An alloc node that no graph frees, launched.
    Launched,
    /// ... and not launched yet.
    NeverLaunched,
    /// An alloc node that its own graph frees, launched.
    FreedByOwner,
    /// An alloc node that another graph has the free node for, launched.
    FreedByOther,
    /// An alloc node whose memory was freed since the launch.
    FreedSince,
}

/// Who frees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    /// `cudaFreeAsync`.
    Stream,
    /// `cudaFree`.
    Host,
    /// `cudaFreeAsync` in a capture.
    Capture,
    /// A free node of the owner.
    OwnNode,
    /// A free node of another graph, which is launched.
    OtherNode,
}

/// The answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answer {
    Fine,
    /// `cudaErrorInvalidValue`.
    Refused,
    /// The free node is made, and its launch is refused: the memory is not live.
    RefusedAtLaunch,
}

use Answer::{Fine, Refused, RefusedAtLaunch};

struct Case {
    device: Device,
    stream: Stream,
    owner: Graph,
    memory: MemAllocNode<u32>,
    pool_memory: Option<Buffer<u32>>,
    /// Has the free node.
    other: Option<Graph>,
}

fn case(from: From) -> Result<Case> {
    let device = Device::host(HostConfig::default())?;
    let stream = device.stream()?;
    let mut owner = device.graph()?;
    let memory = owner.add_alloc::<u32>(&[], 16)?;
    let alloc = owner.node_of(memory).unwrap();
    let write = owner.add_memset(&[alloc], memory.write(), 1)?;
    let (mut other, mut pool_memory) = (None, None);
    match from {
        From::Pool => pool_memory = Some(stream.alloc::<u32>(&device.default_pool(), 16)?),
        From::FreedByOwner => drop(owner.add_free(&[write], memory)?),
        From::FreedByOther => {
            let mut graph = device.graph()?;
            graph.add_free(&[], memory)?;
            other = Some(graph);
        }
        _ => {}
    }
    if !matches!(from, From::NeverLaunched | From::Pool) {
        let _ = owner.instantiate(Instantiate::default())?.launch(&stream)?;
        stream.synchronize()?;
    }
    if from == From::FreedSince {
        stream.free_address(memory.address())?;
    }
    Ok(Case { device, stream, owner, memory, pool_memory, other })
}

impl Case {
    fn address(&self) -> u64 {
        self.pool_memory.as_ref().map_or(self.memory.address(), Buffer::address)
    }

    fn free(&mut self, by: By) -> std::result::Result<(), Answer> {
        let refused = |_| Refused;
        match by {
            By::Stream => self.stream.free_address(self.address()).map_err(refused),
            By::Host => {
                self.stream.synchronize().unwrap();
                self.device.free_address(self.address()).map_err(refused)
            }
            By::Capture => {
                let address = self.address();
                let is_pool = self.pool_memory.is_some();
                let (mut answer, memory) = (Ok(()), self.memory);
                // By its address where a program has nothing else; by its name where no launch has made it live.
                let free = |s: &Stream| match is_pool || s.free_address(address).is_ok() {
                    true if is_pool => s.free_address(address),
                    true => Ok(()),
                    false => s.free_alloc_node(memory),
                };
                let (graph, ()) = self
                    .stream
                    .capture(|s| {
                        answer = free(s).map_err(refused);
                        // The capture goes on, whatever the answer (measured).
                        s.launch((), |()| ())
                    })
                    .unwrap();
                answer?;
                let exec = graph.instantiate(Instantiate::default()).unwrap();
                exec.launch(&self.stream).map(|_| ()).map_err(|_| RefusedAtLaunch)
            }
            By::OwnNode => {
                let leaf = self.owner.nodes().last().copied().unwrap();
                match &self.pool_memory {
                    // There is no name for it that a free node would take.
                    Some(_) => Err(Refused),
                    None => self.owner.add_free(&[leaf], self.memory).map(|_| ()).map_err(refused),
                }
            }
            By::OtherNode => {
                let mut graph = self.device.graph().unwrap();
                match &self.pool_memory {
                    Some(_) => return Err(Refused),
                    None => graph.add_free(&[], self.memory).map_err(refused)?,
                };
                // Once: R186.
                assert!(graph.add_free(&[], self.memory).is_err());
                assert!(self.owner.add_free(&[], self.memory).is_err(), "the other graph has the free node");
                let exec = graph.instantiate(Instantiate::default()).unwrap();
                exec.launch(&self.stream).map(|_| ()).map_err(|_| RefusedAtLaunch)
            }
        }
    }
}

/// The table of who may free what: rows by who allocated, columns in the order of [`By`].
#[test]
fn who_may_free_what() {
    let columns = [By::Stream, By::Host, By::Capture, By::OwnNode, By::OtherNode];
    let table = [
        // R34, R35, R167: a captured free takes graph memory only.
        (From::Pool, [Fine, Fine, Refused, Refused, Refused]),
        // R203.
        (From::Launched, [Fine, Fine, Fine, Fine, Fine]),
        // R168, R215: nodes may name it before it is live; what they do is looked at when they are launched (R209).
        (From::NeverLaunched, [Refused, Refused, RefusedAtLaunch, Fine, RefusedAtLaunch]),
        // R202.
        (From::FreedByOwner, [Refused, Refused, RefusedAtLaunch, Refused, RefusedAtLaunch]),
        // R186, R187. (CUDA does not say whether a stream may free it as well: it may, while it is live.)
        (From::FreedByOther, [Fine, Fine, Refused, Refused, Refused]),
        // R209, and the second free of R203.
        (From::FreedSince, [Refused, Refused, RefusedAtLaunch, Fine, RefusedAtLaunch]),
    ];
    for (from, answers) in table {
        for (by, expected) in columns.into_iter().zip(answers) {
            let mut case = case(from).unwrap();
            let answer = case.free(by).err().unwrap_or(Fine);
            assert_eq!(answer, expected, "{from:?} freed by {by:?}");
            case.other = None;
        }
    }
}

fn is_change(error: &Error, is_it: impl Fn(&Change) -> bool) -> bool {
    matches!(error.graph(), Some(GraphError::Change(change)) if is_it(change))
}

/// Relaunch with an unfreed allocation (R204, R216), and after the free was issued, not run (R212).
#[test]
fn a_relaunch_with_unfreed_memory_enqueues_nothing() -> Result<()> {
    let device = Device::host(HostConfig::default())?;
    let stream = device.stream()?;
    let count = stream.alloc::<u32>(&device.default_pool(), 1)?;
    stream.memset(count.write(), 0)?;
    let mut graph = device.graph()?;
    let out = graph.add_alloc::<u32>(&[], 16)?;
    graph.add_kernel(&[], count.write(), |count| count[0] += 1)?;
    let exec = graph.instantiate(Instantiate::default())?;
    let _ = exec.launch(&stream)?;
    for _ in 0..3 {
        assert!(matches!(exec.launch(&stream).unwrap_err().graph(), Some(GraphError::Unfreed(_))));
    }
    assert_eq!(stream.copy_to_host(count.read())?, [1]);
    stream.free_address(out.address())?;
    let _ = exec.launch(&stream)?;
    assert_eq!(stream.copy_to_host(count.read())?, [2]);
    stream.free_address(out.address())
}

/// Auto free: as if each unfreed allocation were freed in the launch stream (R205); not at the end (R206); with a graph
/// that frees all by itself it has no effect (R207).
#[test]
fn auto_free_frees_at_the_launch_only() -> Result<()> {
    let device = Device::host(HostConfig::default())?;
    let stream = device.stream()?;
    let settings = Instantiate { auto_free_on_launch: true };
    let mut graph = device.graph()?;
    let out = graph.add_alloc::<u32>(&[], 16)?;
    let alloc = graph.node_of(out).unwrap();
    graph.add_memset(&[alloc], out.write(), 3)?;
    let exec = graph.instantiate(settings)?;
    let first = exec.launch(&stream)?.take(out)?;
    let second = exec.launch(&stream)?.take(out)?;
    assert_eq!(stream.free(first).unwrap_err().error.violation().unwrap().kind, Kind::DoubleFree);
    drop((exec, graph));
    // R201: used and freed after the exec is gone.
    assert_eq!(stream.copy_to_host(second.read())?, [0x0303_0303; 16]);
    stream.free(second)?;
    let mut graph = device.graph()?;
    let x = graph.add_alloc::<u32>(&[], 16)?;
    let alloc = graph.node_of(x).unwrap();
    graph.add_free(&[alloc], x)?;
    let exec = graph.instantiate(settings)?;
    for _ in 0..3 {
        let _ = exec.launch(&stream)?;
    }
    Ok(())
}

/// Free nodes: an address that is none, a second one (R186); sizes (R183); foreign and repeated dependencies (R183).
#[test]
fn memory_nodes_refuse_bad_arguments() -> Result<()> {
    let device = Device::host(HostConfig::default())?;
    let mut graph = device.graph()?;
    let x = graph.add_alloc::<u32>(&[], 16)?;
    let alloc = graph.node_of(x).unwrap();
    let plain = device.stream()?.alloc::<u32>(&device.default_pool(), 4)?.into_alloc_node();
    assert!(is_change(&graph.add_free(&[], plain).unwrap_err(), |it| matches!(it, Change::NotGraphMemory)));
    assert!(is_change(&graph.add_alloc::<u8>(&[], 0).unwrap_err(), |it| matches!(it, Change::NoBytes)));
    assert!(matches!(graph.add_alloc::<u8>(&[], usize::MAX).unwrap_err(), Error::Driver(_)), "out of memory");
    let twice = graph.add_empty(&[alloc, alloc]).unwrap_err();
    assert!(is_change(&twice, |it| matches!(it, Change::DuplicateEdge { .. })));
    let foreign = device.graph()?.add_empty(&[]).unwrap();
    assert!(is_change(&graph.add_empty(&[foreign]).unwrap_err(), |it| matches!(it, Change::UnknownNode(_))));
    graph.add_free(&[alloc], x)?;
    assert!(is_change(&graph.add_free(&[alloc], x).unwrap_err(), |it| matches!(it, Change::FreedAlready { .. })));
    assert_eq!(graph.len(), 2, "what was refused is not there");
    let _ = graph.instantiate(Instantiate::default())?.launch(&device.stream()?)?;
    Ok(())
}

/// What CUDA refuses for graphs with memory nodes and is allowed here: a second instance (R222), a clone (R221), a
/// child by clone (R223), removed nodes and edges (R220). After the exec is gone the graph is instantiated again, with
/// the same addresses (R236).
#[test]
fn what_is_allowed_beyond_cuda() -> Result<()> {
    let device = Device::host(HostConfig::default())?;
    let stream = device.stream()?;
    let mut graph = device.graph()?;
    let x = graph.add_alloc::<u32>(&[], 16)?;
    let alloc = graph.node_of(x).unwrap();
    let fill = graph.add_memset(&[alloc], x.write(), 1)?;
    let stray = graph.add_empty(&[alloc])?;
    graph.remove_edge(alloc, stray)?;
    graph.remove_node(stray)?;
    graph.add_free(&[fill], x)?;
    let (first, second) = (graph.instantiate(Instantiate::default())?, graph.instantiate(Instantiate::default())?);
    let clone = graph.clone().instantiate(Instantiate::default())?;
    let mut parent = device.graph()?;
    parent.add_child(&[], &graph)?;
    let parent = parent.instantiate(Instantiate::default())?;
    for exec in [&first, &second, &clone, &parent, &first] {
        let _ = exec.launch(&stream)?;
    }
    drop((first, second));
    let _ = graph.instantiate(Instantiate::default())?.launch(&stream)?;
    Ok(())
}

/// The rows of captures that need two threads (R163): an end in another thread.
#[test]
fn a_capture_ends_in_the_thread_that_began_it() -> Result<()> {
    let device = Device::host(HostConfig::default())?;
    let stream = device.stream()?;
    stream.begin_capture()?;
    let there = stream.clone();
    let refused = std::thread::spawn(move || there.end_capture().unwrap_err()).join().unwrap();
    assert!(matches!(refused.capture(), Some(millpond::CaptureError::Rule(Rule::WrongThread(_)))), "{refused}");
    stream.end_capture().map(|_| ())
}

/// The same with CUDA's answers, where a program relies on them (R220, R222, R223).
#[test]
fn cudas_limits_where_they_are_asked_for() -> Result<()> {
    let device = Device::host(HostConfig::default())?;
    let limited = |error: Error| matches!(error.graph(), Some(GraphError::CudaLimit { .. }));
    let mut graph = device.graph()?;
    let x = graph.add_alloc::<u32>(&[], 16)?;
    let alloc = graph.node_of(x).unwrap();
    let empty = graph.add_empty(&[alloc])?;
    graph.set_cuda_limits(true);
    assert!(limited(graph.remove_edge(alloc, empty).unwrap_err()));
    assert!(limited(graph.remove_node(empty).unwrap_err()));
    assert!(limited(device.graph()?.add_child(&[], &graph).unwrap_err()));
    let exec = graph.instantiate(Instantiate::default())?;
    assert!(limited(graph.instantiate(Instantiate::default()).unwrap_err()));
    drop(exec);
    let _exec = graph.instantiate(Instantiate::default())?;
    // Without memory nodes nothing is limited.
    let mut plain = device.graph()?;
    let node = plain.add_empty(&[])?;
    plain.set_cuda_limits(true);
    let _both = (plain.instantiate(Instantiate::default())?, plain.instantiate(Instantiate::default())?);
    plain.remove_node(node)
}

/// Updates of an exec: what nodes do may change, edges, kinds and memory may not (R230, R231).
#[test]
fn an_exec_is_updated_from_a_graph_of_the_same_shape() -> Result<()> {
    let device = Device::host(HostConfig::default())?;
    let stream = device.stream()?;
    let out = stream.alloc::<u32>(&device.default_pool(), 16)?;
    let filled = |value: u32, len: usize| {
        stream.capture(|s| {
            s.launch(out.write(), move |x| x.fill(value))?;
            (0..len).try_for_each(|_| s.launch(out.write(), |x| x.iter_mut().for_each(|x| *x += 1)))
        })
    };
    let (one, two, longer) = (filled(1, 1)?.0, filled(2, 1)?.0, filled(2, 2)?.0);
    let mut exec = one.instantiate(Instantiate::default())?;
    let _ = exec.launch(&stream)?;
    exec.update(&two)?;
    let _ = exec.launch(&stream)?;
    assert_eq!(stream.copy_to_host(out.read())?, [3; 16]);
    let update = |exec: &mut millpond::GraphExec, graph: &Graph| match exec.update(graph).unwrap_err().graph() {
        Some(GraphError::Update(refused)) => refused.clone(),
        other => panic!("{other:?}"),
    };
    assert!(matches!(update(&mut exec, &longer), UpdateRefused::Topology(_)));
    let (fill, ()) = stream.capture(|s| {
        s.memset(out.write(), 0)?;
        s.launch(out.write(), |_| ())
    })?;
    assert!(matches!(update(&mut exec, &fill), UpdateRefused::NodeType(_)));
    // Of its own graph an exec with memory nodes can be updated (measured), of one with other memory not.
    let mut graph = device.graph()?;
    let x = graph.add_alloc::<u32>(&[], 16)?;
    let mut with_memory = graph.instantiate(Instantiate::default())?;
    let buffer = with_memory.launch(&stream)?.take(x)?;
    with_memory.update(&graph)?;
    assert!(matches!(with_memory.launch(&stream).unwrap_err().graph(), Some(GraphError::Unfreed(_))));
    stream.free(buffer)?;
    let mut larger = device.graph()?;
    larger.add_alloc::<u32>(&[], 17)?;
    assert!(matches!(update(&mut with_memory, &larger), UpdateRefused::Parameters(_)));
    with_memory.launch(&stream).map(|_| stream.free_address(x.address()))?
}
