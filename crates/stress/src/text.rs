//! Operations as lines of a litmus program.

use millpond_core::op::{Access, Act, NodeOp, Op, Reach, StreamRole, What};

fn accesses(list: &[Access], is_kernel: bool, stream: &str) -> String {
    let of = |it: &Access| match it.part.is_whole() {
        true => format!("a{}", it.memory.id.0),
        false => format!("a{}[{}..{}]", it.memory.id.0, it.part.from(), it.part.to()),
    };
    let verb = |it: &Access| if it.act == Act::Read { "read" } else { "write" };
    match list {
        [] => format!("kernel {stream}"),
        [one] if !is_kernel => format!("{} {stream}{}", verb(one), of(one)),
        all => {
            let all: Vec<String> = all.iter().map(|it| format!("{} {}", verb(it), of(it))).collect();
            format!("kernel {stream}{}", all.join(" "))
        }
    }
}

fn node(node: &NodeOp) -> String {
    match node {
        NodeOp::Kernel(list) | NodeOp::Copy(list) | NodeOp::Fill(list) | NodeOp::HostFunction(list) => {
            accesses(list, false, "")
        }
        NodeOp::Empty => "empty".into(),
        NodeOp::EventRecord(event) => format!("record e{}", event.0),
        NodeOp::EventWait(event) => format!("wait e{}", event.0),
        NodeOp::Alloc { memory, bytes } => format!("alloc a{} {bytes}", memory.id.0),
        NodeOp::Free(memory) => format!("free a{}", memory.id.0),
        NodeOp::Child(graph) => format!("child g{}", graph.0),
    }
}

/// Returns an operation as a line. Nodes are named after their graph and their number in it.
pub(crate) fn line(op: &Op, number_of_node: usize) -> String {
    match &op.what {
        What::StreamCreate { stream, role, device } => {
            let role = match role {
                StreamRole::Blocking => "",
                StreamRole::NonBlocking => " nonblocking",
                StreamRole::PerThread => " per-thread",
                StreamRole::Legacy => " legacy",
            };
            let on = if device.0 == 0 { String::new() } else { format!(" on {}", device.0) };
            format!("stream s{}{role}{on}", stream.0)
        }
        What::StreamDestroy { stream } => format!("destroy s{}", stream.0),
        What::StreamSynchronize { stream } => format!("synchronize s{}", stream.0),
        What::StreamQuery { stream, is_idle } => format!("query s{} {}", stream.0, if *is_idle { "yes" } else { "no" }),
        What::SynchronizeDevice { device } => format!("synchronize device {}", device.0),
        What::DeviceSynchronize => "synchronize device".into(),
        What::EventCreate { event, .. } => format!("event e{}", event.0),
        What::EventRecord { event, stream, external, .. } => {
            format!("record e{} s{}{}", event.0, stream.0, if *external { " external" } else { "" })
        }
        What::EventWait { event, stream, external } => {
            format!("wait s{} e{}{}", stream.0, event.0, if *external { " external" } else { "" })
        }
        What::EventSynchronize { event } => format!("synchronize e{}", event.0),
        What::EventQuery { event, is_over } => format!("query e{} {}", event.0, if *is_over { "yes" } else { "no" }),
        What::EventDestroy { event } => format!("destroy e{}", event.0),
        What::PoolCreate { pool, .. } => format!("pool p{}", pool.0),
        What::PoolDestroy { pool } => format!("destroy p{}", pool.0),
        What::PoolAccess { pool, device, reach } => match reach {
            Reach::None => format!("revoke p{} from {}", pool.0, device.0),
            Reach::Read => format!("grant p{} to {} read", pool.0, device.0),
            Reach::ReadWrite => format!("grant p{} to {}", pool.0, device.0),
        },
        What::Alloc { memory, pool, stream, bytes, .. } => {
            let from = if pool.0 == 0 { String::new() } else { format!(" from p{}", pool.0) };
            format!("a{} = alloc s{} {bytes}{from}", memory.id.0, stream.0)
        }
        What::Free { memory, stream, .. } => format!("free s{} a{}", stream.0, memory.id.0),
        What::FreeNow { memory } => format!("free now a{}", memory.id.0),
        What::Drop { memory } => format!("drop a{}", memory.id.0),
        What::Launch { stream, accesses: list, .. } => accesses(list, false, &format!("s{} ", stream.0)),
        What::Copy { stream, accesses: list } => match list.as_slice() {
            [from, to] => {
                let of = |it: &Access| accesses(&[*it], false, "").split_once(' ').map(|it| it.1.to_owned());
                let (from, to) = (of(from).unwrap_or_default(), of(to).unwrap_or_default());
                format!("copy s{} {from} to {to}", stream.0)
            }
            list => accesses(list, false, &format!("s{} ", stream.0)),
        },
        What::GraphCreate { graph, .. } => format!("graph g{}", graph.0),
        What::GraphNode { graph, node: work, after, .. } => {
            let name = |number: usize| format!("n{}.{number}", graph.0);
            let list: Vec<String> = after.iter().map(|it| name(it.index())).collect();
            let after = if list.is_empty() { String::new() } else { format!(" after {}", list.join(" ")) };
            format!("node {} in g{}{after}: {}", name(number_of_node), graph.0, node(work))
        }
        What::GraphDestroy { graph } => format!("destroy g{}", graph.0),
        What::CaptureBegin { stream, graph, .. } => format!("capture s{} as g{}", stream.0, graph.0),
        What::CaptureEnd { stream } => format!("end capture s{}", stream.0),
        What::Instantiate { graph, exec, auto_free_on_launch } => {
            format!("x{} = instantiate g{}{}", exec.0, graph.0, if *auto_free_on_launch { " auto-free" } else { "" })
        }
        What::ExecUpdate { exec, graph } => format!("update x{} from g{}", exec.0, graph.0),
        What::GraphLaunch { exec, stream } => format!("launch x{} s{}", exec.0, stream.0),
        What::GraphUpload { exec, stream } => format!("upload x{} s{}", exec.0, stream.0),
        What::Take { exec, node, memory } => format!("a{} = take a{} from x{}", memory.id.0, node.id.0, exec.0),
        What::ExecDestroy { exec } => format!("destroy x{}", exec.0),
        other => format!("# {other:?}"),
    }
}
