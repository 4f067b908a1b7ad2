//! Alloc nodes and free nodes: which are accepted.

use millpond::Error;
use millpond::check::Kind;
use millpond::graph::{CaptureMode, Instantiate};
use millpond_driver::cuda::abi::Code;

use super::lives::with_alloc;
use super::{compare, keeping};

const BYTES: usize = 64 << 10;
const PLAIN: Instantiate = Instantiate::new();

#[test]
fn an_alloc_node_of_nothing_or_too_much() {
    compare(|rows, cuda, device| {
        let (theirs, mut graph) = (cuda.graph(), device.graph()?);
        for bytes in [0, 1 << 50, usize::MAX] {
            let (code, _, at) = cuda.add_alloc(theirs, &[], bytes);
            rows.agree(&format!("an alloc node of {bytes:#x} bytes"), code, graph.add_alloc::<u8>(&[], bytes));
            rows.holds("CUDA's address is null", at == 0, format!("{at:#x}"));
        }
        let (code, _, _) = cuda.add_alloc(theirs, &[], BYTES);
        rows.agree("one that is well", code, graph.add_alloc::<u8>(&[], BYTES));
        let (code, _) = cuda.instantiate(theirs, 0);
        rows.agree("an instance", code, graph.instantiate(PLAIN));
        Ok(())
    });
}

#[test]
fn a_free_node_of_what_is_not_to_be_freed() {
    compare(|rows, cuda, device| {
        let (theirs, stream) = (cuda.stream(), device.stream()?);
        let their_pool = cuda.pool(u64::MAX, 0);
        let it = cuda.with_alloc(BYTES);
        let (mut graph, x, alloc) = with_alloc(device, BYTES)?;
        // Millpond's free nodes name alloc nodes, so a wrong address is only possible in a capture.
        let inside = stream.capture_to(&mut graph, &[alloc], CaptureMode::Global, |s| s.free_address(x.address() + 1));
        let (code, _) = cuda.add_free(it.graph, &[it.node], it.at + 1);
        rows.agree("for base + 1", code, inside);
        let plain = cuda.had(their_pool, 4096, theirs);
        let (code, _) = cuda.add_free(it.graph, &[it.node], plain);
        let ours = stream.alloc::<u8>(&keeping(device)?, 4096)?.into_alloc_node();
        rows.agree("for memory of a pool", code, graph.add_free(&[alloc], ours));
        let (code, _) = cuda.add_free(it.graph, &[it.node], it.at);
        rows.agree("for the alloc node's memory", code, graph.add_free(&[alloc], x));
        let (code, _) = cuda.add_free(it.graph, &[it.node], it.at);
        rows.agree("a second one", code, graph.add_free(&[alloc], x));
        let (their_exec, exec) = (cuda.exec(it.graph, 0), graph.instantiate(PLAIN)?);
        let launched = exec.launch(&stream).map(drop);
        rows.agree("a launch after all that", cuda.table.launch(their_exec, theirs), launched);
        rows.agree("free of the pool's memory", cuda.free(plain, theirs), Ok::<_, Error>(()));
        Ok(())
    });
}

/// CUDA does not check paths: it accepts a free node before the allocation, or beside a use.
#[test]
fn a_free_node_without_a_path_from_the_alloc_node() {
    compare(|rows, cuda, device| {
        let it = cuda.with_alloc(BYTES);
        let (mut graph, x, _) = with_alloc(device, BYTES)?;
        let (code, _) = cuda.add_free(it.graph, &[], it.at);
        rows.agree("the node", code, graph.add_free(&[], x));
        let (code, _) = cuda.instantiate(it.graph, 0);
        rows.differ(
            "the instance",
            "the free would come before the allocation, or beside it",
            (code, Code::SUCCESS),
            graph.instantiate(PLAIN),
            |ours| is_fault(ours, Kind::FreeBeforeAlloc),
        );
        Ok(())
    });
}

/// The graph with the first free node frees it.
#[test]
fn two_graphs_with_a_free_node_for_one_allocation() {
    compare(|rows, cuda, device| {
        let (it, their_other) = (cuda.with_alloc(BYTES), cuda.graph());
        let (mut graph, x, alloc) = with_alloc(device, BYTES)?;
        let mut other = device.graph()?;
        let (code, _) = cuda.add_free(their_other, &[], it.at);
        rows.agree("in another graph", code, other.add_free(&[], x));
        let (code, _) = cuda.add_free(it.graph, &[it.node], it.at);
        rows.agree("then in the owner", code, graph.add_free(&[alloc], x));

        let (it, their_other) = (cuda.with_alloc(BYTES), cuda.graph());
        let (mut graph, x, alloc) = with_alloc(device, BYTES)?;
        let mut other = device.graph()?;
        let (code, _) = cuda.add_free(it.graph, &[it.node], it.at);
        rows.agree("in the owner", code, graph.add_free(&[alloc], x));
        let (code, _) = cuda.add_free(their_other, &[], it.at);
        rows.agree("then in another graph", code, other.add_free(&[], x));
        Ok(())
    });
}

/// Returns `true` if an answer is that fault of a graph's order.
pub(crate) fn is_fault<T>(ours: Result<T, &Error>, kind: Kind) -> bool {
    let fault = ours.err().and_then(Error::violation).filter(|it| it.graph.is_some());
    fault.is_some_and(|first| first.kind == kind || first.also.iter().any(|fault| fault.kind == kind))
}
