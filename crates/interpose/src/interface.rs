//! The help of a finding in the words of the interface that the program uses: PyTorch, CuPy, CUDA's runtime or driver.
//!
//! The general help says which stream must wait for which operation. Here it becomes the calls to write, with the lines
//! where they belong. Knows findings and the names of loaded objects; no order.

use millpond_core::check::{Edge, Finding, Kind, Side};

use crate::place::is_loaded;

/// An interface to streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Interface {
    PyTorch,
    CuPy,
    Runtime,
    Driver,
}

/// Returns the calls that make a program right, if an event or a synchronisation does. `is_python` says whether the
/// later side is a line of Python.
pub(crate) fn calls(finding: &Finding, is_python: bool) -> Option<String> {
    calls_of(Interface::find(is_python), finding)
}

fn calls_of(interface: Interface, finding: &Finding) -> Option<String> {
    let later = finding.later.as_ref().filter(|_| finding.graph.is_none())?;
    if let (Interface::PyTorch, Kind::UseAfterFree, Some(freed)) = (interface, finding.kind, &finding.earlier) {
        // A tensor is freed where its last reference goes.
        let (until, gone) = (behind("until after", later), behind("at", freed));
        return Some(format!("in PyTorch: keep a reference to the tensor{until}: the last one goes{gone}"));
    }
    let edges: Option<Vec<String>> = finding.missing.iter().map(|edge| interface.edge(edge, later, finding)).collect();
    let edges = edges.filter(|edges| !edges.is_empty())?;
    Some(format!("in {}: {}", interface.name(), edges.join("; ")))
}

impl Interface {
    fn find(is_python: bool) -> Self {
        match is_python {
            true if is_loaded("libtorch_cuda") => Interface::PyTorch,
            true if is_loaded("cupy") => Interface::CuPy,
            _ if is_loaded("libcudart") => Interface::Runtime,
            _ => Interface::Driver,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Interface::PyTorch => "PyTorch",
            Interface::CuPy => "CuPy",
            Interface::Runtime => "the runtime API",
            Interface::Driver => "the driver API",
        }
    }

    /// Returns the calls for one missing edge. `None` if its streams have ended, or are other processes'.
    fn edge(self, edge: &Edge, later: &Side, finding: &Finding) -> Option<String> {
        let before = &edge.after;
        if before.process.is_some() || later.process.is_some() || edge.destroyed.is_some() {
            return None;
        }
        let first = self.stream(before)?;
        let (at, until) = (behind("after", before), behind("before", later));
        if later.stream == Some(millpond_core::ids::StreamId::HOST) {
            return Some(match self {
                Interface::PyTorch | Interface::CuPy => format!("`{first}.synchronize()`{until}"),
                Interface::Runtime => format!("`cudaStreamSynchronize({first})`{until}"),
                Interface::Driver => format!("`cuStreamSynchronize({first})`{until}"),
            });
        }
        let second = self.stream(later)?;
        let api = if self == Interface::Runtime { "cuda" } else { "cu" };
        let wait = match (self, &edge.recorded) {
            (Interface::PyTorch, None) => format!("`{second}.wait_stream({first})`{until}"),
            (Interface::CuPy, None) => format!("`{second}.wait_event({first}.record())`{until}"),
            (Interface::PyTorch | Interface::CuPy, Some(record)) => {
                format!("`{second}.wait_event(event)`{until}, with the event that is recorded{}", behind("at", record))
            }
            (_, None) => {
                format!("`{api}EventRecord(event, {first})`{at}, `{api}StreamWaitEvent({second}, event, 0)`{until}")
            }
            (_, Some(record)) => {
                let recorded = behind("at", record);
                format!("`{api}StreamWaitEvent({second}, event, 0)`{until}, with the event that is recorded{recorded}")
            }
        };
        let is_dropped = self == Interface::PyTorch && finding.kind == Kind::FreeBeforeUse;
        Some(if is_dropped { format!("`tensor.record_stream({first})`{at}, or {wait}") } else { wait })
    }

    /// Returns a name for a stream in code.
    fn stream(self, side: &Side) -> Option<String> {
        let number = side.stream?.0;
        Some(match (self, number) {
            (Interface::PyTorch, 0) => "torch.cuda.default_stream()".to_owned(),
            (Interface::CuPy, 0) => "cupy.cuda.Stream.null".to_owned(),
            (Interface::Runtime, 0) => "cudaStreamLegacy".to_owned(),
            (Interface::Driver, 0) => "CU_STREAM_LEGACY".to_owned(),
            (_, number) => format!("stream_{number}"),
        })
    }
}

/// Returns the place of an operation behind a preposition. Empty if the place is not known.
fn behind(preposition: &str, side: &Side) -> String {
    match side.spot.in_any_round() {
        spot if spot.is_empty() => spot,
        spot => format!(" {preposition} {spot}"),
    }
}

#[cfg(test)]
mod tests {
    use millpond_core::check::Spot;
    use millpond_core::ids::StreamId;

    use super::*;

    fn side(stream: u32, line: u32) -> Side {
        let spot = Spot { file: Some("a.py".into()), line: Some(line), round: None };
        Side { stream: Some(StreamId(stream)), who: format!("stream {stream}"), spot, ..Side::default() }
    }

    fn finding(kind: Kind, edge: Edge, later: Side) -> Finding {
        let mut finding = Finding::new(kind, "it is wrong", "").at(later);
        finding.missing = vec![edge];
        finding
    }

    #[test]
    fn the_calls_are_those_of_the_interface() {
        let used = finding(Kind::UseBeforeAlloc, Edge::after(side(2, 3)), side(0, 9));
        let freed = finding(Kind::FreeBeforeUse, Edge::after(side(2, 3)), side(1, 9));
        let in_words = |interface, finding| calls_of(interface, finding).unwrap();
        assert_eq!(
            in_words(Interface::PyTorch, &used),
            "in PyTorch: `torch.cuda.default_stream().wait_stream(stream_2)` before a.py:9"
        );
        assert_eq!(
            in_words(Interface::PyTorch, &freed),
            "in PyTorch: `tensor.record_stream(stream_2)` after a.py:3, \
             or `stream_1.wait_stream(stream_2)` before a.py:9"
        );
        assert_eq!(
            in_words(Interface::CuPy, &freed),
            "in CuPy: `stream_1.wait_event(stream_2.record())` before a.py:9"
        );
        assert_eq!(
            in_words(Interface::Runtime, &used),
            "in the runtime API: `cudaEventRecord(event, stream_2)` after a.py:3, \
             `cudaStreamWaitEvent(cudaStreamLegacy, event, 0)` before a.py:9"
        );
    }

    #[test]
    fn tensors_are_kept_until_their_last_use() {
        let mut used = Finding::new(Kind::UseAfterFree, "it is wrong", "free it later").at(side(1, 9));
        used.earlier = Some(side(1, 3));
        assert_eq!(
            calls_of(Interface::PyTorch, &used).unwrap(),
            "in PyTorch: keep a reference to the tensor until after a.py:9: the last one goes at a.py:3"
        );
        assert_eq!(calls_of(Interface::Runtime, &used), None);
    }

    #[test]
    fn a_record_that_is_there_is_waited_for() {
        let mut edge = Edge::after(side(2, 3));
        edge.recorded = Some(side(2, 5));
        let used = finding(Kind::UseBeforeAlloc, edge, side(1, 9));
        assert_eq!(
            calls_of(Interface::Driver, &used).unwrap(),
            "in the driver API: `cuStreamWaitEvent(stream_1, event, 0)` before a.py:9, \
             with the event that is recorded at a.py:5"
        );
    }

    #[test]
    fn the_host_synchronises() {
        let host = Side { stream: Some(StreamId::HOST), ..side(0, 9) };
        let freed = finding(Kind::FreeBeforeUse, Edge::after(side(2, 3)), host);
        assert_eq!(
            calls_of(Interface::Runtime, &freed).unwrap(),
            "in the runtime API: `cudaStreamSynchronize(stream_2)` before a.py:9"
        );
    }

    #[test]
    fn what_no_call_settles_has_none() {
        let mut of_node = finding(Kind::UseBeforeAlloc, Edge::after(side(2, 3)), side(1, 9));
        of_node.graph = Some(millpond_core::ids::GraphId(1));
        assert_eq!(calls_of(Interface::Runtime, &of_node), None);
        let mut gone = Edge::after(side(2, 3));
        gone.destroyed = Some(Spot::default());
        assert_eq!(calls_of(Interface::Runtime, &finding(Kind::UseBeforeAlloc, gone, side(1, 9))), None);
        assert_eq!(calls_of(Interface::Runtime, &Finding::new(Kind::DoubleFree, "it is wrong", "free it once")), None);
    }
}
