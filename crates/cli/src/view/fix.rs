//! What `millpond check --fix` would change of a litmus program, line by line.

use millpond_litmus::{Fixed, Program};
use similar::{ChangeTag, TextDiff};

use super::scene::{Fix, Violation};

/// Programs of more operations times violations are not corrected for a page, and others in so many steps: more would
/// take longer than to draw it.
const WORK_MAX: usize = 200_000;
const STEPS_MAX: usize = 400_000;
/// So many lines are shown around one that changes.
const AROUND: usize = 2;

/// What corrects a program in which something is wrong.
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
    // One change may correct many: the same line of a loop, what followed from another one.
    let corrected = match left.is_empty() {
        true => violations.len(),
        false => changes.iter().filter(|change| !change.finding.kind.is_advice()).count(),
    };
    Some(Fix { lines, corrected, left })
}
