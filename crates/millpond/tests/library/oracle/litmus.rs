//! Nine programs, eight of them wrong: CUDA's allocator runs each and reports nothing, and Millpond refuses each wrong
//! one with the verdict of the corpus of litmus programs. Both accept the ninth, which is right.

use millpond::check::Kind;
use millpond::error::Invalid;
use millpond::graph::Instantiate;
use millpond::{Device, Error, Pool, Result, Stream};
use millpond_driver::cuda::abi::Code;
use millpond_driver::cuda::abi::graph::GraphNode as TheirNode;

use super::cuda::{AUTO_FREE, Cuda};
use super::{compare, keeping};

const BYTES: usize = 1024;

/// Returns the verdict of a program of the corpus: the word after `!!`.
fn verdict(program: &str) -> Option<&str> {
    program.lines().find_map(|line| line.split_once("!!")).map(|(_, kind)| kind.trim())
}

/// Returns the refusal's verdict, in the words of the corpus.
fn verdict_of(error: &Error) -> String {
    let kind = match error {
        Error::Violation(violation) => violation.kind.name(),
        Error::InvalidArgument(invalid) if matches!(**invalid, Invalid::Stale) => Kind::UseAfterFree.name(),
        _ => "no verdict",
    };
    kind.to_owned()
}

/// Millpond's side of a program: two streams and a pool.
struct Ours<'a> {
    device: &'a Device,
    pool: Pool,
    s: Stream,
    t: Stream,
}

impl Ours<'_> {
    /// Makes `t` come after all that is in `s`.
    fn order(&self) -> Result<()> {
        self.t.wait(&self.s.record()?)
    }
}

/// Runs a program on both. `theirs` returns the first code that is an error.
fn program(
    text: &str,
    theirs: impl FnOnce(&Cuda) -> std::result::Result<(), (&'static str, Code)>,
    ours: impl FnOnce(&Ours<'_>) -> Result<()>,
) {
    compare(|rows, cuda, device| {
        let (failed, code) = theirs(cuda).err().unwrap_or(("every call", Code::SUCCESS));
        rows.silent(failed, code);
        rows.silent("cuCtxSynchronize after it", cuda.table.synchronize());
        let it = Ours { device, pool: keeping(device)?, s: device.stream()?, t: device.stream()? };
        let answered = ours(&it);
        let (said, meant) = (answered.as_ref().err().map(verdict_of), verdict(text));
        let words = answered.err().map_or_else(|| "accepted".to_owned(), |error| error.report().to_string());
        let what = format!("Millpond's verdict {said:?}, and that of the corpus {meant:?}");
        rows.holds(&what, said.as_deref() == meant, words);
        Ok(())
    });
}

/// A call of a program that CUDA is expected to accept.
fn call(name: &'static str, code: Code) -> std::result::Result<(), (&'static str, Code)> {
    if code == Code::SUCCESS { Ok(()) } else { Err((name, code)) }
}

macro_rules! corpus {
    ($name:literal) => {
        include_str!(concat!("measured/", $name, ".litmus"))
    };
}

#[test]
fn used_on_a_stream_that_is_not_ordered_after_the_allocation() {
    program(
        corpus!("1-use-before-alloc"),
        |cuda| {
            let (s, t) = (cuda.stream(), cuda.stream());
            let a = cuda.had(cuda.pool(u64::MAX, 0), BYTES, s);
            call("the use", cuda.touch(a, t))?;
            call("the free", cuda.free(a, s))
        },
        |it| {
            let a = it.s.alloc::<u8>(&it.pool, BYTES)?;
            it.t.memset(a.write(), 1)?;
            Ok(it.s.free(a)?)
        },
    );
}

#[test]
fn freed_while_another_stream_uses_it() {
    program(
        corpus!("2-free-before-use"),
        |cuda| {
            let (s, t) = (cuda.stream(), cuda.stream());
            let a = cuda.had(cuda.pool(u64::MAX, 0), BYTES, s);
            cuda.order(s, t);
            call("the use", cuda.touch(a, t))?;
            call("the free", cuda.free(a, s))
        },
        |it| {
            let a = it.s.alloc::<u8>(&it.pool, BYTES)?;
            it.order()?;
            it.t.memset(a.write(), 1)?;
            Ok(it.s.free(a)?)
        },
    );
}

#[test]
fn freed_on_a_stream_that_does_not_come_after_the_use() {
    program(
        corpus!("3-free-on-another-stream"),
        |cuda| {
            let (s, t) = (cuda.stream(), cuda.stream());
            let a = cuda.had(cuda.pool(u64::MAX, 0), BYTES, s);
            let allocated = cuda.record(s);
            call("the use", cuda.touch(a, s))?;
            call("the wait", cuda.table.stream_wait(t, allocated, 0))?;
            call("the free", cuda.free(a, t))
        },
        |it| {
            let a = it.s.alloc::<u8>(&it.pool, BYTES)?;
            let allocated = it.s.record()?;
            it.s.memset(a.write(), 1)?;
            it.t.wait(&allocated)?;
            Ok(it.t.free(a)?)
        },
    );
}

/// Makes a CUDA graph with an allocation, a use and a free, and launches it once.
fn their_graph(
    cuda: &Cuda,
    use_after: impl FnOnce(TheirNode) -> Vec<TheirNode>,
    free_after: impl FnOnce(TheirNode, TheirNode) -> Vec<TheirNode>,
) -> std::result::Result<(), (&'static str, Code)> {
    let (it, s) = (cuda.with_alloc(BYTES), cuda.stream());
    let used = cuda.add_touch(it.graph, &use_after(it.node), it.at);
    let (code, _) = cuda.add_free(it.graph, &free_after(it.node, used), it.at);
    call("the free node", code)?;
    let (code, exec) = cuda.instantiate(it.graph, 0);
    call("the instance", code)?;
    call("the launch", cuda.table.launch(exec, s))?;
    call("the synchronise", cuda.table.stream_synchronize(s))
}

#[test]
fn a_free_node_not_after_the_kernel() {
    program(
        corpus!("4-free-node"),
        |cuda| their_graph(cuda, |alloc| vec![alloc], |alloc, _| vec![alloc]),
        |it| {
            let mut graph = it.device.graph()?;
            let a = graph.add_alloc::<u8>(&[], BYTES)?;
            let alloc = graph.node_of(a).expect("its own");
            graph.add_memset(&[alloc], a.write(), 1)?;
            graph.add_free(&[alloc], a)?;
            graph.instantiate(Instantiate::default()).map(drop)
        },
    );
}

#[test]
fn a_kernel_node_not_after_the_alloc_node() {
    program(
        corpus!("5-kernel-before-alloc-node"),
        |cuda| their_graph(cuda, |_| Vec::new(), |alloc, used| vec![alloc, used]),
        |it| {
            let mut graph = it.device.graph()?;
            let a = graph.add_alloc::<u8>(&[], BYTES)?;
            let alloc = graph.node_of(a).expect("its own");
            let used = graph.add_memset(&[], a.write(), 1)?;
            graph.add_free(&[alloc, used], a)?;
            graph.instantiate(Instantiate::default()).map(drop)
        },
    );
}

/// Makes a CUDA graph that leaves its allocation live. Returns its instance and the allocation's address.
fn their_producer(cuda: &Cuda, flags: u64) -> (millpond_driver::cuda::abi::graph::GraphExec, u64) {
    let it = cuda.with_alloc(BYTES);
    cuda.add_touch(it.graph, &[it.node], it.at);
    (cuda.exec(it.graph, flags), it.at)
}

#[test]
fn memory_of_a_graph_freed_on_another_stream() {
    program(
        corpus!("6-graph-memory-freed-elsewhere"),
        |cuda| {
            let (s, t) = (cuda.stream(), cuda.stream());
            let (exec, a) = their_producer(cuda, 0);
            call("the launch", cuda.table.launch(exec, s))?;
            cuda.order(s, t);
            call("the use", cuda.touch(a, s))?;
            call("the free", cuda.free(a, t))
        },
        |it| {
            let mut graph = it.device.graph()?;
            let node = graph.add_alloc::<u8>(&[], BYTES)?;
            graph.add_memset(&[graph.node_of(node).expect("its own")], node.write(), 1)?;
            let exec = graph.instantiate(Instantiate::default())?;
            let a = exec.launch(&it.s)?.take(node)?;
            it.order()?;
            it.s.memset(a.write(), 2)?;
            Ok(it.t.free(a)?)
        },
    );
}

#[test]
fn a_relaunch_that_frees_what_a_reader_still_reads() {
    program(
        corpus!("7-auto-free-under-a-reader"),
        |cuda| {
            let (s, t) = (cuda.stream(), cuda.stream());
            let (exec, a) = their_producer(cuda, AUTO_FREE);
            call("the launch", cuda.table.launch(exec, s))?;
            cuda.order(s, t);
            call("the use", cuda.touch(a, t))?;
            call("the second launch", cuda.table.launch(exec, s))?;
            cuda.finish(s);
            cuda.finish(t);
            call("the last free", cuda.free(a, s))
        },
        |it| {
            let mut graph = it.device.graph()?;
            let node = graph.add_alloc::<u8>(&[], BYTES)?;
            graph.add_memset(&[graph.node_of(node).expect("its own")], node.write(), 1)?;
            let exec = graph.instantiate(Instantiate::default().auto_free_on_launch(true))?;
            let _ = exec.launch(&it.s)?;
            it.order()?;
            let beside = it.t.alloc::<u8>(&it.pool, BYTES)?;
            it.t.copy(node.read(), beside.write())?;
            exec.launch(&it.s).map(drop)
        },
    );
}

#[test]
fn used_after_the_free_in_one_stream() {
    program(
        corpus!("8-use-after-free"),
        |cuda| {
            let s = cuda.stream();
            let a = cuda.had(cuda.pool(u64::MAX, 0), BYTES, s);
            call("the use", cuda.touch(a, s))?;
            call("the free", cuda.free(a, s))?;
            call("the use after it", cuda.touch(a, s))
        },
        |it| {
            let (a, beside) = (it.s.alloc::<u8>(&it.pool, BYTES)?, it.s.alloc::<u8>(&it.pool, BYTES)?);
            it.s.memset(a.write(), 1)?;
            let view = a.view();
            it.s.free(a)?;
            it.s.copy(view.read(), beside.write())
        },
    );
}

#[test]
fn a_right_hand_over() {
    program(
        corpus!("9-hand-over"),
        |cuda| {
            let (s, t) = (cuda.stream(), cuda.stream());
            let a = cuda.had(cuda.pool(u64::MAX, 0), BYTES, s);
            call("the use", cuda.touch(a, s))?;
            cuda.order(s, t);
            call("the use on the other stream", cuda.touch(a, t))?;
            cuda.order(t, s);
            call("the free", cuda.free(a, s))
        },
        |it| {
            let a = it.s.alloc::<u8>(&it.pool, BYTES)?;
            it.s.memset(a.write(), 1)?;
            it.order()?;
            let beside = it.t.alloc::<u8>(&it.pool, BYTES)?;
            it.t.copy(a.read(), beside.write())?;
            it.s.wait(&it.t.record()?)?;
            Ok(it.s.free(a)?)
        },
    );
}
