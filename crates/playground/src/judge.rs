//! Judges a text: refuses it, or checks, draws and corrects the program.
//!
//! It does not depend on a browser. The checker judges, `millpond view` makes the page, and `check --fix` corrects.

use millpond_cli::view::litmus_page;
use millpond_core::check::Finding;
use millpond_litmus::{Fixed, Program};
use serde::Serialize;

/// The longest text, in bytes.
const TEXT_MAX: usize = 1 << 16;
/// The largest product of operations and findings for which a program is corrected, because a user waits for the
/// answer.
const WORK_MAX: usize = 200_000;

/// A finding.
#[derive(Serialize, Debug)]
pub struct Found {
    /// The rule.
    pub kind: String,
    /// `true` if it is advice.
    pub is_advice: bool,
    /// The line that breaks the rule, counted from 1; 0 if there is none.
    pub line: u32,
    /// The lines of the other sides.
    pub others: Vec<u32>,
    /// The explanation, with both sides and the help.
    pub text: String,
}

/// The answer to a text.
#[derive(Serialize, Default, Debug)]
pub struct Answer {
    /// The line and the reason, if the text is not a program.
    pub refusal: Option<(u32, String)>,
    /// The findings.
    pub findings: Vec<Found>,
    /// The differences between the findings and the program's expectations (`!!`).
    pub differences: Vec<String>,
    /// The program with the edges that its findings name, if there are any.
    pub fixed: Option<String>,
    /// The findings that no edge settles, with the help.
    pub left: Vec<String>,
    /// The page with the program's order.
    pub page: String,
}

/// Judges a text.
pub fn judge(text: &str) -> Answer {
    let refuse = |line, why: String| Answer { refusal: Some((line, why)), ..Answer::default() };
    if text.len() > TEXT_MAX {
        return refuse(0, format!("the program has {} bytes; {TEXT_MAX} are judged here", text.len()));
    }
    let program = match Program::parse(text) {
        Ok(program) => program,
        Err(refusal) => return refuse(refusal.line, format!("{}; {}", refusal.what, refusal.help)),
    };
    let findings = program.check();
    let page = match litmus_page("playground", text) {
        Ok(page) => String::from_utf8_lossy(&page).into_owned(),
        Err(refusal) => return refuse(0, refusal.to_string()),
    };
    let is_wrong = findings.iter().any(|finding| !finding.kind.is_advice());
    let is_short = program.ops().len() * findings.len() <= WORK_MAX;
    let fix = (is_wrong && is_short).then(|| millpond_litmus::fix(text, &|settings| settings).ok()).flatten();
    let (fixed, left) = match fix {
        Some(Fixed { text: fixed, left, .. }) => {
            let left = left.iter().filter(|left| !left.finding.kind.is_advice());
            let left = left.map(|left| format!("{}: {}", left.finding.kind.name(), left.finding.help())).collect();
            (Some(fixed).filter(|fixed| fixed != text), left)
        }
        None => (None, Vec::new()),
    };
    let differences = program.differences(&findings);
    Answer { refusal: None, findings: findings.iter().map(found).collect(), differences, fixed, left, page }
}

fn found(finding: &Finding) -> Found {
    let line = |side: &millpond_core::check::Side| side.spot.line.unwrap_or(0);
    let (later, earlier) = (finding.later.as_ref(), finding.earlier.as_ref());
    let others = later.and(earlier).into_iter().chain(&finding.others).map(line).collect();
    Found {
        kind: finding.kind.name().to_owned(),
        is_advice: finding.kind.is_advice(),
        line: later.or(earlier).map_or(0, line),
        others,
        text: finding.to_string(),
    }
}
