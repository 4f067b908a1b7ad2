//! The damage of a schedule, and all schedules of a small program.

use std::collections::HashSet;

use millpond_core::check::Finding;
use millpond_core::op::Act;

use super::{Effect, Model};

/// The kind of damage that an access does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Harm {
    /// The memory is not allocated yet: poison.
    NotBorn,
    /// This task has freed the memory: poison, or another allocation's bytes.
    Freed(usize),
    /// This task, which comes later in the program, has run already, and one of the two writes.
    StaleName(usize),
    /// Another process has a lease on the memory.
    Held,
}

/// Damage in a schedule.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Damage {
    /// The task that does it.
    pub task: usize,
    /// The life.
    pub life: usize,
    /// The kind of damage.
    pub harm: Harm,
}

/// The result of exploring all schedules of a model.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Schedules {
    /// The damage in any of them, each once.
    pub damages: Vec<Damage>,
    /// The number of states.
    pub states: usize,
}

impl Model {
    /// Adds the damage that a task does if it runs after the tasks for which `has_run` returns `true`.
    pub fn damages_of(&self, task: usize, has_run: &dyn Fn(usize) -> bool, found: &mut Vec<Damage>) {
        for &Effect { life, act, part } in &self.tasks[task].effects {
            let of = &self.lives[life];
            let users = of.users.iter().copied().filter(|&user| user != task && has_run(user));
            let effects = |user: usize| self.tasks[user].effects.iter().filter(|it| it.life == life);
            let acts = |user: usize| effects(user).map(|it| it.act);
            let overlaps = |it: &&Effect| it.part.overlaps(part);
            let mut add = |harm| found.push(Damage { task, life, harm });
            if act == Act::Allocate {
                continue;
            }
            let own = self.tasks[task].effects.iter().any(|it| it.life == life && it.act == Act::Allocate);
            let is_born = own || of.is_there || users.clone().any(|user| acts(user).any(|it| it == Act::Allocate));
            if !is_born {
                add(Harm::NotBorn);
            }
            for user in users {
                if acts(user).any(|it| it == Act::Free) {
                    add(Harm::Freed(user));
                } else if self.races
                    && user > task
                    && act != Act::Free
                    && effects(user)
                        .filter(overlaps)
                        .any(|it| it.act == Act::Write || (it.act == Act::Read && act == Act::Write))
                {
                    add(Harm::StaleName(user));
                }
            }
            let is_over =
                |lease: &usize| self.lives[*lease].users.iter().any(|&user| has_run(user) && self.ends(user, *lease));
            if act == Act::Free && of.leases.iter().any(|lease| !is_over(lease)) {
                add(Harm::Held);
            }
        }
    }

    /// Returns the lines of a damage: those of the task, of the other task, and of the allocation.
    fn lines(&self, damage: &Damage) -> Vec<u32> {
        let met = match damage.harm {
            Harm::Freed(other) | Harm::StaleName(other) => Some(other),
            Harm::NotBorn | Harm::Held => None,
        };
        let birth = |task: &usize| self.tasks[*task].effects.contains(&Effect::of_all(damage.life, Act::Allocate));
        let birth = self.lives[damage.life].users.iter().copied().find(birth);
        let lines = |task: usize| [Some(self.tasks[task].line), self.tasks[task].launch].into_iter().flatten();
        [Some(damage.task), met, birth].into_iter().flatten().flat_map(lines).collect()
    }

    /// Returns how well a damage shows a finding of the checker; 0 if it is about something else.
    pub fn shows(&self, damage: &Damage, finding: &Finding) -> usize {
        let lines = self.lines(damage);
        let sides = [&finding.earlier, &finding.later].into_iter().flatten();
        sides.filter(|side| side.spot.line.is_some_and(|line| lines.contains(&line))).count()
    }

    fn ends(&self, task: usize, life: usize) -> bool {
        self.tasks[task].effects.contains(&Effect::of_all(life, Act::Free))
    }

    /// Explores every state that some schedule reaches. Returns `None` if the program is too large for that.
    pub fn explore(&self, states_max: usize) -> Option<Schedules> {
        if self.tasks.len() > 128 {
            return None;
        }
        let bit = |task: usize| 1_u128 << task;
        let needs: Vec<u128> = self.tasks.iter().map(|it| it.needs.iter().fold(0, |all, it| all | bit(*it))).collect();
        let (mut seen, mut open, mut damages) = (HashSet::from([0_u128]), vec![0_u128], HashSet::new());
        let mut found = Vec::new();
        while let Some(ran) = open.pop() {
            let ready = |task: &usize| ran & bit(*task) == 0 && needs[*task] & ran == needs[*task];
            for task in (0..self.tasks.len()).filter(ready) {
                self.damages_of(task, &|other| ran & bit(other) != 0, &mut found);
                damages.extend(found.drain(..));
                if seen.insert(ran | bit(task)) {
                    open.push(ran | bit(task));
                }
            }
            if seen.len() > states_max {
                return None;
            }
        }
        let mut damages: Vec<Damage> = damages.into_iter().collect();
        damages.sort_unstable();
        Some(Schedules { damages, states: seen.len() })
    }
}
