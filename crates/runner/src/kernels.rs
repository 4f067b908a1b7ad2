//! Kernels that sum what they read and fill what they write, as launches or as nodes. On devices that cannot run
//! closures, the accesses are declared instead: written bytes are filled, and read bytes are copied.

use millpond::error::Invalid;
use millpond::graph::{Graph, GraphNode};
use millpond::{Access, Error, Read, Stream, View, Write};

use millpond_core::ids::GraphId;

use millpond_core::op::{Access as Use, Act, Part};

use crate::{Cannot, Held, Run, cannot};

/// The byte that is written.
const VALUE: u8 = 7;

/// A kernel, given the slices that it reads and those that it writes.
pub type Kernel = Box<dyn FnMut(&[&[u8]], &mut [&mut [u8]]) + Send>;

/// The work of one launch or node, in place of summing and filling.
pub enum Work {
    /// A kernel, on devices that run closures.
    Kernel(Kernel),
    /// Fills the written bytes with this one.
    Fill(u8),
    /// Copies these bytes from the host to the written bytes.
    FromHost(Vec<u8>),
    /// Copies the read bytes to the host, which waits for them. A node cannot do this.
    ToHost(Box<dyn FnOnce(Vec<u8>) + Send>),
}

/// Returns a kernel that sums what it reads and fills what it writes with the sum.
pub(crate) fn sums() -> Kernel {
    Box::new(|reads, writes| {
        let sum = reads.iter().flat_map(|read| read.iter()).fold(1_u8, |sum, byte| sum.wrapping_add(*byte));
        writes.iter_mut().for_each(|write| write.fill(sum));
        std::hint::black_box(sum);
    })
}

/// Runs code with any number of accesses. The library's launches take arrays, whose lengths are part of the type.
macro_rules! on_slices {
    ($reads:expr, $writes:expr, $run:expr, |$declared:ident, $kernel:ident| $call:expr) => {{
        macro_rules! with {
            ($r:literal, $w:literal) => {{
                let reads: [millpond::Read<'_, u8>; $r] = $reads.try_into().expect("it was counted");
                let writes: [millpond::Write<'_, u8>; $w] = $writes.try_into().expect("it was counted");
                let $declared = (reads, writes);
                let mut run: $crate::kernels::Kernel = $run;
                let $kernel = move |(reads, mut writes): ([&[u8]; $r], [&mut [u8]; $w])| run(&reads, &mut writes);
                $call
            }};
        }
        match ($reads.len(), $writes.len()) {
            (0, 0) => with!(0, 0),
            (1, 0) => with!(1, 0),
            (2, 0) => with!(2, 0),
            (0, 1) => with!(0, 1),
            (1, 1) => with!(1, 1),
            (2, 1) => with!(2, 1),
            (0, 2) => with!(0, 2),
            _ => return $crate::cannot("a launch of so many accesses"),
        }
    }};
}
pub(crate) use on_slices;

/// Returns a kernel's accesses without overlaps, because slices are borrowed. Bytes that are both read and written
/// count as written.
pub(crate) fn borrowed(accesses: &[Use]) -> Vec<Use> {
    let mut all: Vec<Use> = Vec::new();
    let (writes, reads): (Vec<&Use>, Vec<&Use>) = accesses.iter().partition(|access| access.act == Act::Write);
    for access in writes.into_iter().chain(reads) {
        let mut left = vec![*access];
        for taken in all.iter().filter(|it| it.act == Act::Write && it.memory == access.memory) {
            let without = |it: Use| {
                let [from, to] = [taken.part.from().min(it.part.to()), taken.part.to().max(it.part.from())];
                let parts = [Part::new(it.part.from(), from), Part::new(to, it.part.to())];
                parts.into_iter().flatten().map(move |part| Use { part, ..it })
            };
            left = left.into_iter().flat_map(without).collect();
        }
        all.extend(left);
    }
    all
}

/// Returns `true` if a closure would get two slices of the same bytes. A CUDA kernel may have such arguments.
pub(crate) fn is_aliased(error: &Error) -> bool {
    matches!(error.invalid(), Some(Invalid::Aliased { .. }))
}

/// Launches a kernel. If it would have overlapping slices, only declares its accesses.
pub(crate) fn launched<A: Access + Clone>(
    stream: &Stream,
    declared: A,
    kernel: impl for<'a> FnMut(A::Slice<'a>) + Send + 'static,
) -> Result<(), Error> {
    match stream.launch(declared.clone(), kernel) {
        Err(error) if is_aliased(&error) => stream.declare(declared),
        outcome => outcome,
    }
}

/// Returns the two sides of a copy, if the library supports it: both sides must have one part of the same size.
pub(crate) fn copied<'a>((reads, writes): &Accesses<'a>) -> Option<(Read<'a, u8>, Write<'a, u8>)> {
    match (reads.as_slice(), writes.as_slice()) {
        ([read], [write]) if read.len() == write.len() => Some((*read, *write)),
        _ => None,
    }
}

pub(crate) type Accesses<'a> = (Vec<Read<'a, u8>>, Vec<Write<'a, u8>>);

impl Run {
    /// Returns the accesses as the library takes them, for a node of a graph or for immediate use. Returns `None` if
    /// something does not exist because of an earlier refusal.
    pub(crate) fn accesses(
        &self,
        accesses: &[Use],
        graph: Option<(Option<&Graph>, GraphId)>,
    ) -> Result<Option<Accesses<'_>>, Cannot> {
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        for access in accesses {
            // In a node, the name of an alloc node's memory means that memory itself, not a life that a launch gave it.
            let memory = if graph.is_some() { access.memory } else { self.current(access.memory) };
            let mut captured = self.graphs.captures.values().flat_map(|capture| &capture.allocated);
            if matches!(graph, Some((Some(_), _))) && captured.any(|it| *it == memory) {
                return cannot("memory of a capture that goes on, in a node that is made by hand");
            }
            let [from, to] = [access.part.from(), access.part.to()].map(|at| usize::try_from(at).unwrap_or(usize::MAX));
            let range = |len: usize| from..to.min(len);
            let part =
                |view: View<u8>| view.slice(range(view.len())).map_or_else(|_| cannot("bytes that are not there"), Ok);
            let (read, write) = match self.memory.held.get(&memory) {
                Some(Held::Buffer(buffer)) if access.part.is_whole() => (buffer.read(), buffer.write()),
                Some(Held::Buffer(buffer)) => part(buffer.view()).map(|view| (view.read(), view.write()))?,
                Some(Held::Gone { view, .. }) => part(*view).map(|view| (view.read(), view.write()))?,
                Some(Held::Node(node, owner)) => {
                    if let Some((_, graph)) = graph {
                        self.check_named(graph, access.memory, *owner)?;
                    }
                    let (read, write) = (node.read(), node.write());
                    match access.part.is_whole() {
                        true => (read, write),
                        false => match (read.slice(range(node.len())), write.slice(range(node.len()))) {
                            (Ok(read), Ok(write)) => (read, write),
                            _ => return cannot("bytes that are not there"),
                        },
                    }
                }
                Some(Held::Void) => return Ok(None),
                None => return cannot("memory that was never allocated cannot be named"),
            };
            match access.act {
                Act::Read => reads.push(read),
                _ => writes.push(write),
            }
        }
        Ok(Some((reads, writes)))
    }

    /// Copies on a stream, which may be captured.
    pub(crate) fn copy_on(&self, stream: &Stream, accesses: Accesses<'_>) -> Result<Result<(), Error>, Cannot> {
        let Some((from, to)) = copied(&accesses) else { return cannot("a copy between parts of different sizes") };
        Ok(stream.copy(from, to))
    }

    /// Launches on a stream, which may be captured.
    pub(crate) fn launch_on(&self, stream: &Stream, accesses: Accesses<'_>) -> Result<Result<(), Error>, Cannot> {
        let (reads, writes) = accesses;
        let kernel = match (self.work.take(), reads.as_slice(), writes.as_slice()) {
            (Some(Work::Fill(value)), [], [write]) => return Ok(stream.memset(*write, value)),
            (Some(Work::FromHost(bytes)), [], [write]) => return Ok(stream.copy_from_host(*write, &bytes)),
            (Some(Work::ToHost(look)), [read], []) => return Ok(stream.copy_to_host(*read).map(look)),
            (Some(Work::Kernel(kernel)), ..) => kernel,
            (Some(_), ..) => return cannot("work of other accesses than the launch has"),
            (None, ..) => sums(),
        };
        if self.devices.place.runs_closures() {
            return Ok(on_slices!(reads, writes, kernel, |declared, kernel| launched(stream, declared, kernel)));
        }
        if let ([], [write], true) = (reads.as_slice(), writes.as_slice(), self.graphs.captures.is_empty()) {
            return Ok(stream.memset(*write, VALUE));
        }
        let written = writes.clone();
        let declared = on_slices!(reads, writes, kernel, |declared, _kernel| stream.declare(declared));
        // In a capture the declared accesses are the node.
        Ok(match self.graphs.captures.is_empty() {
            true => declared.and_then(|()| written.into_iter().try_for_each(|write| stream.memset(write, VALUE))),
            false => declared,
        })
    }

    /// Adds a node to a graph.
    pub(crate) fn add_kernel(
        &mut self,
        (graph, id): (&mut Graph, GraphId),
        accesses: &[Use],
        after: &[GraphNode],
    ) -> Result<Result<GraphNode, Error>, Cannot> {
        let work = self.work.take();
        let runs_closures = self.devices.place.runs_closures();
        // Nodes that only read copy to memory of their own.
        let only_reads = accesses.iter().all(|access| access.act == Act::Read) && !accesses.is_empty();
        if !runs_closures && self.is_capturing() {
            return cannot("reading nodes copy to memory of theirs, which is there after a synchronisation");
        }
        let scratch = (only_reads && !runs_closures && work.is_none()).then(|| {
            let pool = self.devices.first.default_pool();
            let scratch = self.devices.own().alloc::<u8>(&pool, crate::BYTES_MAX).expect("memory");
            self.devices.own().synchronize().expect("the stream runs");
            scratch
        });
        let Some((reads, writes)) = self.accesses(accesses, Some((Some(graph), id)))? else {
            return cannot("memory that was refused");
        };
        let kernel = match (work, writes.as_slice()) {
            (Some(Work::Fill(value)), [write]) => return Ok(graph.add_memset(after, *write, value)),
            (Some(Work::FromHost(bytes)), [write]) => return Ok(graph.add_copy_from_host(after, *write, &bytes)),
            (Some(Work::Kernel(kernel)), _) => kernel,
            (Some(_), _) => return cannot("work of other accesses than the node has"),
            (None, _) => sums(),
        };
        if runs_closures {
            return Ok(on_slices!(reads, writes, kernel, |declared, kernel| graph.add_kernel(after, declared, kernel)));
        }
        let added = match (reads.as_slice(), writes.as_slice(), &scratch) {
            ([], [], _) => graph.add_empty(after),
            ([], [write], _) => graph.add_memset(after, *write, VALUE),
            ([read], [write], _) if read.len() == write.len() => graph.add_copy(after, *read, *write),
            ([read], [], Some(scratch)) if read.len() <= scratch.len() => {
                let to = scratch.view().slice(..read.len()).expect("it is shorter").write();
                graph.add_copy(after, *read, to)
            }
            _ => return cannot("a node of so many accesses, where kernels are no closures"),
        };
        self.memory.scratch.extend(scratch);
        Ok(added)
    }
}
