//! A small picture of memory over time, for a terminal: requested bytes as blocks, reserved bytes as a shade above
//! them.

use std::fmt::Write;

use millpond_core::units::Bytes;

/// The height of the picture in lines.
const HEIGHT: usize = 8;
/// The widest picture. More columns would show nothing more.
const WIDTH_MAX: usize = 120;
/// The width where there is no terminal.
const WIDTH_DEFAULT: usize = 80;
/// The narrowest picture.
const WIDTH_MIN: usize = 40;
/// The columns left of the picture, for the scale.
const SCALE: usize = 12;

/// Blocks of one eighth to eight eighths of a line.
const BLOCKS: [char; 8] =
    ['\u{2581}', '\u{2582}', '\u{2583}', '\u{2584}', '\u{2585}', '\u{2586}', '\u{2587}', '\u{2588}'];
const SHADE: char = '\u{2591}';
const AXIS_UP: char = '\u{2502}';
const AXIS_TICK: char = '\u{2524}';
const AXIS_CORNER: char = '\u{2514}';
const AXIS_ALONG: char = '\u{2500}';

/// The memory of one slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sample {
    /// The peak of live bytes since the sample before.
    pub(crate) requested_bytes: u64,
    /// The bytes reserved at the end of the slice.
    pub(crate) reserved_bytes: u64,
}

/// Memory over time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Curve {
    /// The samples, at even distances.
    pub(crate) samples: Vec<Sample>,
    /// The number of events that the samples span.
    pub(crate) events: usize,
}

/// Returns the width of the picture for this terminal, in columns.
pub(crate) fn width() -> usize {
    let columns = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    columns.unwrap_or(WIDTH_DEFAULT).clamp(WIDTH_MIN, WIDTH_MAX)
}

/// Returns the picture, `width` columns wide; empty if no memory was used.
pub(crate) fn picture(curve: &Curve, width: usize) -> String {
    let columns = columns(&curve.samples, width.saturating_sub(SCALE + 1));
    let top = columns.iter().map(|column| column.requested_bytes.max(column.reserved_bytes)).max().unwrap_or(0);
    if top == 0 {
        return String::new();
    }
    let eighths = |bytes: u64| (bytes as f64 / top as f64 * (HEIGHT * 8) as f64).round() as usize;
    let mut text = String::new();
    for line in (0..HEIGHT).rev() {
        let (label, axis) = match line {
            _ if line + 1 == HEIGHT => (Bytes(top).to_string(), AXIS_TICK),
            _ if (line + 1) * 2 == HEIGHT => (Bytes(top / 2).to_string(), AXIS_TICK),
            _ => (String::new(), AXIS_UP),
        };
        let cells = columns.iter().map(|column| {
            let requested = eighths(column.requested_bytes).saturating_sub(line * 8);
            let reserved = eighths(column.reserved_bytes).saturating_sub(line * 8);
            match (requested, reserved) {
                (8.., _) => BLOCKS[7],
                (1.., _) => BLOCKS[requested - 1],
                (_, 4..) => SHADE,
                _ => ' ',
            }
        });
        let cells: String = cells.collect();
        push_line(&mut text, &format!("{label:>scale$}{axis}{cells}", scale = SCALE - 1));
    }
    let along: String = std::iter::repeat_n(AXIS_ALONG, columns.len()).collect();
    push_line(&mut text, &format!("{:>scale$}{AXIS_CORNER}{along}", 0, scale = SCALE - 1));
    let events = format!("{} events", curve.events);
    let legend = format!("{} requested  {SHADE} reserved", BLOCKS[7]);
    let room = columns.len().saturating_sub(legend.chars().count());
    let events = if events.len() + 2 <= room { events } else { String::new() };
    push_line(&mut text, &format!("{:SCALE$}{legend}{events:>room$}", ""));
    text
}

fn push_line(text: &mut String, line: &str) {
    writeln!(text, "{}", line.trim_end()).expect("a string takes everything");
}

/// Distributes the samples over columns. Each column has the maxima of its samples.
fn columns(samples: &[Sample], count: usize) -> Vec<Sample> {
    if samples.is_empty() {
        return Vec::new();
    }
    let column = |index: usize| {
        let start = index * samples.len() / count;
        let end = ((index + 1) * samples.len() / count).max(start + 1);
        let part = &samples[start..end];
        Sample {
            requested_bytes: part.iter().map(|sample| sample.requested_bytes).max().unwrap_or(0),
            reserved_bytes: part.iter().map(|sample| sample.reserved_bytes).max().unwrap_or(0),
        }
    };
    (0..count).map(column).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: &[(u64, u64)]) -> Curve {
        let samples =
            points.iter().map(|&(requested_bytes, reserved_bytes)| Sample { requested_bytes, reserved_bytes });
        Curve { samples: samples.collect(), events: 1234 }
    }

    /// Replaces the picture's characters: `#` for a full block, digits for eighths of one, `.` for the shade.
    fn letters(text: &str) -> String {
        let letter = |c: char| match BLOCKS.iter().position(|block| *block == c) {
            Some(7) => '#',
            Some(eighths) => char::from(b'1' + eighths as u8),
            None if c == SHADE => '.',
            None if [AXIS_UP, AXIS_TICK].contains(&c) => '|',
            None if c == AXIS_ALONG => '-',
            None if c == AXIS_CORNER => '+',
            None => c,
        };
        text.chars().map(letter).collect()
    }

    #[test]
    fn requested_is_blocks_and_reserved_a_shade_above() {
        let up = (1..=27).map(|step| (step * 100, 2700.min(step * 200)));
        let text = letters(&picture(&curve(&up.collect::<Vec<_>>()), 40));
        let expected = "     2700 B|            ...........136#
           |          ..........247####
           |         ........357#######
           |       ......146###########
     1350 B|     .....247##############
           |    ..135##################
           |  .146#####################
           |257########################
          0+---------------------------
            # requested  . reserved
";
        let shown: Vec<&str> = text.lines().collect();
        assert_eq!(shown.len(), HEIGHT + 2);
        assert_eq!(text, expected, "\n{text}");
    }

    #[test]
    fn the_number_of_events_is_shown_where_there_is_room() {
        let text = letters(&picture(&curve(&[(8, 8)]), 80));
        let last = text.lines().last().unwrap_or_default();
        assert!(
            last.starts_with("            # requested  . reserved   ") && last.ends_with("   1234 events"),
            "{text}"
        );
        assert_eq!(last.len(), 79, "it ends where the axis ends");
    }

    #[test]
    fn it_fits_its_width() {
        let many: Vec<(u64, u64)> = (0..512).map(|step| (step * step, 300_000)).collect();
        for width in [40, 80, 120] {
            let text = picture(&curve(&many), width);
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(widest.is_some_and(|widest| widest <= width), "{width}: {widest:?}\n{text}");
        }
    }

    #[test]
    fn few_samples_are_stretched_and_none_is_no_picture() {
        let text = picture(&curve(&[(8, 8)]), 80);
        assert_eq!(text.lines().next().unwrap().chars().filter(|c| *c == BLOCKS[7]).count(), 80 - SCALE - 1);
        assert_eq!(picture(&curve(&[]), 80), "");
        assert_eq!(picture(&curve(&[(0, 0)]), 80), "");
    }
}
