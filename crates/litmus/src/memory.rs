//! Statements about memory: allocated, used, freed, shared.

use millpond_core::ids::{PoolId, TicketId};
use millpond_core::op::{Access, Act, Memory, Space, Start, What};
use smallvec::SmallVec;

use crate::Refusal;
use crate::lower::{Count, Lower, Symbol};

/// The most bytes of an allocation.
const BYTES_MAX: u64 = 1 << 40;

impl Lower {
    /// Whether the words are such a statement; it is done then.
    pub(crate) fn memory_statement(&mut self, words: &[&str]) -> Result<bool, Refusal> {
        match *words {
            [name, "=", "alloc", "now", bytes] => self.alloc_now(name, Space::Device, bytes)?,
            [name, "=", "alloc", "host", bytes] => self.alloc_now(name, Space::Host, bytes)?,
            [name, "=", "alloc", stream, bytes] => self.alloc(name, stream, bytes, PoolId(0))?,
            [name, "=", "alloc", stream, bytes, "from", pool] => {
                let pool = self.pool(pool)?;
                self.alloc(name, stream, bytes, pool)?;
            }
            ["free", "now", name] => {
                let memory = self.memory(name)?;
                self.note_free(memory);
                self.push(What::FreeNow { memory })?;
            }
            ["free", stream, name] => {
                let (stream, memory) = (self.stream(stream)?, self.memory(name)?);
                self.note_free(memory);
                self.push(What::Free { memory, stream })?;
            }
            ["drop", name] => {
                let memory = self.memory(name)?;
                self.note_free(memory);
                self.push(What::Drop { memory })?;
            }
            ["name", memory, "as", name] => {
                let memory = self.memory(memory)?;
                self.define(name, Symbol::Memory(memory))?;
            }
            ["host", ref rest @ ..] => {
                let accesses = self.accesses(rest)?;
                self.push(What::HostAccess { accesses })?;
            }
            [act @ ("read" | "write"), stream, ref names @ ..] => {
                let mut accesses = SmallVec::new();
                self.add_accesses(&mut accesses, if act == "read" { Act::Read } else { Act::Write }, names)?;
                self.work(stream, accesses, Start::Ordered, None)?;
            }
            ["copy", stream, from, "to", to] => {
                let mut accesses = SmallVec::new();
                self.add_accesses(&mut accesses, Act::Read, &[from])?;
                self.add_accesses(&mut accesses, Act::Write, &[to])?;
                self.work(stream, accesses, Start::Ordered, None)?;
            }
            ["kernel", stream, ref rest @ ..] => {
                let (name, rest) = match rest {
                    [rest @ .., "named", name] => (Some(*name), rest),
                    rest => (None, rest),
                };
                let (start, rest) = match rest {
                    [rest @ .., "early"] => (Start::Early, rest),
                    rest => (Start::Ordered, rest),
                };
                let accesses = self.accesses(rest)?;
                self.work(stream, accesses, start, name)?;
            }
            ["export", memory, "as", ticket] => {
                let memory = self.memory(memory)?;
                let number = TicketId(self.next(Count::Ticket));
                self.define(ticket, Symbol::Ticket(number))?;
                self.push(What::Export { memory, ticket: number })?;
            }
            [name, "=", "import", ticket] => {
                let ticket = self.ticket(ticket)?;
                let memory = self.new_memory(name)?;
                self.push(What::Import { ticket, memory })?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// A number of bytes.
    pub(crate) fn bytes(&self, word: &str) -> Result<u64, Refusal> {
        self.count(word, 1..=BYTES_MAX)
    }

    fn alloc(&mut self, name: &str, stream: &str, bytes: &str, pool: PoolId) -> Result<(), Refusal> {
        let (stream, bytes) = (self.stream(stream)?, self.bytes(bytes)?);
        let (memory, name) = (self.new_memory(name)?, self.name(name));
        self.push(What::Alloc { memory, pool, stream, bytes, name })
    }

    fn alloc_now(&mut self, name: &str, space: Space, bytes: &str) -> Result<(), Refusal> {
        let bytes = self.bytes(bytes)?;
        let (memory, name) = (self.new_memory(name)?, self.name(name));
        self.push(What::AllocNow { memory, space, bytes, name })
    }

    fn work(
        &mut self,
        stream: &str,
        accesses: SmallVec<[Access; 2]>,
        start: Start,
        name: Option<&str>,
    ) -> Result<(), Refusal> {
        let stream = self.stream(stream)?;
        let name = name.and_then(|name| self.name(name));
        self.push(What::Launch { stream, accesses, start, name })
    }

    /// `read A B write C`: what a kernel does.
    pub(crate) fn accesses(&mut self, words: &[&str]) -> Result<SmallVec<[Access; 2]>, Refusal> {
        let mut accesses = SmallVec::new();
        let mut act = None;
        for word in words {
            match (*word, act) {
                ("read", _) => act = Some(Act::Read),
                ("write", _) => act = Some(Act::Write),
                (name, Some(act)) => self.add_accesses(&mut accesses, act, &[name])?,
                (name, None) => {
                    return self.refuse(format!("`{name}` is neither read nor written"), "say `read A B write C`");
                }
            }
        }
        Ok(accesses)
    }

    /// Adds what is named; a use of no bytes (`A[4..4]`) is no access. A write outweighs a read of the same memory.
    fn add_accesses(&mut self, accesses: &mut SmallVec<[Access; 2]>, act: Act, names: &[&str]) -> Result<(), Refusal> {
        if names.is_empty() {
            return self.refuse("nothing is named", "name the memory: `read S A`");
        }
        for name in names {
            let (name, is_empty) = self.range(name)?;
            let memory: Memory = self.memory(name)?;
            if is_empty {
                continue;
            }
            match accesses.iter_mut().find(|access| access.memory == memory) {
                Some(access) if act == Act::Write => access.act = Act::Write,
                Some(_) => {}
                None => accesses.push(Access { memory, act }),
            }
        }
        Ok(())
    }

    /// A name with a range of bytes behind it, perhaps; whether that is empty.
    fn range<'a>(&self, word: &'a str) -> Result<(&'a str, bool), Refusal> {
        let Some((name, range)) = word.split_once('[') else { return Ok((word, false)) };
        let bounds = range.strip_suffix(']').and_then(|range| range.split_once(".."));
        match bounds.map(|(from, to)| (from.parse::<u64>(), to.parse::<u64>())) {
            Some((Ok(from), Ok(to))) if from <= to => Ok((name, from == to)),
            _ => self.refuse(format!("`{word}` has no range of bytes"), "write it as `A[0..512]`"),
        }
    }
}
