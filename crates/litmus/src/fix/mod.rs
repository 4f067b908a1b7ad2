//! Writes the edges that findings name into a litmus program, and tries them.
//!
//! Edges are kept only if the checker finds that they remove the finding and add no new one. There is one exception: an
//! operation that is no longer refused takes effect, so findings after it may be new. Findings that no edge settles are
//! left, with their help.
//!
//! ```
//! let fixed = millpond_litmus::fix("
//!     stream s
//!     stream t
//!     a = alloc s 64
//!     write t a
//!     free s a
//! ", &|settings| settings)?;
//! assert!(fixed.left.is_empty());
//! assert!(fixed.text.contains("wait t fix1"));
//! # Ok::<(), millpond_litmus::Refusal>(())
//! ```

mod edges;
mod lines;

use std::collections::BTreeMap;

use millpond_core::check::{Checker, Edit, Finding, Kind, Settings};
use millpond_core::ids::AllocId;

use crate::{Program, Refusal};
pub use lines::Added;
use lines::Lines;

/// The largest number of operations, lines and findings that [`fix`] looks at in total. It stops on hostile programs.
const STEPS_MAX: usize = 6_000_000;
/// A snapshot has a number for each stream. This many of them count as one step.
const STREAMS_A_STEP: usize = 64;
/// The approximate number of times that the lines are read for one finding.
const READS: usize = 8;
/// The largest number of times that edges are added for one line, because they may uncover the next finding.
const ROUNDS_MAX: u32 = 8;

/// A finding that edges settle.
#[derive(Clone, Debug)]
pub struct Change {
    /// The finding, with the lines of the text at that time.
    pub finding: Finding,
    /// The line in the original text, if the finding was at one.
    pub line: Option<u32>,
    /// The edges.
    pub added: Vec<Added>,
}

/// A finding that is left.
#[derive(Clone, Debug)]
pub struct Left {
    /// The finding, with the lines of the corrected text. Its help says what to do.
    pub finding: Finding,
    /// The reason why the edges that it names were not added, if it names any.
    pub why: Option<&'static str>,
}

/// A program after [`fix`].
#[derive(Clone, Debug)]
pub struct Fixed {
    /// The program with the edges.
    pub text: String,
    /// The settled findings, in the order in which their edges were added.
    pub changes: Vec<Change>,
    /// The findings that are left.
    pub left: Vec<Left>,
}

/// Adds the edges that a program's findings name. `adjust` maps the program's own settings to those to use.
///
/// # Errors
/// The text is not a program.
pub fn fix(text: &str, adjust: &dyn Fn(Settings) -> Settings) -> Result<Fixed, Refusal> {
    fix_within(text, adjust, STEPS_MAX)
}

/// As [`fix`], but ends after about `steps` steps. A step is an operation, a line or a finding that is looked at.
/// Findings that remain then are left.
///
/// # Errors
/// The text is not a program.
pub fn fix_within(text: &str, adjust: &dyn Fn(Settings) -> Settings, steps: usize) -> Result<Fixed, Refusal> {
    let mut fixing = Fixing { adjust, steps: 0, most: steps };
    let mut at = fixing.judge(Lines::new(text)?)?;
    let (mut settled, mut made) = (Vec::new(), BTreeMap::<Key, u32>::new());
    let mut left: BTreeMap<Key, &'static str> = BTreeMap::new();
    while !fixing.is_over()
        && let Some((next, edit)) = at.next(|key| !left.contains_key(key))
    {
        fixing.steps += next;
        let finding = at.findings[next].clone();
        let key = at.key(&finding);
        let rounds = made.entry(key).or_default();
        let corrected = if *rounds < ROUNDS_MAX { fixing.correct(&at, &finding, edit) } else { None };
        match corrected {
            None => drop(left.insert(key, "the edges that it names do not settle it by themselves")),
            Some(next) => {
                *rounds += 1;
                settled.push((finding, key.1));
                at = next;
                at.lines.settle(&at.findings);
                // A former obstacle may be gone.
                left.clear();
            }
        }
    }
    let why = |finding: &Finding| {
        let too_large = "the program is too large for more attempts";
        finding.edit().map(|_| left.get(&at.key(finding)).copied().unwrap_or(too_large))
    };
    let left = at.findings.iter().map(|finding| Left { finding: finding.clone(), why: why(finding) }).collect();
    let changes = (1..).zip(settled).map(|(change, (finding, line))| {
        let added = at.lines.added(change);
        Change { finding, line, added }
    });
    Ok(Fixed { text: at.lines.text(), changes: changes.collect(), left })
}

/// A rule, the line of the original text at which it is broken (`None` for an inserted line), and the memory concerned.
type Key = (Kind, Option<u32>, Option<AllocId>);

/// A text and its findings.
struct Judged {
    lines: Lines,
    findings: Vec<Finding>,
}

impl Judged {
    fn key(&self, finding: &Finding) -> Key {
        let line = finding.line().and_then(|line| self.lines.origin(line));
        (finding.kind, line, finding.subject.as_ref().map(|subject| subject.id))
    }

    /// Returns the first finding that names edges and is wanted.
    fn next(&self, is_wanted: impl Fn(&Key) -> bool) -> Option<(usize, Edit)> {
        let findings = self.findings.iter().enumerate();
        findings.filter(|(_, it)| is_wanted(&self.key(it))).find_map(|(at, it)| Some((at, it.edit()?)))
    }

    fn counts(&self) -> BTreeMap<Key, usize> {
        let mut counts = BTreeMap::new();
        for finding in &self.findings {
            *counts.entry(self.key(finding)).or_default() += 1;
        }
        counts
    }

    /// Returns `true` if a finding that was there `before` is gone, and there is no new one.
    fn is_better(&self, before: &Judged, gone: Key) -> bool {
        let (now, then) = (self.counts(), before.counts());
        let of = |counts: &BTreeMap<Key, usize>, key: &Key| counts.get(key).copied().unwrap_or(0);
        let is_known = |(key, count): (&Key, &usize)| key.0.is_advice() || *count <= of(&then, key);
        of(&now, &gone) < of(&then, &gone) && now.iter().all(is_known)
    }

    /// Returns `true` if a finding is gone, the findings before it are unchanged, and the inserted lines have none.
    /// Findings are in the order of the operations. Those after it may be new, because the operation now takes effect.
    fn is_further(&self, before: &Judged, gone: Key) -> bool {
        let of = |judged: &Judged| judged.counts().get(&gone).copied().unwrap_or(0);
        fn wrong(judged: &Judged) -> impl Iterator<Item = Key> {
            judged.findings.iter().map(|it| judged.key(it)).filter(|key| !key.0.is_advice())
        }
        let first = wrong(before).take_while(|key| *key != gone);
        let is_right = |it: &Finding| it.kind.is_advice() || it.line().is_none_or(|line| !self.lines.is_added(line));
        of(self) < of(before)
            && first.eq(wrong(self).take(wrong(before).take_while(|key| *key != gone).count()))
            && self.findings.iter().all(is_right)
    }
}

/// Tries edges.
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

    /// Returns the text with the first edges that settle a finding. Edges without new findings are preferred, then
    /// those whose new findings concern only the operation, which now takes effect, or later ones.
    fn correct(&mut self, at: &Judged, finding: &Finding, edit: Edit) -> Option<Judged> {
        self.steps += READS * at.lines.len();
        let gone = at.key(finding);
        let mut others = Vec::new();
        for lines in edges::candidates(&at.lines, finding, edit) {
            if self.is_over() {
                return None;
            }
            let Ok(next) = self.judge(lines) else { continue };
            if next.is_better(at, gone) {
                return Some(next);
            }
            others.push(next);
        }
        others.into_iter().find(|next| next.is_further(at, gone))
    }
}
