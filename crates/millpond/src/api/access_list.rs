//! Accesses that are counted at run time, for kernels of other languages, which have their addresses from elsewhere.

use millpond_core::check::Act;
use smallvec::SmallVec;

use crate::api::raw::RawMemory;
use crate::names::count::Span;
use crate::names::error::Result;
use crate::state::access::{Access, Declared, sealed};
use crate::stream::handle::Stream;

/// Accesses of one launch, counted at run time. The kernel gets no slices: it has its addresses from elsewhere.
#[derive(Clone, Debug, Default)]
pub struct AccessList {
    items: SmallVec<[(Act, RawMemory, Span<u8>); 4]>,
}

impl AccessList {
    /// Adds a read of so many bytes, `offset` from the start.
    ///
    /// # Errors
    /// [`Invalid::Bounds`](crate::error::Invalid::Bounds) where they do not lie within.
    pub fn read(&mut self, memory: RawMemory, offset: u64, bytes: u64) -> Result<()> {
        self.add(Act::Read, memory, offset, bytes)
    }

    /// Adds a write, or a read and a write.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn write(&mut self, memory: RawMemory, offset: u64, bytes: u64) -> Result<()> {
        self.add(Act::Write, memory, offset, bytes)
    }

    fn add(&mut self, act: Act, memory: RawMemory, offset: u64, bytes: u64) -> Result<()> {
        let span = memory.span(offset, bytes)?;
        self.items.push((act, memory, span));
        Ok(())
    }
}

impl AccessList {
    /// Tells each access, in order.
    pub(crate) fn each<'s>(&'s self, tell: &mut dyn FnMut(Declared<'s>)) {
        self.items.iter().for_each(|(act, memory, span)| {
            tell(Declared { act: *act, source: memory.source(), part: span.part() });
        });
    }
}

impl sealed::Sealed for AccessList {}

/// No slices are made: a kernel of accesses counted at run time has its addresses from elsewhere.
impl Access for AccessList {
    type Slice<'a> = ();
    /// How many accesses it has.
    type Place = usize;

    fn declare<'s>(&'s self, tell: &mut dyn FnMut(Declared<'s>)) {
        self.each(tell);
    }

    fn place(&self, address: &mut dyn FnMut() -> u64) -> Self::Place {
        Self::moved(self.items.len(), address)
    }

    fn moved(count: Self::Place, address: &mut dyn FnMut() -> u64) -> Self::Place {
        // They are not for the accesses beside it.
        (0..count).for_each(|_| _ = address());
        count
    }

    fn ranges(_: &Self::Place, _: &mut dyn FnMut(u64, u64, bool)) {}

    #[allow(unsafe_code)] // There is nothing to make.
    unsafe fn slices<'a>(_: Self::Place) -> Self::Slice<'a> {}
}

/// For other languages and libraries, with [`raw`](crate::raw).
impl Stream {
    /// Says that the accesses of an operation happen at this point of the stream although it was refused: the program
    /// goes on as it is. As [`record_use`](Self::record_use) for each; in a trace is what was refused.
    pub fn record_refused(&self, list: &AccessList) {
        for (act, memory, span) in &list.items {
            if let Some(part) = span.part() {
                // A use of memory that was freed is the wrong order that is let pass; there is nothing to record.
                let _ = self.add_use(memory, (*act, part));
            }
        }
    }
}
