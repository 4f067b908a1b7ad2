//! The line table of a code object (`co_linetable`, from Python 3.11 on).
//!
//! Entries follow each other, each for some instructions. An entry begins with a byte whose top bit is set: it has the
//! entry's form, and the number of two-byte units that the entry covers. Then come the values of that form. This module
//! knows only bytes.

/// The form of an entry without a line.
const NO_LINE: u8 = 15;
/// The form with a line, and columns as numbers.
const LONG: u8 = 14;
/// The form with a line and no columns.
const NO_COLUMNS: u8 = 13;

/// Returns the line of the instruction `at` bytes after the first one; `None` if it has no line.
pub(super) fn line_at(table: &[u8], first_line: u32, at: usize) -> Option<u32> {
    let (mut line, mut end, mut next) = (i64::from(first_line), 0, 0);
    while let Some(head) = table.get(next) {
        let form = head >> 3 & 15;
        end += 2 * (usize::from(head & 7) + 1);
        let delta = match form {
            NO_LINE => 0,
            LONG | NO_COLUMNS => difference(table.get(next + 1..).unwrap_or_default()),
            10..=12 => i64::from(form - 10),
            _ => 0,
        };
        line = line.checked_add(delta)?;
        if at < end {
            return u32::try_from(line).ok().filter(|_| form != NO_LINE);
        }
        let length = table[next + 1..].iter().take_while(|byte| **byte & 0x80 == 0).count();
        next += 1 + length;
    }
    None
}

/// Reads a difference: six bits a byte, the lowest first. The lowest bit of all is the sign.
fn difference(bytes: &[u8]) -> i64 {
    let mut number = 0_u64;
    for (place, byte) in bytes.iter().take(10).enumerate() {
        number |= u64::from(byte & 63) << (6 * place);
        if byte & 64 == 0 {
            break;
        }
    }
    let half = (number >> 1) as i64;
    if number & 1 == 1 { -half } else { half }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an entry of this form for this many units, followed by `rest`.
    fn entry(form: u8, units: u8, rest: &[u8]) -> Vec<u8> {
        [&[0x80 | form << 3 | (units - 1)], rest].concat()
    }

    #[test]
    fn every_form_has_its_line() {
        let table = [
            entry(0, 1, &[5]),                // line 7
            entry(11, 8, &[1, 2]),            // line 8
            entry(LONG, 2, &[9, 0, 1, 2]),    // 9 is -4: line 4
            entry(NO_COLUMNS, 1, &[0x48, 2]), // 8 and 2 * 64: +68: line 72
            entry(NO_LINE, 1, &[]),
            entry(10, 1, &[1, 2]), // line 72
        ]
        .concat();
        let lines: Vec<Option<u32>> = (0..15).map(|unit| line_at(&table, 7, unit * 2)).collect();
        assert_eq!(lines[0], Some(7));
        assert!(lines[1..9].iter().all(|line| *line == Some(8)));
        assert_eq!(lines[9..14], [Some(4), Some(4), Some(72), None, Some(72)]);
        assert_eq!(lines[14], None, "behind the last");
    }

    #[test]
    fn a_table_that_is_cut_is_read_as_far_as_it_goes() {
        assert_eq!(line_at(&[], 1, 0), None);
        assert_eq!(line_at(&[0x80 | LONG << 3], 1, 0), Some(1));
        assert_eq!(line_at(&[0x80 | LONG << 3, 0x7f], 1, 2), None);
        assert_eq!(line_at(&[0xff; 9], u32::MAX, 200), None);
        let far = [0x80 | NO_COLUMNS << 3, 0x7e, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f];
        assert_eq!(line_at(&far, 1, 0), None, "no such line");
    }
}
