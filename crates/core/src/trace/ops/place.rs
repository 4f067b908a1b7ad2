//! The encoding of an operation's place: in full the first time, then by number.
//!
//! In full it is a *file* and a line. The file is 0 if there is none, 1 if the line is the number of another process,
//! and otherwise the number of a text plus 2. An unknown place is not written at all.

use std::panic::Location;

use super::bytes::put_number;
use super::frame::Reason;
use super::state::{In, Out, put_name, put_text, take_name};
use crate::op::Place;

const NO_FILE: u32 = 0;
const PROCESS: u32 = 1;
/// This is added to the numbers of texts.
const TEXT: u32 = 2;

/// Writes a place.
pub(super) fn put_place(out: &mut Out<'_>, place: &Place) {
    match *place {
        Place::Unknown => {}
        Place::Source(location) => put_location(out, location),
        Place::Line(line) | Place::Round { line, .. } => {
            put_numbered(out, NO_FILE, line, |out| out.bytes.push(NO_FILE as u8));
        }
        Place::Process(process) => {
            put_numbered(out, PROCESS, process, |out| out.bytes.push(PROCESS as u8));
        }
        Place::File { file, line } => {
            if let Some((last, number)) = out.known.places.last
                && last == *place
            {
                return put_number(out.bytes, u64::from(number));
            }
            let text = out.known.names.get(&file).copied().unwrap_or(out.known.texts);
            let number = put_numbered(out, text + TEXT, line, |out| put_name(out, file, u64::from(TEXT)));
            out.known.places.last = Some((*place, number));
        }
    }
}

/// Writes the number of a place. For a new place, writes its file with `put_file` and its line, too.
fn put_numbered(out: &mut Out<'_>, file: u32, line: u32, put_file: impl FnOnce(&mut Out<'_>)) -> u32 {
    let next = out.known.places.numbers.len() as u32;
    let number = *out.known.places.numbers.entry((file, line)).or_insert(next);
    put_number(out.bytes, u64::from(number));
    if number == next {
        put_file(out);
        put_number(out.bytes, u64::from(line));
    }
    number
}

#[inline]
fn put_location(out: &mut Out<'_>, location: &'static Location<'static>) {
    let at = std::ptr::from_ref(location).addr();
    match out.known.places.locations.get(&at) {
        Some(&number) => put_number(out.bytes, u64::from(number)),
        None => put_new_location(out, at, location),
    }
}

#[cold]
fn put_new_location(out: &mut Out<'_>, at: usize, location: &'static Location<'static>) {
    let (file, line) = (location.file(), location.line());
    let known = out.known.places.files.get(file).copied();
    let text = known.unwrap_or(out.known.texts);
    put_numbered(out, text + TEXT, line, |out| match known {
        Some(text) => put_number(out.bytes, u64::from(text + TEXT)),
        None => {
            put_text(out.bytes, text, file, u64::from(TEXT));
            out.known.texts += 1;
            out.known.places.files.insert(file, text);
        }
    });
    let number = out.known.places.numbers[&(text + TEXT, line)];
    out.known.places.locations.insert(at, number);
}

/// Reads a place.
pub(super) fn take_place(from: &mut In<'_, '_>) -> Result<Place, Reason> {
    let number = from.number()?;
    if let Some(place) = from.known.places.get(number as usize) {
        return Ok(*place);
    }
    if number != from.known.places.len() as u64 {
        return Err(Reason::Unknown(number));
    }
    let file = from.small()?;
    let named = if file >= TEXT { Some(take_name(from, u64::from(file - TEXT))?) } else { None };
    let line = from.small()?;
    let place = match named {
        Some(file) => Place::File { file, line },
        None if file == PROCESS => Place::Process(line),
        None => Place::Line(line),
    };
    from.known.places.push(place);
    Ok(place)
}
