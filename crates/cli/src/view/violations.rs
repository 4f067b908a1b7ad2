//! The checker's findings on the page: both sides, the missing edges between them, and the help.
//!
//! All of it comes from the finding. Its sides are looked up among the operations and nodes by the checker's numbers,
//! and its missing edges are drawn as they are. Nothing is derived here.

use millpond_core::check::{Edit, Finding, Side};
use millpond_core::ids::{AllocId, GraphId, StreamId};

use super::scene::Violation;
use super::traced::Builder;

/// The largest number of violations that are shown.
const VIOLATIONS_MAX: usize = 1000;

impl Builder {
    /// Adds the findings: at the current step if `is_now`, else at the end of the program.
    pub(super) fn mark(&mut self, is_now: bool) {
        for finding in std::mem::take(&mut self.found) {
            if finding.kind.is_advice() {
                continue;
            }
            if self.scene.violations.len() == VIOLATIONS_MAX {
                self.hidden_violations += 1;
                continue;
            }
            self.mark_nodes(&finding);
            let mark = self.marked(&finding, is_now);
            self.scene.violations.push(mark);
        }
    }

    fn marked(&self, finding: &Finding, is_now: bool) -> Violation {
        let life = finding.subject.as_ref().and_then(|subject| self.life_of(subject.id));
        let find = |side: &Option<Side>| side.as_ref().and_then(|side| self.locate(finding, side, life));
        let earlier = find(&finding.earlier);
        // An operation is refused at the current step. A finding at the end is placed at the last known step that it
        // names.
        let now = is_now.then_some(self.scene.steps);
        let later = match finding.graph {
            Some(_) => find(&finding.later).or(now),
            None => now,
        };
        let before = finding.missing.iter().filter_map(|edge| self.locate(finding, &edge.after, life));
        let before: Vec<u64> = before.collect();
        let missing: Vec<(u64, u64)> = later.map_or_else(Vec::new, |later| {
            before.iter().filter(|from| **from != later).map(|&from| (from.min(later), from.max(later))).collect()
        });
        let mut sides: Vec<u64> = earlier.into_iter().chain(before).chain(later).collect();
        sides.sort_unstable();
        sides.dedup();
        let shown = finding.earlier.iter().chain(&finding.others).chain(&finding.later).map(ToString::to_string);
        let lines: Vec<String> = shown.chain(finding.known_lines()).chain(finding.notes.clone()).collect();
        Violation {
            kind: finding.kind.name(),
            step: later.or(earlier).unwrap_or(self.scene.steps.saturating_sub(u64::from(!is_now))),
            since: earlier.or(life.map(|life| self.scene.lives[life as usize].born)),
            sides,
            missing,
            title: finding.sentence.clone(),
            text: lines.join("\n"),
            help: finding.help(),
            edit: finding.edit().map(Edit::name),
            allocations: life.into_iter().collect(),
            graph: finding.graph.map(GraphId::index),
        }
    }

    /// Returns the life that a finding of the current operation is about.
    fn life_of(&self, id: AllocId) -> Option<u32> {
        let begun = || self.begun.iter().find(|(of, _)| *of == id).map(|(_, life)| *life);
        self.latest.get(&id).copied().or_else(begun)
    }

    /// Returns the step of a side of a finding.
    fn locate(&self, finding: &Finding, side: &Side, life: Option<u32>) -> Option<u64> {
        if let (Some(graph), Some(node)) = (finding.graph, &side.node) {
            let number = node.split('.').next()?.parse::<usize>().ok()?;
            let (_, graph) = self.graphs.iter().rev().find(|(id, _)| *id == graph)?;
            return graph.step_of(number);
        }
        if side.stream == Some(StreamId::HOST) {
            return self.host_acts.get(&(life?, side.act?)).copied();
        }
        self.order.locate(side)
    }
}
