//! The layout of an interpreter: its version's column of the table, and its description of itself.
//!
//! From 3.13 on an interpreter describes itself (`_Py_DebugOffsets`, at the start of `_PyRuntime`), with the global
//! lock or without it. `versions` has the place of each offset in that description, and the offsets of 3.11 and 3.12.

use super::layout::{Layout, Memory, NONE, State};
use super::versions::{LAYOUT, Row, STATE_WITHOUT_LOCK, VERSIONS};

/// The first version that describes itself.
const DESCRIBED: u64 = 0x30d;
/// The start of a description. The version follows, and then whether there is no lock, 8 bytes each.
const COOKIE: [u8; 8] = *b"xdebugpy";
/// The largest offset: no structure is larger.
const OFFSET_MAX: usize = 1 << 14;

/// Returns the layout of a version (as in `Py_Version`), whose description of itself is at an address. `None` if the
/// version is not known, or the description is of another one.
pub(super) fn layout_of(version: u64, description: usize, memory: &Memory) -> Option<Layout> {
    let column = VERSIONS.iter().position(|it| *it == version >> 16)?;
    let is_described = version >> 16 >= DESCRIBED;
    let has = |offset| memory.word(description, offset);
    if is_described && (memory.number(description, 0)? != COOKIE || has(8)? as u64 != version) {
        return None;
    }
    let has_no_lock = match is_described {
        false => false,
        true => match has(16)? {
            0 => false,
            1 => true,
            _ => return None,
        },
    };
    let offset = |row: Row| match row[column] {
        NONE => Some(NONE),
        place if is_described => has(place).filter(|offset| *offset < OFFSET_MAX),
        offset => Some(offset),
    };
    let of_copies = |row| if has_no_lock { offset(row) } else { Some(NONE) };
    let State { width, is_compact, is_ascii } = if has_no_lock { STATE_WITHOUT_LOCK } else { LAYOUT.state };
    Some(Layout {
        current: offset(LAYOUT.current)?,
        // The description lacks this one, and the last two.
        through_frame_of_c: LAYOUT.through_frame_of_c[column],
        code: offset(LAYOUT.code)?,
        previous: offset(LAYOUT.previous)?,
        instruction: offset(LAYOUT.instruction)?,
        owner: offset(LAYOUT.owner)?,
        copies: of_copies(LAYOUT.copies)?,
        copy: of_copies(LAYOUT.copy)?,
        first_line: offset(LAYOUT.first_line)?,
        file: offset(LAYOUT.file)?,
        qualified_name: offset(LAYOUT.qualified_name)?,
        lines: offset(LAYOUT.lines)?,
        instructions: offset(LAYOUT.instructions)?,
        type_of: offset(LAYOUT.type_of)?,
        bytes_length: offset(LAYOUT.bytes_length)?,
        bytes_data: offset(LAYOUT.bytes_data)?,
        text_length: offset(LAYOUT.text_length)?,
        text_state: offset(LAYOUT.text_state)?,
        ascii: offset(LAYOUT.ascii)?,
        more_if_not_ascii: LAYOUT.more_if_not_ascii[column],
        state: State { width: width[column], is_compact: is_compact[column], is_ascii: is_ascii[column] },
    })
}
