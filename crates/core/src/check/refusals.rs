//! What graphs and captures refuse, in words of the program that is checked.
//!
//! The cold half of `graphs.rs` and `captures.rs`: nothing here decides.

use super::checker::{Call, Checker, Refused, quiet};
use super::finding::{Edge, Finding, Side, Spot, Subject};
use super::lives::{Found, Named};
use super::timeline::Seat;
use crate::graph::{CaptureError, CopyRefused, GraphError, GraphFault, Memory as NodeMemory, NodeSite, Pin, Words};
use crate::ids::{GraphId, NodeId, StreamId};
use crate::life::{Kind, Site};
use crate::op::{Act, Memory, Names, Thing};

impl Side {
    /// What a node does to memory.
    pub fn of_node(node: &NodeSite, names: &Names) -> Self {
        Side {
            verb: node.act.past().to_owned(),
            act: Some(node.act),
            who: node.called(),
            stream: None,
            op: None,
            node: Some(node.path()),
            process: None,
            within: None,
            spot: Spot::new(node.label.place, names),
        }
    }
}

/// Of a program without a table of names.
impl From<&NodeSite> for Side {
    fn from(site: &NodeSite) -> Self {
        Side::of_node(site, &Names::default())
    }
}

impl Finding {
    /// Says what in a launch does it: a node, or the launch itself, which frees what one before it left (CUDA:
    /// `cudaGraphInstantiateFlagAutoFreeOnLaunch`).
    pub fn in_launch(&mut self, node: Option<Side>) {
        let Some(node) = node else {
            return self.notes.push("the launch frees it by itself (auto free on launch)".to_owned());
        };
        if let Some(later) = &mut self.later {
            later.node = node.node.clone();
            later.within = Some(Box::new(node));
        }
    }

    /// Two nodes of a graph without the path that they need.
    pub fn of_graph(graph: GraphId, fault: &GraphFault, words: Words<'_>) -> Self {
        let side = |site: &NodeSite| Side::of_node(site, words.names);
        let mut finding = Finding::new(fault.kind, fault.sentence(words.names), fault.help(words));
        finding.graph = Some(graph);
        finding.earlier = Some(side(&fault.earlier));
        finding.later = Some(side(&fault.later));
        finding.others = fault.ends.iter().filter(|end| **end != fault.earlier).map(side).collect();
        finding.missing = fault.ends.iter().map(|end| Edge::after(side(end))).collect();
        if !matches!(fault.kind, Kind::UseAfterFree | Kind::DoubleFree) {
            let (earlier, later) = (fault.earlier.called(), fault.later.called());
            let graph = words.names.title(Thing::Graph(graph));
            finding.notes.push(format!("there is no path from {earlier} to {later} in {graph}"));
        }
        finding
    }
}

impl Checker {
    pub(super) fn graph_fault(&self, call: Call<'_>, graph: GraphId, fault: &GraphFault) -> Finding {
        let mut fault = fault.clone();
        let memory = match fault.subject.memory {
            NodeMemory::Own(alloc) => self.graphs.names.of((graph, alloc)),
            NodeMemory::Foreign { graph, alloc } => self.graphs.names.of((graph, alloc)),
            NodeMemory::External { id, generation } => Some(Memory { id, generation }),
        };
        if let Some(Found::Named(Named::Life(life) | Named::Lease(life))) = memory.map(|it| self.lives.find(it)) {
            let life = self.lives.at(life);
            fault.subject.bytes = Some(life.bytes);
            fault.subject.name = life.name.and_then(|name| call.names.text(name)).map(ToString::to_string);
        }
        if let Some(name) = memory.and_then(|memory| self.graphs.called.get(&memory)) {
            fault.subject.name = call.names.text(*name).map(ToString::to_string);
        }
        let subject = memory.map(|memory| {
            let (bytes, name) = (fault.subject.bytes.unwrap_or(0), fault.subject.name.clone());
            Subject { id: memory.id, bytes, name }
        });
        let stream = |stream| self.title(call, stream);
        let node = |path: &[NodeId]| self.graphs.known(graph)?.site_at(path);
        let words = Words { names: call.names, node: &node, stream: &stream };
        Finding { subject, ..Finding::of_graph(graph, &fault, words) }
    }

    pub(super) fn graph_refused(&self, call: Call<'_>, graph: GraphId, error: GraphError, seat: Seat) -> Refused {
        let mut refused = self.graph_refused_at(call, graph, error);
        refused.later = Some(self.side(call, self.site(call, seat, Act::Read), "captured"));
        refused
    }

    /// The graph refuses a node or an edge.
    pub(super) fn graph_refused_at(&self, call: Call<'_>, graph: GraphId, error: GraphError) -> Refused {
        let (kind, help) = match error {
            GraphError::FreedAlready { .. } => (Kind::DoubleFree, "free it once"),
            GraphError::NotGraphMemory => {
                (Kind::CaptureForeignFree, "free it outside of the graph, or allocate it in the graph")
            }
            GraphError::DuplicateEdge { .. } => (Kind::GraphRefused, "leave this edge out"),
            GraphError::NoEdge { .. } => (Kind::GraphRefused, "name the two nodes of an edge that is there"),
            GraphError::Cycle { .. } => {
                (Kind::GraphRefused, "leave this edge out, or remove one of the path that goes the other way")
            }
            GraphError::InUse { .. } | GraphError::FreedElsewhere { .. } => {
                (Kind::GraphRefused, "remove the nodes that name its memory first")
            }
            _ => (Kind::GraphRefused, "change the node or the edge"),
        };
        let known = self.graphs.known(graph);
        let node = |id: NodeId| match known.and_then(|graph| graph.site(id, Act::Read)) {
            Some(site) => site.called(),
            None => id.to_string(),
        };
        let sentence = error.titled(node, |graph| call.names.title(Thing::Graph(graph)));
        let mut finding = Finding::new(kind, sentence, help);
        finding.later = Some(self.side(call, self.host_site(call, Act::Read), "added"));
        Box::new(finding)
    }

    /// A graph names what an earlier launch of a graph left that is in it.
    #[cold]
    pub(super) fn made_anew(&self, call: Call<'_>, pin: Pin, verb: &'static str) -> Refused {
        let name = call.names.title(Thing::Memory(Memory { id: pin.id, generation: pin.generation }));
        let sentence = format!("{name} is what an earlier launch left, and each launch of this graph makes it anew");
        let mut finding = Finding::new(Kind::GraphRefused, sentence, "name its alloc node in the graph");
        finding.later = Some(self.side(call, self.host_site(call, Act::Read), verb));
        Box::new(finding)
    }

    /// A graph with memory nodes and fixed addresses was to be in two places.
    #[cold]
    pub(super) fn copy_refused(&self, call: Call<'_>, refused: &CopyRefused) -> Refused {
        let mut finding = Finding::new(Kind::GraphRefused, refused.sentence(call.names), refused.help());
        finding.earlier = Some(Side::of_node(&refused.node, call.names));
        finding.later = Some(self.side(call, self.host_site(call, Act::Read), "refused"));
        Box::new(finding)
    }

    /// Where the capture began, if it goes on, that an error names or is in the way of a stream.
    fn capture_begun(&self, error: &CaptureError, stream: StreamId) -> Option<Site> {
        let captures = &self.graphs.captures;
        let capture = match *error {
            CaptureError::Unsupported { capture, .. }
            | CaptureError::CapturedEvent(capture)
            | CaptureError::WrongThread(capture) => capture,
            CaptureError::Implicit(blocking) => captures.of(blocking)?,
            _ => captures.of(stream)?,
        };
        Some(self.graphs.captured.get(self.graphs.into.get(&capture)?)?.begun)
    }

    /// Captures that never end, so that what they declared never runs; why one became invalid was said then.
    pub(super) fn find_open_captures(&mut self, call: Call<'_>) {
        let captures = &self.graphs.captures;
        let begun = self.graphs.captured.values().map(|captured| captured.begun);
        let is_valid = |site: &Site| captures.of(site.stream).is_some_and(|capture| captures.is_valid(capture));
        let mut open: Vec<Site> = begun.filter(is_valid).collect();
        open.sort_unstable_by_key(|site| site.stream);
        let said: Vec<Finding> = open.into_iter().map(|site| self.never_ends(call, site)).collect();
        self.more.extend(said);
    }

    /// A capture was begun, and no end of it will come.
    pub(super) fn never_ends(&self, call: Call<'_>, begun: Site) -> Finding {
        let sentence = format!("the capture of {} never ends: no graph is made of it", self.title(call, begun.stream));
        let mut finding = Finding::new(Kind::CaptureState, sentence, "end it after the work that is to be captured");
        finding.later = Some(self.side(call, begun, "captured"));
        finding
    }

    /// What a capture refuses, in the program's own names.
    #[cold]
    pub(super) fn capture_refused(&self, call: Call<'_>, error: CaptureError, stream: StreamId) -> Refused {
        if let CaptureError::Invalidated(_) = error {
            return quiet();
        }
        let kind = match &error {
            CaptureError::Unjoined { .. } => Kind::CaptureUnjoined,
            CaptureError::Isolation(_) => Kind::CaptureIsolation,
            CaptureError::Merge { .. } => Kind::CaptureMerge,
            CaptureError::LegacyStream | CaptureError::Unsupported { .. } | CaptureError::Implicit(_) => {
                Kind::CaptureUnsupported
            }
            CaptureError::CapturedEvent(_) => Kind::CapturedEvent,
            _ => Kind::CaptureState,
        };
        let (title, begun) = (|stream| self.title(call, stream), self.capture_begun(&error, stream));
        let mut help = error.help(title);
        if matches!(error, CaptureError::Unsupported { .. }) && self.is_unsafe_alone(&call.op.what) {
            help += ", or while the calling thread's capture mode is relaxed";
        }
        let mut finding = Finding::new(kind, error.sentence(title, begun.map(|begun| begun.stream)), help);
        finding.earlier = begun.map(|begun| self.side(call, begun, "captured"));
        if let CaptureError::Unjoined { stream, .. } = error
            && let Some((verb, op, place)) = self.time.stream(stream).and_then(|stream| stream.newest(u64::MAX))
        {
            let site = Site { act: Act::Read, stream, op, place };
            finding.earlier = Some(self.side(call, site, verb));
        }
        let op = self.time.stream(stream).map_or(0, |stream| stream.kept.ops + 1);
        let site = Site { act: Act::Read, stream, op, place: call.op.place };
        finding.later = Some(self.side(call, site, "refused"));
        Box::new(finding)
    }
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;
    use crate::graph::Label;
    use crate::ids::NodeId;
    use crate::op::Place;

    /// The launch and its node stand on one line, and where places are left out, the node's is, too.
    #[test]
    fn a_side_in_a_launch_names_both() {
        let mut names = Names::new();
        let label = Label {
            name: Some("scale\nhelp: none".into()),
            place: Place::File { file: names.intern("g.rs"), line: 12 },
            ..Label::default()
        };
        let node = NodeSite { origin: smallvec![NodeId(4)], noun: "kernel", act: Act::Write, label };
        let site = Site { act: Act::Write, stream: StreamId(3), op: 2, place: Place::Line(7) };
        let mut finding = Finding::new(Kind::Race, "a race", "order them");
        finding.later = Some(Side::from(site));
        finding.in_launch(Some(Side::of_node(&node, &names)));
        let said = "written    stream 3, op 2: kernel `scale\\nhelp: none` (g.rs:12)";
        assert!(finding.to_string().contains(said), "{finding}");
        finding.forget_places();
        assert!(!finding.to_string().contains("g.rs") && !finding.to_string().contains("line 7"), "{finding}");
    }
}
