//! Statements about memory: allocation, use, free and sharing.

use std::ops::Range;

use millpond_core::ids::{DeviceId, PoolId, TicketId};
use millpond_core::op::{Access, Act, Memory, Part, Space, Trust, What};
use smallvec::SmallVec;

use crate::Refusal;
use crate::lower::{Count, Lower, Symbol};
use crate::statements::statements;

/// The largest number of accesses of an operation.
const ACCESSES_MAX: usize = 4096;
/// The largest size of an allocation in bytes.
const BYTES_MAX: u64 = 1 << 40;

impl Lower {
    statements! {
        /// Lowers a line about memory.
        fn memory_statement(&mut self, words) -> (), MEMORY_STATEMENTS;
        [a, "=", "alloc", "now", bytes] => self.alloc_now(a, Space::Device(DeviceId(0)), bytes);
        [a, "=", "alloc", "host", bytes] => self.alloc_now(a, Space::Host, bytes);
        [a, "=", "alloc", s, bytes] => self.alloc(a, s, bytes, PoolId(0));
        [a, "=", "alloc", s, bytes, "from", p] => {
            let pool = self.pool(p)?;
            self.alloc(a, s, bytes, pool)
        };
        ["free", "now", a] => {
            let memory = self.memory(a)?;
            self.note_free(memory);
            self.push(What::FreeNow { memory })
        };
        ["free", s, a] => {
            let (stream, memory) = (self.stream(s)?, self.memory(a)?);
            self.note_free(memory);
            self.push(What::Free { memory, stream, trust: Trust::None })
        };
        ["drop", a] => {
            let memory = self.memory(a)?;
            self.note_free(memory);
            self.push(What::Drop { memory })
        };
        ["name", a, "as", b] => {
            let memory = self.memory(a)?;
            self.define(b, Symbol::Memory(memory))
        };
        ["host", ref rest @ ..] "read A write B" => {
            let accesses = self.accesses(rest)?;
            self.push(What::HostAccess { accesses })
        };
        ["read", s, ref rest @ ..] "A B" => self.use_all(s, Act::Read, rest);
        ["write", s, ref rest @ ..] "A B" => self.use_all(s, Act::Write, rest);
        ["copy", s, a, "to", b] => {
            let mut accesses = SmallVec::new();
            self.add_accesses(&mut accesses, Act::Read, &[a])?;
            self.add_accesses(&mut accesses, Act::Write, &[b])?;
            let stream = self.stream(s)?;
            self.push(What::Copy { stream, accesses })
        };
        ["kernel", s, ref rest @ ..] "read A B write C [named N]" => self.kernel(s, rest);
        ["export", a, "as", t] => self.export(a, t);
        [a, "=", "import", t] => self.import(a, t);
    }

    fn use_all(&mut self, stream: &str, act: Act, names: &[&str]) -> Result<(), Refusal> {
        let mut accesses = SmallVec::new();
        self.add_accesses(&mut accesses, act, names)?;
        self.work(stream, accesses, None)
    }

    fn kernel(&mut self, stream: &str, rest: &[&str]) -> Result<(), Refusal> {
        let (name, rest) = match rest {
            [rest @ .., "named", name] => (Some(*name), rest),
            rest => (None, rest),
        };
        if let [.., "early"] = rest
            && self.symbol("early").is_none()
        {
            let help = "leave it out: a launch with programmatic stream serialization is judged as an ordinary one";
            return self.refuse("`early` is not a word of a kernel any more", help);
        }
        let accesses = self.accesses(rest)?;
        self.work(stream, accesses, name)
    }

    fn export(&mut self, memory: &str, ticket: &str) -> Result<(), Refusal> {
        let memory = self.memory(memory)?;
        let number = TicketId(self.next(Count::Ticket));
        self.define(ticket, Symbol::Ticket(number))?;
        let bytes = self.bytes_of(memory);
        self.offers.extend(bytes.map(|bytes| (number, bytes)));
        self.push(What::Export { memory, ticket: number })
    }

    fn import(&mut self, name: &str, ticket: &str) -> Result<(), Refusal> {
        let ticket = self.ticket(ticket)?;
        let memory = self.new_memory(name)?;
        if let Some(bytes) = self.offers.get(&ticket) {
            self.note_bytes(memory, *bytes);
        }
        self.push(What::Import { ticket, memory })
    }

    /// Parses a number of bytes.
    pub(crate) fn bytes(&self, word: &str) -> Result<u64, Refusal> {
        self.count(word, 1..=BYTES_MAX)
    }

    fn alloc(&mut self, name: &str, stream: &str, bytes: &str, pool: PoolId) -> Result<(), Refusal> {
        let (stream, bytes) = (self.stream(stream)?, self.bytes(bytes)?);
        let (memory, name) = (self.new_memory(name)?, self.name(name));
        self.note_bytes(memory, bytes);
        self.push(What::Alloc { memory, pool, stream, bytes, name })
    }

    fn alloc_now(&mut self, name: &str, space: Space, bytes: &str) -> Result<(), Refusal> {
        let bytes = self.bytes(bytes)?;
        let (memory, name) = (self.new_memory(name)?, self.name(name));
        self.note_bytes(memory, bytes);
        self.push(What::AllocNow { memory, space, bytes, name })
    }

    fn work(&mut self, stream: &str, accesses: SmallVec<[Access; 2]>, name: Option<&str>) -> Result<(), Refusal> {
        let stream = self.stream(stream)?;
        let name = name.and_then(|name| self.name(name));
        self.push(What::Launch { stream, accesses, trust: Trust::None, name })
    }

    /// Parses the accesses of a kernel: `read A B write C`.
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

    /// Adds accesses to the named memory. A use of no bytes (`A[4..4]`) is not an access. A repeated read is added
    /// once.
    fn add_accesses(&mut self, accesses: &mut SmallVec<[Access; 2]>, act: Act, names: &[&str]) -> Result<(), Refusal> {
        if names.is_empty() {
            return self.refuse("nothing is named", "name the memory: `read S A`");
        }
        for name in names {
            let (name, range) = self.range(name)?;
            let memory: Memory = self.memory(name)?;
            let bytes = self.bytes_of(memory);
            let part = match (range, bytes) {
                (None, _) => Part::WHOLE,
                (Some(range), Some(bytes)) if range.end > bytes => {
                    let what =
                        format!("`{name}[{}..{}]` does not lie within: `{name}` has {bytes} B", range.start, range.end);
                    return self.refuse(what, "use bytes that it has");
                }
                (Some(range), bytes) => match Part::new(range.start, range.end) {
                    Some(part) => part.within(bytes.unwrap_or(u64::MAX)),
                    None => continue,
                },
            };
            let access = Access { memory, act, part };
            if act == Act::Write || !accesses.contains(&access) {
                accesses.push(access);
            }
            if accesses.len() > ACCESSES_MAX {
                return self
                    .refuse("the operation names too much", format!("at most {ACCESSES_MAX} accesses are read"));
            }
        }
        Ok(())
    }

    /// Splits a name from the range of bytes that may follow it.
    fn range<'a>(&self, word: &'a str) -> Result<(&'a str, Option<Range<u64>>), Refusal> {
        let Some((name, range)) = word.split_once('[') else { return Ok((word, None)) };
        let bounds = range.strip_suffix(']').and_then(|range| range.split_once(".."));
        match bounds.map(|(from, to)| (from.parse::<u64>(), to.parse::<u64>())) {
            Some((Ok(from), Ok(to))) if from <= to => Ok((name, Some(from..to))),
            _ => self.refuse(format!("`{word}` has no range of bytes"), "write it as `A[0..512]`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Program;

    #[test]
    fn a_range_lies_within_its_memory() {
        let refused = |text: &str| Program::parse(text).expect_err("it does not lie within");
        let imported =
            "process q\npool p shared\nstream s\nq: stream t\na = alloc s 1024 from p\nexport a as k\nq: b = import k";
        let taken = "graph g\nstream s\nnode n in g: alloc a 1024\nx = instantiate g\nlaunch x s\nb = take a from x";
        for text in [
            "stream s\na = alloc s 1024\nwrite s a[1000..2000]",
            "graph g\nstream s\nnode n in g: alloc a 1024\nnode m in g after n: read a[0..1025]",
            &format!("{imported}\nq: write t b[1..1025]"),
            &format!("{taken}\nread s b[2..1030]"),
        ] {
            let refusal = refused(text);
            let line = text.lines().count() as u32;
            assert!(refusal.line == line && refusal.what.contains("has 1024 B"), "{refusal}");
        }
        let right = "stream s\na = alloc s 1024\nwrite s a[1000..1024]\nread s a[1024..1024]\nfree s a";
        assert!(Program::parse(right).is_ok_and(|program| program.check().is_empty()));
    }
}
