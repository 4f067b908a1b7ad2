//! What is said of a program: refused as a text, or judged, drawn and corrected.
//!
//! It knows no browser. The judge is the checker, the page is `millpond view`'s, the corrected program `check --fix`'s.

use millpond_cli::view::litmus_page;
use millpond_core::check::Finding;
use millpond_litmus::{Fixed, Program};
use serde::Serialize;

/// The longest text, in bytes.
const TEXT_MAX: usize = 1 << 16;
/// Programs of more operations times findings are not corrected: a person waits for the answer.
const WORK_MAX: usize = 200_000;

/// What is wrong with a program at one place.
#[derive(Serialize, Debug)]
pub struct Found {
    /// The rule.
    pub kind: String,
    /// Whether it is advice.
    pub is_advice: bool,
    /// The line that breaks it, counted from 1; 0 where none does.
    pub line: u32,
    /// The lines of the other sides.
    pub others: Vec<u32>,
    /// In words, with both sides and the help.
    pub text: String,
}

/// What is said of a text.
#[derive(Serialize, Default, Debug)]
pub struct Answer {
    /// Why it is not a program, and the line.
    pub refusal: Option<(u32, String)>,
    /// What is wrong with it.
    pub findings: Vec<Found>,
    /// Where it does not keep to what it expects of itself (`!!`).
    pub differences: Vec<String>,
    /// The program with the edges that its findings name, where there are such.
    pub fixed: Option<String>,
    /// What no edge settles, with the help.
    pub left: Vec<String>,
    /// The page of its order.
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
