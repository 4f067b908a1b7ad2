//! A fault of a graph as text: two nodes, and the edge that is missing between them.
//!
//! Depends on names, numbers and places; [`Finding`](crate::check::Finding) displays it.

use std::fmt;

use super::node::{Label, Memory, NodeId, Origin};
use crate::ids::StreamId;
use crate::life::Kind;
use crate::op::{Act, Names, Quoted};
use crate::units::Bytes;

/// The program's names for the things that a fault names.
#[derive(Clone, Copy)]
pub struct Words<'a> {
    /// The files of places.
    pub names: &'a Names,
    /// Returns a node by its path, if it is known. Child nodes around others are named, too.
    pub node: &'a dyn Fn(&[NodeId]) -> Option<NodeSite>,
    /// Returns the name of a stream.
    pub stream: &'a dyn Fn(StreamId) -> String,
}

/// The number, kind, name and place of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeSite {
    /// Its number, after those of the child nodes around it.
    pub origin: Origin,
    /// The name of its kind.
    pub noun: &'static str,
    /// Its act on the memory.
    pub act: Act,
    /// Its name and place.
    pub label: Label,
}

impl NodeSite {
    /// Returns its number, after those of the child nodes around it: `3`, or `3.1` for the second node of the child
    /// there.
    pub fn path(&self) -> String {
        shown(&self.origin)
    }

    /// Returns the kind of the node and its name, or its number if it has no name. Both for a node of a child, since a
    /// graph may contain the child twice.
    pub fn called(&self) -> String {
        match &self.label.name {
            Some(name) if self.origin.len() > 1 => format!("{} {} (node {})", self.noun, Quoted(name), self.path()),
            Some(name) => format!("{} {}", self.noun, Quoted(name)),
            None => format!("{} node {}", self.noun.trim_end_matches(" node"), self.path()),
        }
    }

    /// Returns the same as [`called`](Self::called), with the place of a node without a name.
    pub(super) fn title(&self, names: &Names) -> String {
        match self.label.place.describe(names) {
            place if place.is_empty() || self.label.name.is_some() => self.called(),
            place => format!("{} ({place})", self.called()),
        }
    }

    /// Returns the streams that this node and another one were captured on, if a wait of one for the other makes an
    /// edge between them.
    fn captured_with(&self, other: &NodeSite) -> Option<(StreamId, StreamId)> {
        let is_beside = self.origin.len() == other.origin.len() && {
            let around = self.origin.len().saturating_sub(1);
            self.origin[..around] == other.origin[..around]
        };
        self.label.stream.zip(other.label.stream).filter(|_| is_beside)
    }

    /// Returns the node to change if an edge to `other` is missing. Edges are between nodes of one graph. If the other
    /// node is outside of the child graph of this one, that is the child node around this one.
    fn end(&self, other: &NodeSite, words: Words<'_>) -> String {
        let shared = self.origin.iter().zip(&other.origin).take_while(|(own, other)| own == other).count();
        let path = &self.origin[..self.origin.len().min(shared + 1)];
        if path.len() == self.origin.len() {
            return self.title(words.names);
        }
        (words.node)(path).map_or_else(|| format!("node {}", shown(path)), |child| child.title(words.names))
    }

    /// Returns its name and place.
    pub fn describe(&self) -> String {
        match self.label.place.to_string() {
            place if place.is_empty() => self.called(),
            place => format!("{} at {place}", self.called()),
        }
    }
}

/// Returns the path of a node as text: `3.1`.
fn shown(path: &[NodeId]) -> String {
    let numbers: Vec<String> = path.iter().map(|node| node.0.to_string()).collect();
    numbers.join(".")
}

/// The memory that a fault is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FaultSubject {
    /// The memory.
    pub memory: Memory,
    /// Its size in bytes, if it is an allocation of the graph.
    pub bytes: Option<u64>,
    /// The name of its alloc node, if it has one.
    pub name: Option<String>,
}

impl fmt::Display for FaultSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = match self.memory {
            Memory::Own(alloc) => alloc.to_string(),
            Memory::Foreign { graph, alloc } => format!("{alloc} of {graph}"),
            Memory::External { id, .. } => id.to_string(),
        };
        match (&self.name, self.bytes) {
            (Some(name), Some(bytes)) => write!(f, "{} ({number}, {})", Quoted(name), Bytes(bytes)),
            (None, Some(bytes)) => write!(f, "{number} ({})", Bytes(bytes)),
            (_, None) => f.write_str(&number),
        }
    }
}

/// One fault of a graph: see the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GraphFault {
    /// The rule that is broken.
    pub kind: Kind,
    /// The memory.
    pub subject: FaultSubject,
    /// The node that should come first.
    pub earlier: NodeSite,
    /// The nodes from which an edge to the later one is missing: as few as are enough. Empty if edges from earlier
    /// nodes are not the solution.
    pub ends: Vec<NodeSite>,
    /// The node that should come after it.
    pub later: NodeSite,
    /// `true` if there is a path from the later one to the earlier one, so that an edge between them would close a
    /// cycle.
    pub is_turned: bool,
}

impl GraphFault {
    /// Returns the change that makes the graph right.
    pub fn help(&self, words: Words<'_>) -> String {
        if let Some(help) = self.help_in_capture(words) {
            return help;
        }
        let (earlier, later) = (self.earlier.title(words.names), self.later.title(words.names));
        match self.kind {
            Kind::DoubleFree => format!("remove {later} or {earlier}"),
            Kind::UseAfterFree => format!("free it after {later}, or allocate anew"),
            Kind::Race if *self.befores() == [self.earlier.clone()] => {
                let (one, other) = (self.earlier.end(&self.later, words), self.later.end(&self.earlier, words));
                format!("add an edge between {one} and {other}, either way")
            }
            Kind::SharedAddresses if self.earlier.act != Act::Free => {
                format!("free it before {later}, or make these graphs with symbolic addresses")
            }
            _ if self.is_turned => {
                let (first, second) = (self.earlier.end(&self.later, words), self.later.end(&self.earlier, words));
                format!(
                    "{second} comes before {first}: remove the edges that make it so, and add one from {first} to \
                     {second}"
                )
            }
            _ => {
                let mut edges: Vec<(String, String)> = Vec::new();
                for before in self.befores() {
                    let edge = (before.end(&self.later, words), self.later.end(before, words));
                    if !edges.contains(&edge) {
                        edges.push(edge);
                    }
                }
                let edges: Vec<String> = edges.iter().map(|(from, to)| format!("from {from} to {to}")).collect();
                format!("add an edge {}", edges.join(" and one "))
            }
        }
    }

    /// Returns the nodes from which an edge must come.
    fn befores(&self) -> &[NodeSite] {
        if self.ends.is_empty() { std::slice::from_ref(&self.earlier) } else { &self.ends }
    }

    /// Advice for captures: edges come from events there, and go from nodes captured earlier to later ones.
    fn help_in_capture(&self, words: Words<'_>) -> Option<String> {
        if !self.kind.is_order() {
            return None;
        }
        let edges: Option<Vec<String>> = self.befores().iter().map(|before| self.wait_for(before, words)).collect();
        edges.map(|edges| edges.join("; "))
    }

    /// Returns the wait that puts the later node after another one, if both were captured.
    fn wait_for(&self, before: &NodeSite, words: Words<'_>) -> Option<String> {
        let (first, second) = match self.kind {
            Kind::Race if self.later.origin < before.origin => (&self.later, before),
            _ => (before, &self.later),
        };
        let (on_first, on_second) = first.captured_with(second)?;
        let (first_title, second_title) = (first.title(words.names), second.title(words.names));
        Some(match first.origin < second.origin {
            true => format!(
                "make {} wait, before it captures {second_title}, for an event that {} records after {first_title}",
                (words.stream)(on_second),
                (words.stream)(on_first)
            ),
            false => format!("{first_title} is captured after {second_title}: capture it before"),
        })
    }

    /// Returns the fault as one sentence.
    pub fn sentence(&self, names: &Names) -> String {
        let (subject, later, earlier) = (&self.subject, self.later.title(names), self.earlier.title(names));
        let act = self.later.act.past();
        match self.kind {
            Kind::UseBeforeAlloc | Kind::FreeBeforeAlloc => {
                format!("{subject} is {act} by {later} with no path from its alloc node to that")
            }
            Kind::FreeBeforeUse => {
                let uses = if self.earlier.act == Act::Write { "writes" } else { "reads" };
                format!("{subject} is freed by {later} with no path from {earlier}, which {uses} it, to that")
            }
            Kind::UseAfterFree => format!("{subject} is {act} by {later}, after it is freed"),
            Kind::Race => {
                format!(
                    "{subject} is {act} by {later} and {} by {earlier} with no path between them",
                    self.earlier.act.past()
                )
            }
            Kind::DoubleFree => format!("{subject} is freed by {later}, but it is freed already"),
            _ => {
                format!("{subject} has addresses of an earlier allocation, with no path from the end of that one to it")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Access, Addressing, Draft, Graph, GraphId, Refusal, Work};
    use std::sync::Arc;

    #[test]
    fn an_edge_to_a_node_of_a_child_is_one_to_the_child() {
        let memory = Memory::External { id: crate::ids::AllocId(0), generation: 1 };
        let write = [Access::whole(memory, Act::Write)];
        let graph = |id| Graph::new(GraphId(id), 512, Addressing::Symbolic);
        let (mut child, mut outer) = (graph(0), graph(1));
        child.add_work(Work::Kernel, &[], &write, Label::default()).unwrap();
        outer.add_child(&[], Arc::new(child.clone()), Label::default()).unwrap();
        outer.add_work(Work::Kernel, &[], &write, Label::default()).unwrap();
        let help = |graph: &Graph| match Draft::new(graph).unwrap_err() {
            Refusal::Faults(faults) => {
                let stream = |stream: StreamId| stream.to_string();
                faults[0].help(Words { names: &Names::new(), node: &|path| graph.site_at(path), stream: &stream })
            }
            other => panic!("{other}"),
        };
        assert_eq!(help(&outer), "add an edge between child graph node 0 and kernel node 1, either way");
        // Both are in the child, so the edge is the child's.
        child.add_work(Work::Kernel, &[], &write, Label::default()).unwrap();
        let mut outer = graph(2);
        outer.add_child(&[], Arc::new(child), Label::default()).unwrap();
        assert_eq!(help(&outer), "add an edge between kernel node 0.0 and kernel node 0.1, either way");
    }
}
