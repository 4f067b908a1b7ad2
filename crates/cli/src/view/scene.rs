//! What a page shows, as data: lives of allocations, what was reserved, marks, graphs.
//!
//! Knows neither where it came from nor how it is drawn. Steps are what the program did, counted from 0: of a recording
//! its events, of an operation trace its operations. Texts are named by their place in [`Scene::strings`], of which
//! the first is empty.

/// One life of an allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Life {
    /// The step that allocated it; lives are in this order.
    pub born: u64,
    /// The step that freed it, behind `born`; none where nothing did.
    pub freed: Option<u64>,
    /// Its size; at least 1.
    pub bytes: u64,
    /// The stream it was allocated on.
    pub stream: u32,
    /// The stream it was freed on; its own where it was not freed.
    pub free_stream: u32,
    /// Where it starts.
    pub address: u64,
    /// What it is called.
    pub name: u32,
    /// Where it was allocated.
    pub site: u32,
    /// Where it was freed.
    pub free_site: u32,
}

/// One use of an allocation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Touch {
    /// Which life; uses are in the order of lives and, within one, of steps.
    pub life: u32,
    /// The step, not before the life's birth.
    pub step: u64,
    /// The stream.
    pub stream: u32,
    /// Whether it is written.
    pub writes: bool,
}

/// Something wrong, to be marked.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Mark {
    /// The step that is refused.
    pub step: u64,
    /// The earlier step it goes against.
    pub since: Option<u64>,
    /// In one line.
    pub title: String,
    /// The whole explanation.
    pub text: String,
    /// The lives it concerns.
    pub allocations: Vec<u32>,
    /// The drawing whose nodes it concerns, by its place.
    pub graph: Option<usize>,
}

/// A graph of work with a place for each node.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Drawing {
    /// What it is called.
    pub name: String,
    /// Its nodes.
    pub nodes: Vec<Node>,
    /// From node to node, by their places in `nodes`.
    pub edges: Vec<(u32, u32)>,
    /// Paths that a violation misses, likewise.
    pub missing: Vec<(u32, u32)>,
}

/// A node of a graph.
#[derive(Clone, PartialEq, Debug, Default, serde::Serialize)]
pub struct Node {
    /// `alloc`, `free`, `kernel`, `record`, `wait` or `other`.
    pub kind: &'static str,
    /// In a few words.
    pub label: String,
    /// More about it; may be empty.
    pub note: String,
    /// Where in the source; may be empty.
    pub site: String,
    /// Whether a violation is about it.
    pub bad: bool,
    /// Its place in its layer, in columns.
    pub x: f64,
    /// Its layer, from the top.
    pub y: u32,
}

/// What a page shows.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Scene {
    /// What the program is called.
    pub name: String,
    /// What a step is called: `event` or `operation`.
    pub unit: &'static str,
    /// How many steps there are.
    pub steps: u64,
    /// The streams, by what they are called.
    pub streams: Vec<String>,
    /// All texts that lives name; the first is empty.
    pub strings: Vec<String>,
    /// Allocations, in the order of their births.
    pub lives: Vec<Life>,
    /// Uses of them, where they are known.
    pub touches: Vec<Touch>,
    /// Whether addresses are those that a pool served.
    pub placed: bool,
    /// From which step on how many bytes are reserved; empty where that is not known.
    pub reserved: Vec<(u64, u64)>,
    /// What is wrong.
    pub marks: Vec<Mark>,
    /// Whether it was checked, so that no mark means that nothing is wrong.
    pub checked: bool,
    /// Its graphs.
    pub graphs: Vec<Drawing>,
    /// What else the head of the page tells.
    pub facts: Vec<(String, String)>,
}

impl Scene {
    /// How many allocations and frees it has.
    pub fn events(&self) -> usize {
        self.lives.len() + self.lives.iter().filter(|life| life.freed.is_some()).count()
    }

    /// The most bytes that are live at once. What is freed at a step goes before what is allocated at it.
    pub fn peak_live(&self) -> u64 {
        let mut ends: Vec<(u64, u64)> =
            self.lives.iter().filter_map(|life| life.freed.map(|end| (end, life.bytes))).collect();
        ends.sort_unstable();
        let mut ends = ends.into_iter().peekable();
        let (mut live, mut peak) = (0_u64, 0);
        for life in &self.lives {
            while let Some((_, bytes)) = ends.next_if(|&(end, _)| end <= life.born) {
                live -= bytes;
            }
            live += life.bytes;
            peak = peak.max(live);
        }
        peak
    }
}

/// A count with its thousands apart.
pub(super) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}
