//! The refusals of graphs and captures, in words of the checked program.
//!
//! Off the hot path of `graphs.rs` and `captures.rs`: nothing here decides.

use super::checker::{Call, Checker, Refused, quiet};
use super::finding::{Edge, Finding, Side, Spot, Subject};
use super::lives::{Found, Named};
use super::timeline::StreamIndex;
use crate::graph::{
    Asked, CaptureError, CopyRefused, GraphError, GraphFault, Memory as NodeMemory, NodeSite, Pin, Refusal,
    UpdateRefused, Words,
};
use crate::ids::{GraphId, NodeId, StreamId};
use crate::life::{Kind, Site};
use crate::op::{Act, Memory, Names, Thing};

/// CUDA's errors: `cudaErrorInvalidValue`, `cudaErrorNotSupported`, `cudaErrorGraphExecUpdateFailure`.
const INVALID_VALUE: u32 = 1;
const NOT_SUPPORTED: u32 = 801;
const UPDATE_FAILURE: u32 = 910;

impl Side {
    /// Describes the act of a node on memory.
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

/// For a program without a table of names.
impl From<&NodeSite> for Side {
    fn from(site: &NodeSite) -> Self {
        Side::of_node(site, &Names::default())
    }
}

impl Finding {
    /// Adds to a finding about a launch what in the launch does it: a node, or the launch itself, which frees what an
    /// earlier one left (CUDA: `cudaGraphInstantiateFlagAutoFreeOnLaunch`).
    pub fn in_launch(&mut self, node: Option<Side>) {
        let Some(node) = node else {
            return self.notes.push("the launch frees it by itself (auto free on launch)".to_owned());
        };
        if let Some(later) = &mut self.later {
            later.node = node.node.clone();
            later.within = Some(Box::new(node));
        }
    }

    /// Makes the finding of a refusal by a capture. `title` returns the name of a stream. `begun` is where the capture
    /// began, if that is known. For a refused node see [`of_change`](Self::of_change).
    pub fn of_capture(error: &CaptureError, title: impl Fn(StreamId) -> String, begun: Option<Side>) -> Self {
        let kind = match error {
            CaptureError::Unjoined { .. } => Kind::CaptureUnjoined,
            CaptureError::Isolation(_) => Kind::CaptureIsolation,
            CaptureError::Merge { .. } => Kind::CaptureMerge,
            CaptureError::LegacyStream | CaptureError::Unsupported { .. } | CaptureError::Implicit(_) => {
                Kind::CaptureUnsupported
            }
            CaptureError::CapturedEvent(_) => Kind::CapturedEvent,
            _ => Kind::CaptureState,
        };
        let origin = begun.as_ref().and_then(|begun| begun.stream);
        let finding = Finding::new(kind, error.sentence(&title, origin), error.help(&title));
        Finding { earlier: begun, code: Some(error.code()), ..finding }
    }

    /// Makes the finding of a refused change of a graph. `node` returns the name of a node.
    pub fn of_change(error: &GraphError, node: impl Fn(NodeId) -> String, names: &Names) -> Self {
        let (kind, help) = match error {
            GraphError::Copy(refused) => return Self::of_copy(refused, names),
            GraphError::FreedAlready { .. } | GraphError::FreedByOther { .. } => (Kind::DoubleFree, "free it once"),
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
        Finding { code: Some(INVALID_VALUE), ..Finding::new(kind, error.titled(node, names), help) }
    }

    /// Makes the finding of a graph with memory nodes and fixed addresses that is refused a second place.
    fn of_copy(refused: &CopyRefused, names: &Names) -> Self {
        let code = match refused.asked {
            Asked::Update | Asked::Updated => UPDATE_FAILURE,
            _ => NOT_SUPPORTED,
        };
        let finding = Finding::new(Kind::GraphRefused, refused.sentence(names), refused.help());
        Finding { earlier: Some(Side::of_node(&refused.node, names)), code: Some(code), ..finding }
    }

    /// Makes the finding of a refused update of an instance.
    pub fn of_update(refused: &UpdateRefused) -> Self {
        let finding = Finding::new(Kind::GraphRefused, refused.to_string(), "instantiate the changed graph");
        Finding { code: Some(UPDATE_FAILURE), ..finding }
    }

    /// Makes the finding of a graph that is not instantiated, for another reason than the order of its nodes.
    pub fn of_draft(refusal: &Refusal) -> Self {
        let help = match refusal {
            Refusal::ChildTwice(_) => "build the child anew for its second place",
            Refusal::Unplaced(_) => "remove the node, or have the graph as a child",
            _ => "make it smaller",
        };
        Finding::new(Kind::GraphRefused, refusal.to_string(), help)
    }

    /// Makes the finding of a graph that names memory left by an earlier launch, although it contains the graph that
    /// allocates this memory anew at each launch.
    pub fn made_anew(memory: &str) -> Self {
        let sentence = format!("{memory} is what an earlier launch left, and each launch of this graph makes it anew");
        Finding::new(Kind::GraphRefused, sentence, "name its alloc node in the graph")
    }

    /// Makes the finding of a use of memory of a graph with symbolic addresses by a name that stands for no instance.
    pub fn symbolic(owner: &str) -> Self {
        let sentence = format!(
            "the addresses of {owner} are placed at each instantiation: its alloc nodes name no memory outside it"
        );
        let help = "take the memory from a launch, or make that graph a child of this one";
        Finding::new(Kind::GraphRefused, sentence, help)
    }

    /// Makes the finding of a free, in a capture, of memory that does not belong to a graph.
    pub fn foreign_free(memory: &str) -> Self {
        let sentence = format!("{memory} is freed in a capture, but it is not memory of a graph");
        let help = "free it outside of the capture, or allocate it inside";
        Finding { code: Some(INVALID_VALUE), ..Finding::new(Kind::CaptureForeignFree, sentence, help) }
    }

    /// Makes the finding of an act on memory of an alloc node that no launch has allocated. `node` is the name of that
    /// memory, `by` is the party (`on stream 1`). `is_freed_again` is `true` if each launch of its graph frees it.
    pub fn not_launched(node: &str, act: Act, by: &str, is_freed_again: bool) -> Self {
        let verb = act.past();
        let (sentence, advice) = match is_freed_again {
            true => (
                format!("{node} is {verb} {by}, but each launch of its graph frees it again"),
                "leave that free node out, or do this in the graph, before it",
            ),
            false => (format!("{node} is {verb} {by} before any launch allocates it"), "launch its graph first"),
        };
        Finding { code: Some(INVALID_VALUE), ..Finding::new(Kind::before_alloc(act), sentence, advice) }
    }

    /// Makes the finding of a graph that is launched again on the stream `title` while memory of its last launch is not
    /// freed. `count` is the number of such allocations. `subject` is one of them, with its allocation.
    pub fn unfreed(title: &str, subject: Option<(Subject, Side)>, count: usize) -> Self {
        let again = format!("a graph is launched again on {title}");
        let sentence = match &subject {
            Some((subject, _)) => format!("{again}, and {subject} of its last launch is not freed"),
            None => format!("{again} with memory that is not freed"),
        };
        let help = "free it, or instantiate with auto free on launch";
        let mut finding = Finding::new(Kind::UnfreedLaunch, sentence, help);
        (finding.subject, finding.earlier) = subject.unzip();
        if count > 1 {
            finding.notes.push(format!("{count} allocations in all"));
        }
        Finding { code: Some(INVALID_VALUE), ..finding }
    }

    /// Makes the finding of two nodes of a graph without the path that they need.
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

    pub(super) fn graph_refused(
        &self,
        call: Call<'_>,
        graph: GraphId,
        error: GraphError,
        stream_index: StreamIndex,
    ) -> Refused {
        let later = match is_of_free(&error) {
            true => self.act_side(call, self.site(call, stream_index, Act::Free)),
            false => self.side(call, self.site(call, stream_index, Act::Read), "captured"),
        };
        self.change_refused(call, graph, error, later)
    }

    /// Makes the refusal of a node or an edge by a graph.
    pub(super) fn graph_refused_at(&self, call: Call<'_>, graph: GraphId, error: GraphError) -> Refused {
        let later = match (is_of_free(&error), &error) {
            (true, _) => self.act_side(call, self.host_site(call, Act::Free)),
            (false, GraphError::Copy(_)) => self.side(call, self.host_site(call, Act::Read), "refused"),
            (false, _) => self.side(call, self.host_site(call, Act::Read), "added"),
        };
        self.change_refused(call, graph, error, later)
    }

    fn change_refused(&self, call: Call<'_>, graph: GraphId, error: GraphError, later: Side) -> Refused {
        // If the graph that allocates the memory still exists, it knows which node frees the memory.
        let error = match error {
            GraphError::FreedByOther { alloc, owner, by } if owner == by => {
                let owner = self.graphs.graphs.get(&owner).map(|owner| owner.graph.check_unfreed(alloc));
                owner.and_then(Result::err).unwrap_or(error)
            }
            error => error,
        };
        let known = self.graphs.known(graph);
        let node = |id: NodeId| match known.and_then(|graph| graph.site(id, Act::Read)) {
            Some(site) => site.called(),
            None => id.to_string(),
        };
        Box::new(Finding::of_change(&error, node, call.names).at(later))
    }

    /// As [`Finding::made_anew`], for the current call.
    #[cold]
    pub(super) fn made_anew(&self, call: Call<'_>, pin: Pin, verb: &'static str) -> Refused {
        let name = call.names.title(Thing::Memory(Memory { id: pin.id, generation: pin.generation }));
        Box::new(Finding::made_anew(&name).at(self.side(call, self.host_site(call, Act::Read), verb)))
    }

    /// Returns where the capture that an error concerns began, if it is in progress.
    fn capture_begun(&self, error: &CaptureError, stream: StreamId) -> Option<Site> {
        let capture = error.capture(&self.graphs.captures, stream)?;
        self.graphs.captures.begun(capture)
    }

    /// Reports captures that never end, so that their work never runs. An invalid capture was reported when it became
    /// invalid.
    pub(super) fn find_open_captures(&mut self, call: Call<'_>) {
        let mut open: Vec<Site> = self.graphs.captures.all_begun().collect();
        open.sort_unstable_by_key(|site| site.stream);
        let said: Vec<Finding> = open.into_iter().map(|site| self.never_ends(call, site)).collect();
        self.more.extend(said);
    }

    /// Makes the finding of a capture that never ends.
    pub(super) fn never_ends(&self, call: Call<'_>, begun: Site) -> Finding {
        let sentence = format!("the capture of {} never ends: no graph is made of it", self.title(call, begun.stream));
        let mut finding = Finding::new(Kind::CaptureState, sentence, "end it after the work that is to be captured");
        finding.later = Some(self.side(call, begun, "captured"));
        finding
    }

    /// Makes the refusal of a call by a capture, in the program's own names.
    #[cold]
    pub(super) fn capture_refused(&self, call: Call<'_>, error: CaptureError, stream: StreamId) -> Refused {
        if let CaptureError::Invalidated(_) = error {
            return quiet();
        }
        let (title, begun) = (|stream| self.title(call, stream), self.capture_begun(&error, stream));
        let begun = begun.map(|begun| self.side(call, begun, "captured"));
        let mut finding = Finding::of_capture(&error, title, begun);
        if matches!(error, CaptureError::Unsupported { .. }) && self.is_unsafe_alone(&call.op.what) {
            finding.advice += ", or while the calling thread's capture mode is relaxed";
        }
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

/// Returns `true` if what is refused is a second free.
fn is_of_free(error: &GraphError) -> bool {
    matches!(error, GraphError::FreedAlready { .. } | GraphError::FreedByOther { .. })
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;
    use crate::graph::Label;
    use crate::ids::NodeId;
    use crate::op::Place;

    /// Checks that the launch and its node are on one line. If places are left out, so is the node's.
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
        finding.spots_mut().for_each(|spot| *spot = Spot::default());
        assert!(!finding.to_string().contains("g.rs") && !finding.to_string().contains("line 7"), "{finding}");
    }
}
