//! External events, and the nodes of graphs that record them and wait for them.
//!
//! Nodes order node by node: who waits for a record node comes after some of a launch. Only of a record node behind all
//! other nodes it is known here how much that is. What waits for another one comes after all that the launch came
//! after, and the library may know of more: verdicts are not known before any more then.

use millpond::{Result, Stream};

use super::graphs::Draft;
use super::{Thread, pick};
use crate::finding::lock;
use crate::marks::{External, Marks};
use crate::random::Random;
use millpond_reach::Past;

impl Thread<'_> {
    /// What an event holds, for who waits for it now.
    pub(crate) fn held_by(&self, external: &External) -> Option<Past> {
        let holds = lock(&external.holds);
        if holds.is_vague {
            self.world.lose_track();
        }
        holds.past.clone()
    }

    /// What the wait nodes of a launch wait for that is made now.
    pub(crate) fn waited_by(&self, marks: &Marks) -> Option<Past> {
        // A wait behind a record of the same graph adds nothing; the order of a child's nodes is not looked at here.
        let (alone, both): (Vec<_>, Vec<_>) = marks.waits.iter().partition(|it| !marks.records(it));
        if !both.is_empty() {
            self.world.lose_track();
        }
        let held: Vec<Past> = alone.into_iter().filter_map(|it| self.held_by(it)).collect();
        let join = |mut all: Past, one: Past| {
            all.join(&one);
            all
        };
        held.into_iter().reduce(join)
    }

    /// An event of the thread for a graph of a device.
    fn external(&self, random: &mut Random, device: usize) -> Option<External> {
        let at = pick(&self.externals, random.number() as u32)?;
        self.externals[at].clone().filter(|it| it.device == device)
    }

    /// A node somewhere in a graph.
    pub(crate) fn mark(&self, draft: &mut Draft<'_>, marks: &mut Marks, device: usize) -> Result<()> {
        let Some(external) = self.external(&mut draft.random, device) else { return Ok(()) };
        let after = draft.some();
        let node = match draft.random.chance(40) {
            true if !marks.waits(&external) => {
                let node = draft.graph.add_event_record(&after, &external.event)?;
                marks.records.push((external, false));
                node
            }
            false if !marks.records(&external) => {
                let node = draft.graph.add_event_wait(&after, &external.event)?;
                marks.waits.push(external);
                node
            }
            _ => return Ok(()),
        };
        draft.nodes.push(node);
        Ok(())
    }

    /// A record node behind all other nodes.
    pub(crate) fn mark_end(&self, draft: &mut Draft<'_>, marks: &mut Marks, device: usize) -> Result<()> {
        if !self.world.setting.event_nodes || !draft.random.chance(25) {
            return Ok(());
        }
        if let Some(external) = self.external(&mut draft.random, device).filter(|it| !marks.waits(it)) {
            draft.graph.add_event_record(&draft.nodes, &external.event)?;
            marks.records.push((external, true));
        }
        Ok(())
    }

    /// A node at the present place of a capture.
    pub(crate) fn mark_captured(
        &self,
        stream: &Stream,
        marks: &mut Marks,
        random: &mut Random,
        device: usize,
    ) -> Result<()> {
        if !self.world.setting.event_nodes || !random.chance(25) {
            return Ok(());
        }
        let Some(external) = self.external(random, device) else { return Ok(()) };
        match random.chance(40) {
            true if !marks.waits(&external) => {
                stream.record_external(&external.event)?;
                marks.records.push((external, false));
            }
            false if !marks.records(&external) => {
                stream.wait_external(&external.event)?;
                marks.waits.push(external);
            }
            _ => {}
        }
        Ok(())
    }
}
