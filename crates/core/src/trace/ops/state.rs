//! The state of a trace while fields are written or read: the last numbers, the texts, the places.

use rustc_hash::FxHashMap;

use super::bytes::{Cursor, put_number};
use super::frame::Reason;
use crate::ids::HostId;
use crate::op::{Name, Names, Place};

/// The number of generations to remember, by the lowest bits of the allocation's number, so that memory does not
/// grow.
pub(super) const REMEMBERED: usize = 256;

/// The most bytes of a text. Longer texts are cut.
const TEXT_MAX: usize = 1 << 12;

/// The fields of the previous operations in this frame.
#[derive(Debug)]
pub(super) struct Last {
    pub(super) host: HostId,
    pub(super) memory: u32,
    pub(super) event: u32,
    pub(super) generations: [u64; REMEMBERED],
}

impl Last {
    pub(super) fn new() -> Self {
        Self { host: HostId(0), memory: 0, event: 0, generations: [0; REMEMBERED] }
    }
}

/// The destination of fields that are written.
pub(super) struct Out<'w> {
    pub(super) bytes: &'w mut Vec<u8>,
    pub(super) last: &'w mut Last,
    pub(super) names: &'w Names,
    pub(super) known: &'w mut Written,
}

/// The numbers of texts and places in a trace that is written.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub(super) names: FxHashMap<Name, u32>,
    /// The name written last, which is often the next one, too.
    last: Option<(Name, u32)>,
    /// The number of texts.
    pub(super) texts: u32,
    pub(super) places: Places,
}

/// The source of fields that are read.
pub(super) struct In<'r, 'b> {
    pub(super) bytes: Cursor<'b>,
    pub(super) last: &'r mut Last,
    pub(super) known: &'r mut Taken,
}

/// The texts and places of a trace that is read, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) names: Names,
    texts: Vec<Name>,
    pub(super) places: Vec<Place>,
}

/// The numbers of the places written so far.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// The `File` place written last, which is often the next one, too.
    pub(super) last: Option<(Place, u32)>,
    /// The numbers by file and line.
    pub(super) numbers: FxHashMap<(u32, u32), u32>,
    /// The numbers of the program's own locations by their address in memory: faster than by their content.
    pub(super) locations: FxHashMap<usize, u32>,
    /// The texts of their files, which are in no table of names.
    pub(super) files: FxHashMap<&'static str, u32>,
}

impl In<'_, '_> {
    #[inline]
    pub(super) fn number(&mut self) -> Result<u64, Reason> {
        self.bytes.number().ok_or(Reason::Short)
    }

    #[inline]
    pub(super) fn small(&mut self) -> Result<u32, Reason> {
        u32::try_from(self.number()?).map_err(|_| Reason::Field)
    }
}

/// Writes the number of a text, with the text if it is new.
#[inline]
pub(super) fn put_name(out: &mut Out<'_>, name: Name, above: u64) {
    match out.known.last {
        Some((last, number)) if last == name => put_number(out.bytes, u64::from(number) + above),
        _ => find_name(out, name, above),
    }
}

fn find_name(out: &mut Out<'_>, name: Name, above: u64) {
    if let Some(&number) = out.known.names.get(&name) {
        out.known.last = Some((name, number));
        return put_number(out.bytes, u64::from(number) + above);
    }
    let text = out.names.text(name).map_or("", |text| &**text);
    let number = put_text(out.bytes, out.known.texts, text, above);
    out.known.texts += 1;
    out.known.names.insert(name, number);
}

/// Writes the number of a new text, and the text.
pub(super) fn put_text(bytes: &mut Vec<u8>, number: u32, text: &str, above: u64) -> u32 {
    put_number(bytes, u64::from(number) + above);
    let end = (0..=TEXT_MAX.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
    let text = &text[..end.unwrap_or(0)];
    put_number(bytes, text.len() as u64);
    bytes.extend_from_slice(text.as_bytes());
    number
}

/// Reads the text with a number. A new text follows its number.
pub(super) fn take_name(from: &mut In<'_, '_>, number: u64) -> Result<Name, Reason> {
    if let Some(name) = from.known.texts.get(number as usize) {
        return Ok(*name);
    }
    if number != from.known.texts.len() as u64 {
        return Err(Reason::Unknown(number));
    }
    let length = usize::try_from(from.number()?).map_err(|_| Reason::Short)?;
    let text = std::str::from_utf8(from.bytes.take(length).ok_or(Reason::Short)?).map_err(|_| Reason::Text)?;
    let name = from.known.names.intern(text);
    from.known.texts.push(name);
    Ok(name)
}
