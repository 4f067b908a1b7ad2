//! Accesses whose number is known at run time, for kernels of other languages, which get their addresses elsewhere.

use millpond_core::check::Act;
use smallvec::SmallVec;

use crate::api::raw::RawMemory;
use crate::names::count::Span;
use crate::names::error::Result;
use crate::state::access::{Access, Declared, sealed};
use crate::stream::handle::Stream;

/// The accesses of one launch, whose number is known at run time. The kernel gets no slices: it has its addresses from
/// elsewhere.
#[derive(Clone, Debug, Default)]
pub struct AccessList {
    items: SmallVec<[(Act, RawMemory, Span<u8>); 4]>,
}

impl AccessList {
    /// Adds a read of `bytes` bytes, `offset` bytes from the start.
    ///
    /// # Errors
    /// Returns [`Invalid::Bounds`](crate::error::Invalid::Bounds) if the bytes are not within the memory.
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
    /// Passes each access to `tell`, in order.
    pub(crate) fn each<'s>(&'s self, tell: &mut dyn FnMut(Declared<'s>)) {
        self.items.iter().for_each(|(act, memory, span)| {
            tell(Declared { act: *act, source: memory.source(), part: span.part() });
        });
    }
}

impl sealed::Sealed for AccessList {}

/// Makes no slices: the kernel has its addresses from elsewhere.
impl Access for AccessList {
    type Slice<'a> = ();
    /// The number of accesses.
    type Place = usize;

    fn declare<'s>(&'s self, tell: &mut dyn FnMut(Declared<'s>)) {
        self.each(tell);
    }

    fn place(&self, address: &mut dyn FnMut() -> u64) -> Self::Place {
        Self::moved(self.items.len(), address)
    }

    fn moved(count: Self::Place, address: &mut dyn FnMut() -> u64) -> Self::Place {
        // Take these addresses: they are not for the accesses beside the list.
        (0..count).for_each(|_| _ = address());
        count
    }

    fn ranges(_: &Self::Place, _: &mut dyn FnMut(u64, u64, bool)) {}

    #[allow(unsafe_code)] // There is nothing to make.
    unsafe fn slices<'a>(_: Self::Place) -> Self::Slice<'a> {}
}

/// For other languages and libraries, with [`raw`](crate::raw).
impl Stream {
    /// Records the accesses of an operation at this point of the stream although it was refused, because the program
    /// goes on as it is. As [`record_use`](Self::record_use) for each access. A trace has what was refused.
    pub fn record_refused(&self, list: &AccessList) {
        for (act, memory, span) in &list.items {
            if let Some(part) = span.part() {
                // A use of memory that was freed is the violation that is let pass. There is nothing to record.
                let _ = self.add_use(memory, (*act, part));
            }
        }
    }
}
