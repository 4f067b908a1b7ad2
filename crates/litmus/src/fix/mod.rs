//! Corrects a litmus program: each finding's [edit](millpond_core::check::Edit) is made in its text, and tried.
//!
//! A change is taken only where the checker says that the finding is gone by it, and that there is none which was not
//! there before; but an operation that is no longer refused is done, so that what is found behind it may be new. What
//! no change puts right is left, with the reason.
//!
//! ```
//! let fixed = millpond_litmus::fix("
//!     stream s
//!     stream t
//!     a = alloc s 1024
//!     write t a
//!     free s a
//! ", &|settings| settings)?;
//! assert!(fixed.left.is_empty());
//! assert!(fixed.text.contains("wait t fix1"));
//! # Ok::<(), millpond_litmus::Refusal>(())
//! ```

mod edits;
mod lines;

use std::collections::{BTreeMap, HashSet};

use millpond_core::check::{Checker, Edit, Finding, Kind, Settings};
use millpond_core::ids::AllocId;

use crate::{Program, Refusal};
use lines::Lines;

/// So many operations, lines and findings [`fix`] looks at, all in all: hostile programs end.
const STEPS_MAX: usize = 6_000_000;
/// An order is a number for each stream: so many are looked at in one step.
const STREAMS_A_STEP: usize = 64;
/// So often the lines are read for one finding, about.
const READS: usize = 8;
/// So often the findings of one line are corrected: a change may uncover the next.
const ROUNDS_MAX: u32 = 8;

/// A finding that was corrected.
#[derive(Clone, Debug)]
pub struct Change {
    /// What was found, with the lines of the text as it was by then.
    pub finding: Finding,
    /// What was done.
    pub edit: Edit,
    /// The line in the text as it was given, where the finding was at one.
    pub line: Option<u32>,
}

/// A finding that is left.
#[derive(Clone, Debug)]
pub struct Left {
    /// What was found, with the lines of the corrected text.
    pub finding: Finding,
    /// Why nothing was done.
    pub why: String,
}

/// A program after [`fix`].
#[derive(Clone, Debug)]
pub struct Fixed {
    /// The corrected program.
    pub text: String,
    /// What was changed, in order.
    pub changes: Vec<Change>,
    /// What is still wrong.
    pub left: Vec<Left>,
}

/// Corrects a program; `adjust` says what is looked for, from what the program asks for.
///
/// # Errors
/// The text is no program.
pub fn fix(text: &str, adjust: &dyn Fn(Settings) -> Settings) -> Result<Fixed, Refusal> {
    fix_within(text, adjust, STEPS_MAX)
}

/// As [`fix`], with an end after about so many steps, each an operation, a line or a finding that is looked at: what is
/// wrong then is left.
///
/// # Errors
/// The text is no program.
pub fn fix_within(text: &str, adjust: &dyn Fn(Settings) -> Settings, steps: usize) -> Result<Fixed, Refusal> {
    let mut fixing = Fixing { adjust, steps: 0, most: steps };
    let mut at = fixing.judge(Lines::new(text)?)?;
    let (mut changes, mut made) = (Vec::new(), BTreeMap::<Key, u32>::new());
    let mut left: BTreeMap<Key, String> = BTreeMap::new();
    while !fixing.is_over()
        && let Some(next) = at.findings.iter().position(|finding| !left.contains_key(&at.key(finding)))
    {
        fixing.steps += next;
        let finding = at.findings[next].clone();
        let key = at.key(&finding);
        let rounds = made.entry(key).or_default();
        let next = match finding.edit() {
            _ if *rounds == ROUNDS_MAX => Err("it was corrected before, and was there again".to_owned()),
            Err(why) => Err(why.to_owned()),
            Ok(edit) => {
                fixing.correct(&at, &finding, edit).ok_or_else(|| match edits::is_launch(&at.lines, &finding) {
                    true if edit == Edit::LeaveOut => {
                        "it is done by a launch, and what else that does may be needed".into()
                    }
                    _ => format!("{} does not put it right by itself", tried(edit)),
                })
            }
        };
        match next {
            Err(why) => drop(left.insert(key, why)),
            Ok((edit, next)) => {
                *rounds += 1;
                changes.push(Change { finding, edit, line: key.1 });
                at = next;
                at.lines.settle(&at.findings);
                // What stood in the way may be gone.
                left.clear();
            }
        }
    }
    let at = fixing.spare(at);
    let too_large = "the program is too large for more attempts";
    let why = |finding: &Finding| left.get(&at.key(finding)).cloned().unwrap_or_else(|| too_large.to_owned());
    let left = at.findings.iter().map(|finding| Left { finding: finding.clone(), why: why(finding) }).collect();
    Ok(Fixed { text: at.lines.text(), changes, left })
}

/// What was tried, for a reader.
fn tried(edit: Edit) -> &'static str {
    match edit {
        Edit::Order => "a wait or a synchronisation before it",
        Edit::Edge => "an edge between the two nodes",
        Edit::LeaveOut => "leaving it out",
        Edit::MoveBehind => "moving the earlier side behind it",
        Edit::BehindLaunch => "moving it behind a launch",
        Edit::Free => "freeing the memory at the end",
        Edit::OutsideCapture => "moving it out of the capture",
        Edit::External => "the word `external`",
        Edit::Internal => "leaving the word `external` out",
        Edit::AutoFree => "the word `auto-free`",
        Edit::Symbolic => "the word `symbolic`",
        Edit::Shareable => "the word `shared`",
        Edit::Grant => "a grant to the device",
        _ => "what its help says",
    }
}

/// A rule, the line of the given text at which it is broken (none at what was put in), and the memory that it is about.
type Key = (Kind, Option<u32>, Option<AllocId>);

/// A text and what is found in it.
struct Judged {
    lines: Lines,
    findings: Vec<Finding>,
}

impl Judged {
    fn key(&self, finding: &Finding) -> Key {
        let line = finding.line().and_then(|line| self.lines.origin(line));
        (finding.kind, line, finding.subject.as_ref().map(|subject| subject.id))
    }

    fn counts(&self) -> BTreeMap<Key, usize> {
        let mut counts = BTreeMap::new();
        for finding in &self.findings {
            *counts.entry(self.key(finding)).or_default() += 1;
        }
        counts
    }

    /// Whether one finding is gone that was there `before`, and nothing is wrong that was not.
    fn is_better(&self, before: &Judged, gone: Key) -> bool {
        let (now, then) = (self.counts(), before.counts());
        let of = |counts: &BTreeMap<Key, usize>, key: &Key| counts.get(key).copied().unwrap_or(0);
        let is_known = |(key, count): (&Key, &usize)| key.0.is_advice() || *count <= of(&then, key);
        of(&now, &gone) < of(&then, &gone) && now.iter().all(is_known)
    }

    /// Whether nothing is found that was not there before, nor any advice.
    fn is_as_right(&self, before: &Judged) -> bool {
        let then = before.counts();
        self.counts().iter().all(|(key, count)| count <= then.get(key).unwrap_or(&0))
    }

    /// Whether one finding is gone, what was found before it is found still, and what was put in is right. Findings are
    /// in the order of the operations: what comes behind may be wrong now that the operation is done.
    fn is_further(&self, before: &Judged, gone: Key) -> bool {
        let of = |judged: &Judged| judged.counts().get(&gone).copied().unwrap_or(0);
        fn wrong(judged: &Judged) -> impl Iterator<Item = Key> {
            judged.findings.iter().map(|it| judged.key(it)).filter(|key| !key.0.is_advice())
        }
        let first = wrong(before).take_while(|key| *key != gone);
        let is_right =
            |it: &Finding| it.kind.is_advice() || it.line().is_none_or(|line| self.lines.origin(line).is_some());
        of(self) < of(before)
            && first.eq(wrong(self).take(wrong(before).take_while(|key| *key != gone).count()))
            && self.findings.iter().all(is_right)
    }
}

/// Tries changes.
struct Fixing<'a> {
    adjust: &'a dyn Fn(Settings) -> Settings,
    steps: usize,
    most: usize,
}

impl Fixing<'_> {
    fn is_over(&self) -> bool {
        self.steps > self.most
    }

    fn judge(&mut self, lines: Lines) -> Result<Judged, Refusal> {
        let program = Program::parse(&lines.text())?;
        self.steps += (program.ops().len() + lines.len()) * (1 + lines.streams() / STREAMS_A_STEP);
        let (mut checker, mut findings) = (Checker::new((self.adjust)(program.settings())), Vec::new());
        for op in program.ops() {
            checker.check(op, program.names(), &mut findings);
        }
        checker.finish(program.names(), &mut findings);
        Ok(Judged { lines, findings })
    }

    /// The first change that puts a finding right: one by which nothing else is wrong, or else one by which only
    /// something is that the operation does now that it is done, or that comes after it.
    fn correct(&mut self, at: &Judged, finding: &Finding, edit: Edit) -> Option<(Edit, Judged)> {
        self.steps += READS * at.lines.len();
        let gone = at.key(finding);
        let mut others = Vec::new();
        for (edit, lines) in edits::candidates(&at.lines, finding, edit) {
            if self.is_over() {
                return None;
            }
            let Ok(next) = self.judge(lines) else { continue };
            if next.is_better(at, gone) {
                return Some((edit, self.smallest(at, gone, next)));
            }
            others.push((edit, next));
        }
        // By the end of the program all operations are done: what is freed uncovers what else is not, and nothing more.
        let known = at.counts();
        let may_follow = |next: &Judged| {
            let is_known = |it: &Finding| it.kind == Kind::Leak || known.contains_key(&next.key(it));
            finding.kind != Kind::Leak || next.findings.iter().all(is_known)
        };
        others.into_iter().find(|(_, next)| may_follow(next) && next.is_further(at, gone))
    }

    /// Without what was put in and is not needed any more: what was put in for a later finding may do for an earlier
    /// one. From the last line to the first, as a record is needed while its wait is there; in a quarter of the steps
    /// that are left, as [`smallest`](Self::smallest).
    fn spare(&mut self, mut at: Judged) -> Judged {
        let until = self.steps + self.most.saturating_sub(self.steps) / 4;
        let mut line = at.lines.len() as u32;
        while let Some((put_in, lines)) = at.lines.without_last(line) {
            line = put_in - 1;
            if self.steps > until {
                break;
            }
            if let Ok(next) = self.judge(lines)
                && next.is_as_right(&at)
            {
                at = next;
            }
        }
        at
    }

    /// Without what was put in and is not needed: of several waits some may follow from others. It is right without
    /// this: a quarter of the steps that are left must do.
    fn smallest(&mut self, at: &Judged, gone: Key, mut best: Judged) -> Judged {
        let (mut seen, until) = (HashSet::new(), self.steps + self.most.saturating_sub(self.steps) / 4);
        while let Some((pair, lines)) = best.lines.without_one(&seen) {
            seen.insert(pair);
            if self.steps > until {
                break;
            }
            if let Ok(next) = self.judge(lines)
                && next.is_better(at, gone)
            {
                best = next;
            }
        }
        best
    }
}
