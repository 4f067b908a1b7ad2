//! What names stand for: made, looked up, refused where they stand for something else; memory with its size.

use millpond_core::ids::{EventId, ExecId, GraphId, HostId, PoolId, ProcessId, StreamId, TicketId};
use millpond_core::op::{Memory, Name, Thing};

use super::{Count, Lower, Symbol};
use crate::Refusal;

/// Writes what looks each kind of thing up: by which symbol, what it is called, and how one is made.
macro_rules! lookups {
    ($($kind:ident: $symbol:ident($id:ty), $noun:literal, $help:literal;)*) => {
        impl Lower {$(
            pub(crate) fn $kind(&self, name: &str) -> Result<$id, Refusal> {
                match self.symbols.get(name) {
                    Some(Symbol::$symbol(id)) => self.of_this_process(name).map(|()| *id),
                    _ => self.wrong(name, $noun, &format!($help, name)),
                }
            }
        )*}
    };
}

lookups! {
    stream: Stream(StreamId), "a stream", "make one before, with `stream {}`";
    event: Event(EventId), "an event", "record it before, or make it with `event {}`";
    pool: Pool(PoolId), "a pool", "make one before, with `pool {}`";
    graph: Graph(GraphId), "a graph", "make one before, with `graph {0}` or `capture S as {0}`";
    exec: Exec(ExecId), "an instance", "make one before, with `{} = instantiate G`";
    ticket: Ticket(TicketId), "a ticket", "make one before, with `export A as {}`";
    host: Host(HostId), "a thread", "make one before, with `thread {0}` or `process {0}`";
}

impl Symbol {
    /// What findings call by its name, though no operation tells them.
    fn thing(self) -> Option<Thing> {
        match self {
            Symbol::Event(event) => Some(Thing::Event(event)),
            Symbol::Pool(pool) => Some(Thing::Pool(pool)),
            Symbol::Graph(graph) => Some(Thing::Graph(graph)),
            Symbol::Exec(exec) => Some(Thing::Exec(exec)),
            Symbol::Memory(memory) => Some(Thing::Memory(memory)),
            _ => None,
        }
    }
}

impl Lower {
    /// Gives a name a meaning. Memory keeps a name for itself; others may take one over from their own kind.
    pub(crate) fn define(&mut self, name: &str, symbol: Symbol) -> Result<(), Refusal> {
        let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.'".contains(c))
            && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && !WORDS.contains(&name);
        if !is_name {
            return self.refuse(format!("`{name}` cannot be a name"), NAMES);
        }
        match self.symbols.get(name) {
            Some(old) if std::mem::discriminant(old) != std::mem::discriminant(&symbol) => {
                self.refuse(format!("`{name}` is {} already", old.noun()), "take another name")
            }
            _ if self.owners.get(name).is_some_and(|owner| *owner != self.process()) => {
                self.refuse(format!("`{name}` is another process's already"), "take another name")
            }
            _ => {
                match symbol {
                    // Who may use these is for the checker to judge.
                    Symbol::Event(_) | Symbol::Ticket(_) | Symbol::Host(_) => None,
                    _ => self.owners.insert(name.to_owned(), self.process()),
                };
                if let Symbol::Memory(memory) = symbol {
                    self.called.entry(memory.id).or_insert_with(|| name.to_owned());
                }
                self.call(name, symbol);
                self.symbols.insert(name.to_owned(), symbol);
                Ok(())
            }
        }
    }

    /// Findings call what a symbol stands for by this name.
    fn call(&mut self, name: &str, symbol: Symbol) {
        if let Some(thing) = symbol.thing() {
            let name = self.names.intern(name);
            self.names.call(thing, name);
        }
    }

    /// The name as a text for messages.
    pub(crate) fn name(&mut self, name: &str) -> Option<Name> {
        Some(self.names.intern(name))
    }

    pub(crate) fn symbol(&self, name: &str) -> Option<Symbol> {
        self.symbols.get(name).copied()
    }

    /// The process that the line is of.
    pub(crate) fn process(&self) -> ProcessId {
        self.processes.get(&self.host).copied().unwrap_or(ProcessId(0))
    }

    /// Refuses what another process made: that has a meaning there only.
    pub(crate) fn of_this_process(&self, name: &str) -> Result<(), Refusal> {
        match self.owners.get(name) {
            Some(owner) if *owner != self.process() => self.refuse(
                format!("`{name}` is another process's"),
                "each process has streams, pools and graphs of its own; memory goes from one to the other by \
                 `export A as K` there and `B = import K` here",
            ),
            _ => Ok(()),
        }
    }

    fn wrong<T>(&self, name: &str, wanted: &str, help: &str) -> Result<T, Refusal> {
        match self.symbols.get(name) {
            Some(symbol) => self.refuse(
                format!("`{name}` is {}, not {wanted}", symbol.noun()),
                "is another name meant, or another order of the words? docs/litmus.md has all statements",
            ),
            None => self.refuse(format!("there is no `{name}`"), help),
        }
    }

    /// Memory by its name. One that only a later line allocates may be named, too: that is for the checker to judge.
    pub(crate) fn memory(&mut self, name: &str) -> Result<Memory, Refusal> {
        match self.symbols.get(name) {
            Some(Symbol::Memory(memory)) => self.of_this_process(name).map(|()| *memory),
            None if self.promised.contains(name) => {
                let memory = Memory::first(self.next(Count::Memory));
                self.symbols.insert(name.to_owned(), Symbol::Memory(memory));
                self.call(name, Symbol::Memory(memory));
                self.freed.insert(memory);
                Ok(memory)
            }
            _ => self.wrong(name, "memory", &format!("allocate it, with `{name} = alloc S 1024`")),
        }
    }

    /// The memory that a name stands for from now on. A name whose memory was freed gets the next life of its number,
    /// as an allocator gives a block out again.
    pub(crate) fn new_memory(&mut self, name: &str) -> Result<Memory, Refusal> {
        let memory = match self.symbols.get(name) {
            Some(Symbol::Memory(old)) if self.freed.remove(old) => Memory { generation: old.generation + 1, ..*old },
            _ => Memory::first(self.next(Count::Memory)),
        };
        self.define(name, Symbol::Memory(memory))?;
        Ok(memory)
    }

    /// Memory of an alloc node: a number of its own.
    pub(crate) fn fresh_memory(&mut self, name: &str) -> Result<Memory, Refusal> {
        let memory = Memory::first(self.next(Count::Memory));
        self.define(name, Symbol::Memory(memory))?;
        Ok(memory)
    }

    /// Memory has so many bytes.
    pub(crate) fn note_bytes(&mut self, memory: Memory, bytes: u64) {
        self.bytes.insert(memory, bytes);
    }

    /// Memory has as many bytes as other memory.
    pub(crate) fn note_bytes_of(&mut self, memory: Memory, other: Memory) {
        if let Some(bytes) = self.bytes_of(other) {
            self.note_bytes(memory, bytes);
        }
    }

    /// How many bytes memory has, where a line above says so.
    pub(crate) fn bytes_of(&self, memory: Memory) -> Option<u64> {
        self.bytes.get(&memory).copied()
    }

    /// The memory was freed by some line.
    pub(crate) fn note_free(&mut self, memory: Memory) {
        self.freed.insert(memory);
    }
}

/// What may be a name.
const NAMES: &str =
    "take ASCII letters, digits, `_`, `-`, `.` and `'`, a letter or `_` first, and no word of the language";

/// Words that cannot be names.
pub(crate) const WORDS: &[&str] =
    &["device", "now", "host", "capture", "repeat", "main", "read", "write", "external", "after", "in"];
