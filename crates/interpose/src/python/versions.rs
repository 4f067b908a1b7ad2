//! How versions of CPython lay out what is read of them. Written by `crates/interpose/layouts`.

use super::layout::{Layout, NONE, State};

/// The value of a field in each version.
pub(super) type Row = [usize; VERSIONS.len()];

pub(super) const VERSIONS: [u64; 5] = [0x30b, 0x30c, 0x30d, 0x30e, 0x30f];

pub(super) const LAYOUT: Layout<Row> = Layout {
    current: [56, 56, 184, 208, 208],
    through_frame_of_c: [8, 0, NONE, NONE, NONE],
    code: [32, 0, 240, 264, 328],
    previous: [48, 8, 232, 256, 320],
    instruction: [56, 56, 248, 272, 336],
    owner: [69, 70, 264, 288, 352],
    copies: [NONE, NONE, NONE, 392, 456],
    copy: [NONE, NONE, NONE, 304, 368],
    first_line: [72, 68, 312, 352, 416],
    file: [112, 112, 280, 320, 384],
    qualified_name: [128, 128, 296, 336, 400],
    lines: [136, 136, 304, 344, 408],
    instructions: [184, 192, 344, 384, 448],
    type_of: [8, 8, 360, 408, 472],
    bytes_length: [16, 16, 520, 600, 696],
    bytes_data: [32, 32, 528, 608, 704],
    text_length: [16, 16, 552, 632, 728],
    text_state: [32, 32, 544, 624, 720],
    ascii: [48, 40, 560, 640, 736],
    more_if_not_ascii: [24, 16, 16, 16, 16],
    state: State {
        width: [0x1c, 0x1c, 0x1c, 0x1c, 0x1c],
        is_compact: [0x20, 0x20, 0x20, 0x20, 0x20],
        is_ascii: [0x40, 0x40, 0x40, 0x40, 0x40],
    },
};

pub(super) const STATE_WITHOUT_LOCK: State<Row> = State {
    width: [0x1c, 0x1c, 0x1c, 0x700, 0x700],
    is_compact: [0x20, 0x20, 0x20, 0x800, 0x800],
    is_ascii: [0x40, 0x40, 0x40, 0x1000, 0x1000],
};
