//! A picture of a plan: steps to the right, bytes upwards, one rectangle a buffer. Self-contained SVG.
//!
//! Hovering over a rectangle shows the name of its buffer. A line shows the bytes that are live at each step. White
//! space above that line and below the capacity is unused room; white space below the line is waste. This module does
//! not depend on how the plan was found.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::io::{self, Write};

use millpond_core::units::Bytes;
use millpond_plan::Outcome;

use super::instance::{Instance, Row};

/// The size of the picture and the margins of the plot, in points.
const WIDTH: f64 = 1280.0;
const HEIGHT: f64 = 760.0;
const LEFT: f64 = 110.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 60.0;
const BOTTOM: f64 = 60.0;

/// The approximate number of ticks on an axis.
const TICKS: u64 = 8;

const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#333}.t{font-size:16px;font-weight:600}\
    .y{text-anchor:end}.x{text-anchor:middle}.g{stroke:#ddd}.b{stroke:#fff;stroke-width:.5}\
    .b:hover{stroke:#000;stroke-width:2}.l{fill:none;stroke:#222;stroke-width:1.2;pointer-events:none}\
    .c{stroke:#c22;stroke-width:1.5;stroke-dasharray:6 4}.k{text-anchor:end;fill:#c22}";

/// Maps steps and bytes to points.
struct Scale {
    first: i64,
    steps: f64,
    bytes: f64,
}

impl Scale {
    fn x(&self, step: i64) -> f64 {
        LEFT + step.abs_diff(self.first) as f64 / self.steps * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, bytes: u64) -> f64 {
        HEIGHT - BOTTOM - bytes as f64 / self.bytes * (HEIGHT - TOP - BOTTOM)
    }
}

/// Writes the picture.
pub(crate) fn write(out: &mut dyn Write, instance: &Instance, outcome: &Outcome, asked: Option<u64>) -> io::Result<()> {
    let rows = &instance.rows;
    let first = rows.iter().map(|row| row.life.lower).min().unwrap_or(0);
    let last = rows.iter().map(|row| row.life.upper).max().unwrap_or(1);
    let top = outcome.plan.capacity.max(asked.unwrap_or(0));
    let scale = Scale { first, steps: last.abs_diff(first) as f64, bytes: top as f64 };
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
         height=\"{HEIGHT}\">\n<style>{STYLE}</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>"
    )?;
    let title = format!(
        "{} buffers in {} ({} B); no plan needs less than {} B",
        rows.len(),
        Bytes(outcome.plan.capacity),
        outcome.plan.capacity,
        outcome.bound
    );
    writeln!(out, "<text class=\"t\" x=\"{LEFT}\" y=\"30\">{title}</text>")?;
    write_axes(out, &scale, first, last, top)?;
    for (at, (row, &offset)) in rows.iter().zip(&outcome.plan.offsets).enumerate() {
        write_buffer(out, &scale, at, row, offset)?;
    }
    write_live(out, &scale, rows)?;
    for (name, bytes) in [("asked for", asked), ("bound", Some(outcome.bound))] {
        let Some(bytes) = bytes else { continue };
        let (y, right) = (scale.y(bytes), WIDTH - RIGHT);
        writeln!(out, "<line class=\"c\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.2}\" y2=\"{y:.2}\"/>")?;
        let below = if name == "bound" { 16.0 } else { -5.0 };
        writeln!(out, "<text class=\"k\" x=\"{right}\" y=\"{:.2}\">{name}: {bytes} B</text>", y + below)?;
    }
    writeln!(out, "</svg>")
}

/// Writes grid lines, their values and the axis titles.
fn write_axes(out: &mut dyn Write, scale: &Scale, first: i64, last: i64, top: u64) -> io::Result<()> {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    let distance = (top / TICKS).max(1).next_power_of_two();
    for bytes in multiples(distance, top) {
        let y = scale.y(bytes);
        writeln!(out, "<line class=\"g\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.2}\" y2=\"{y:.2}\"/>")?;
        writeln!(out, "<text class=\"y\" x=\"{}\" y=\"{:.2}\">{}</text>", LEFT - 8.0, y + 4.0, Bytes(bytes))?;
    }
    let span = last.abs_diff(first);
    for steps in multiples(round_distance(span / TICKS), span) {
        let step = first.saturating_add_unsigned(steps);
        let x = scale.x(step);
        writeln!(out, "<line class=\"g\" x1=\"{x:.2}\" x2=\"{x:.2}\" y1=\"{TOP}\" y2=\"{bottom}\"/>")?;
        writeln!(out, "<text class=\"x\" x=\"{x:.2}\" y=\"{}\">{step}</text>", bottom + 20.0)?;
    }
    writeln!(out, "<text class=\"x\" x=\"{}\" y=\"{}\">step</text>", (LEFT + right) / 2.0, bottom + 44.0)?;
    let (x, y) = (22.0, (TOP + bottom) / 2.0);
    writeln!(out, "<text class=\"x\" x=\"{x}\" y=\"{y}\" transform=\"rotate(-90 {x} {y})\">offset</text>")
}

fn write_buffer(out: &mut dyn Write, scale: &Scale, at: usize, row: &Row, offset: u64) -> io::Result<()> {
    let Row { id, life, buffer } = row;
    let (left, right) = (scale.x(life.lower), scale.x(life.upper));
    let end = offset + buffer.bytes;
    let (top, bottom) = (scale.y(end), scale.y(offset));
    let (width, height) = ((right - left).max(0.1), (bottom - top).max(0.1));
    // Neighbouring buffers get hues that are far apart.
    let (hue, light) = (at as u64 * 137 % 360, 62 + at as u64 * 7 % 17);
    writeln!(
        out,
        "<rect class=\"b\" x=\"{left:.2}\" y=\"{top:.2}\" width=\"{width:.2}\" height=\"{height:.2}\" \
         fill=\"hsl({hue} 55% {light}%)\"><title>{}: {} B at {offset} up to {end}\nsteps {} up to {}</title></rect>",
        Escaped(id),
        buffer.bytes,
        life.lower,
        life.upper
    )
}

/// Writes a line of the bytes that are live at each step.
fn write_live(out: &mut dyn Write, scale: &Scale, rows: &[Row]) -> io::Result<()> {
    // The bytes that become live and that end at each step. The bytes live at once fit a `u64`. A step's births are
    // added before its ends are subtracted, hence `u128`.
    let mut changes: BTreeMap<i64, (u128, u128)> = BTreeMap::new();
    for Row { life, buffer, .. } in rows {
        changes.entry(life.lower).or_default().0 += u128::from(buffer.bytes);
        changes.entry(life.upper).or_default().1 += u128::from(buffer.bytes);
    }
    write!(out, "<path class=\"l\" d=\"M{LEFT} {:.2}", scale.y(0))?;
    let mut live: u128 = 0;
    for (step, (born, dead)) in changes {
        live = live + born - dead;
        write!(out, "H{:.2}V{:.2}", scale.x(step), scale.y(u64::try_from(live).unwrap_or(u64::MAX)))?;
    }
    writeln!(out, "\"><title>bytes live</title></path>")
}

/// The multiples of `distance` from 0 up to `end`.
fn multiples(distance: u64, end: u64) -> impl Iterator<Item = u64> {
    (0..=end / distance).map(move |n| n * distance)
}

/// Returns the smallest of 1, 2, 5, 10, 20, 50, ... that is at least `wanted`.
fn round_distance(wanted: u64) -> u64 {
    let mut power: u64 = 1;
    loop {
        for digit in [1, 2, 5] {
            match power.checked_mul(digit) {
                Some(distance) if distance >= wanted => return distance,
                Some(_) => {}
                None => return u64::MAX,
            }
        }
        power = power.saturating_mul(10);
    }
}

/// Text with the characters escaped that may not stand between tags.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            c if c.is_control() => f.write_str("\u{fffd}"),
            c => write!(f, "{c}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use millpond_plan::{Effort, solve};

    use super::*;

    fn picture(table: &str) -> String {
        let instance = super::super::read(table.as_bytes()).unwrap();
        let outcome = solve(&instance.problem, None, Effort::Quick);
        let mut out = Vec::new();
        write(&mut out, &instance, &outcome, Some(100)).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_buffer_is_a_rectangle_with_its_name() {
        let svg = picture("id,lower,upper,size\nb1,0,3,4\n<&>\x07,3,9,4\n");
        assert_eq!(svg.matches("<rect class=\"b\"").count(), 2);
        assert!(svg.contains("<title>b1: 4 B at 0 up to 4\nsteps 0 up to 3</title>"), "{svg}");
        assert!(svg.contains("&lt;&amp;&gt;\u{fffd}: 4 B"), "{svg}");
        assert!(svg.contains("asked for: 100 B") && svg.contains("bound: 4 B"));
        assert_eq!((svg.matches("<svg").count(), svg.matches("</svg>").count()), (1, 1));
    }

    #[test]
    fn extreme_numbers_stay_within_the_picture() {
        let (least, most) = (i64::MIN, i64::MAX);
        let svg = picture(&format!("id,lower,upper,size\na,{least},0,{0}\nb,0,{most},{0}\n", u64::MAX));
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert!(svg.len() < 10_000);
    }

    #[test]
    fn distances_are_round() {
        assert_eq!([0, 1, 3, 7, 131_072].map(round_distance), [1, 1, 5, 10, 200_000]);
        assert_eq!(round_distance(u64::MAX), u64::MAX);
    }
}
