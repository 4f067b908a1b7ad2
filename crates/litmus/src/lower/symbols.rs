//! Names: definition, lookup and the refusal of names of another kind; the sizes of memory.

use millpond_core::ids::{EventId, ExecId, GraphId, HostId, PoolId, ProcessId, StreamId, TicketId};
use millpond_core::op::{Memory, Name, Thing};

use super::{Count, Lower, Symbol};
use crate::Refusal;

/// Writes the lookup functions for each kind of thing, given its symbol, its noun and the help on how to make one.
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
    /// Returns the thing for which findings use this name although no operation has it.
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
    /// Defines a name. It may be redefined only with the same kind of thing, and only by the same process.
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
                    // The checker judges who may use these.
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

    /// Makes findings use this name for the symbol's thing.
    fn call(&mut self, name: &str, symbol: Symbol) {
        if let Some(thing) = symbol.thing() {
            let name = self.names.intern(name);
            self.names.call(thing, name);
        }
    }

    /// Returns the name as a text for messages.
    pub(crate) fn name(&mut self, name: &str) -> Option<Name> {
        Some(self.names.intern(name))
    }

    pub(crate) fn symbol(&self, name: &str) -> Option<Symbol> {
        self.symbols.get(name).copied()
    }

    /// Returns the process of the current line.
    pub(crate) fn process(&self) -> ProcessId {
        self.processes.get(&self.host).copied().unwrap_or(ProcessId(0))
    }

    /// Refuses a name that another process defined: it has a meaning only there.
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

    /// Looks memory up by its name. A name that only a later line allocates is allowed, too: the checker judges it.
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

    /// Returns the memory that a name stands for from now on. If the name's memory was freed, it is the next generation
    /// of its number, as an allocator reuses a block.
    pub(crate) fn new_memory(&mut self, name: &str) -> Result<Memory, Refusal> {
        let memory = match self.symbols.get(name) {
            Some(Symbol::Memory(old)) if self.freed.remove(old) => Memory { generation: old.generation + 1, ..*old },
            _ => Memory::first(self.next(Count::Memory)),
        };
        self.define(name, Symbol::Memory(memory))?;
        Ok(memory)
    }

    /// Returns the memory of an alloc node, which has a number of its own.
    pub(crate) fn fresh_memory(&mut self, name: &str) -> Result<Memory, Refusal> {
        let memory = Memory::first(self.next(Count::Memory));
        self.define(name, Symbol::Memory(memory))?;
        Ok(memory)
    }

    /// Notes the size of memory.
    pub(crate) fn note_bytes(&mut self, memory: Memory, bytes: u64) {
        self.bytes.insert(memory, bytes);
    }

    /// Notes that memory has the size of other memory.
    pub(crate) fn note_bytes_of(&mut self, memory: Memory, other: Memory) {
        if let Some(bytes) = self.bytes_of(other) {
            self.note_bytes(memory, bytes);
        }
    }

    /// Returns the size of memory, if an earlier line gives it.
    pub(crate) fn bytes_of(&self, memory: Memory) -> Option<u64> {
        self.bytes.get(&memory).copied()
    }

    /// Notes that a line freed the memory.
    pub(crate) fn note_free(&mut self, memory: Memory) {
        self.freed.insert(memory);
    }
}

/// The help on valid names.
const NAMES: &str =
    "take ASCII letters, digits, `_`, `-`, `.` and `'`, a letter or `_` first, and no word of the language";

/// Words that cannot be names.
pub(crate) const WORDS: &[&str] =
    &["device", "now", "host", "capture", "repeat", "main", "read", "write", "external", "after", "in"];
