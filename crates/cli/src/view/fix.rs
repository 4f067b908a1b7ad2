//! The changes that `millpond check --fix` would make to a litmus program, line by line.

use millpond_litmus::{Fixed, Program};
use similar::{ChangeTag, TextDiff};

use super::scene::{Fix, Violation};

/// A page has no correction for a program with more operations times violations than `WORK_MAX`, or whose correction
/// takes more than `STEPS_MAX` steps: that would take longer than drawing the program.
const WORK_MAX: usize = 200_000;
const STEPS_MAX: usize = 400_000;
/// The number of unchanged lines shown around a change.
const AROUND: usize = 2;

/// Returns the correction of a program with violations.
pub(super) fn fix(text: &str, program: &Program, violations: &[Violation]) -> Option<Fix> {
    if violations.is_empty() || program.ops().len() * violations.len() > WORK_MAX {
        return None;
    }
    let Fixed { text: fixed, changes, left } =
        millpond_litmus::fix_within(text, &|settings| settings, STEPS_MAX).ok()?;
    let mut lines = Vec::new();
    let diff = TextDiff::from_lines(text, &fixed);
    for (at, group) in diff.grouped_ops(AROUND).iter().enumerate() {
        if at > 0 {
            lines.push((' ', 0, "...".to_owned()));
        }
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let sign = match change.tag() {
                ChangeTag::Equal => ' ',
                ChangeTag::Insert => '+',
                ChangeTag::Delete => '-',
            };
            let number = change.old_index().map_or(0, |index| index as u32 + 1);
            lines.push((sign, number, change.value().trim_end().to_owned()));
        }
    }
    let left = left.iter().filter(|left| !left.finding.kind.is_advice());
    let left: Vec<_> = left.map(|left| format!("{}: {}", left.finding.kind.name(), left.finding.help())).collect();
    // One change may correct many violations: those at the same line of a loop, and those that follow from another.
    let corrected = match left.is_empty() {
        true => violations.len(),
        false => changes.iter().filter(|change| !change.finding.kind.is_advice()).count(),
    };
    Some(Fix { lines, corrected, left })
}
