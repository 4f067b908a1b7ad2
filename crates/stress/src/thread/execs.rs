//! Instances of graphs beside their launches: bound ahead, updated, dropped; graph memory given back.

use millpond::Error;

use crate::finding::lock;
use crate::life::Expect;
use crate::op::Op;
use crate::thread::graphs::Instance;
use crate::thread::{Thread, pick};

impl Thread<'_> {
    pub(crate) fn upload(&mut self, op: Op) {
        let (Some(held), Some(at)) = (self.stream(op.a), pick(&self.execs, op.b)) else { return };
        let Some(Instance { exec, device, last, is_second, .. }) = &self.execs[at] else { return };
        let (exec, device, last, is_second) = (exec.clone(), *device, last.clone(), *is_second);
        let mut knows = self.before_next(&held.line);
        knows.join(&last);
        self.say(format_args!("e.upload(&s{})?;", held.line.chain));
        let uploaded = exec.upload(&held.stream);
        let expect = if device == held.line.device { Expect::Accepted } else { Expect::Refused };
        self.judge("upload", expect, uploaded.as_ref().err());
        // It comes after the last launch, and the next launch after it.
        match &uploaded {
            Ok(()) if is_second => self.world.lose_track(),
            Ok(()) => lock(&held.line.past).join(&last),
            Err(Error::InvalidArgument(_)) => return,
            // It may have waited before it failed.
            Err(_) => return self.world.lose_track(),
        }
        held.line.step(None);
        self.publish(&held.line);
        let end = self.end_of(&held.line, knows);
        self.execs[at].iter_mut().for_each(|it| it.last = end.clone());
    }

    pub(crate) fn update(&mut self, op: Op) {
        let (Some(at), Some(from)) = (pick(&self.execs, op.a), pick(&self.graphs, op.b)) else { return };
        let (Some(instance), Some(built)) = (&mut self.execs[at], &self.graphs[from]) else { return };
        self.world.say(self.number, format_args!("e{}.update(&g)?;", instance.number));
        let updated = instance.exec.update(&built.graph);
        if updated.is_ok() {
            instance.made = built.made.clone();
        }
        let is_other = instance.number != built.number && (instance.made.has_memory || built.made.has_memory);
        let expect = if is_other { Expect::Refused } else { Expect::Either };
        self.judge("update", expect, updated.as_ref().err());
    }

    pub(crate) fn drop_exec(&mut self, op: Op) {
        match op.c & 1 {
            0 => drop(pick(&self.execs, op.a).and_then(|at| self.execs[at].take())),
            _ => drop(pick(&self.graphs, op.a).and_then(|at| self.graphs[at].take())),
        }
        self.say(format_args!("drop({});", if op.c & 1 == 0 { "e" } else { "g" }));
    }

    pub(crate) fn trim_graphs(&mut self, op: Op) {
        let at = op.a as usize % self.world.devices.len();
        let Some(device) = self.device(at) else { return };
        self.say(format_args!("device{at}.trim_graph_memory()?;"));
        let trimmed = device.trim_graph_memory();
        self.judge("trim_graph_memory", Expect::Accepted, trimmed.as_ref().err());
    }
}
