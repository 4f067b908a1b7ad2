//! The kernels that were launched from each place, so that a finding can name the kernel of an earlier launch.
//!
//! A line of Python may launch several kernels. Then it is not known which one a finding means.

use millpond_core::op::Name;

/// Stands for several kernels.
const SEVERAL: u32 = u32::MAX;

/// The kernels by the number of the place: one more than the number of the name, 0 if there was no launch.
#[derive(Debug, Default)]
pub(crate) struct Launches(Vec<u32>);

impl Launches {
    /// Notes a launch.
    #[inline]
    pub(crate) fn note(&mut self, place: u32, kernel: Option<Name>) {
        let kernel = kernel.map_or(SEVERAL, |name| name.0 + 1);
        match self.0.get_mut(place as usize) {
            Some(known) if *known == kernel => {}
            Some(known) => *known = if *known == 0 { kernel } else { SEVERAL },
            None => self.add(place, kernel),
        }
    }

    #[cold]
    fn add(&mut self, place: u32, kernel: u32) {
        self.0.resize(place as usize + 1, 0);
        self.0[place as usize] = kernel;
    }

    /// Returns the kernel that was launched from a place. `None` if there were several, or none.
    pub(crate) fn at(&self, place: u32) -> Option<Name> {
        self.0.get(place as usize).filter(|known| **known != SEVERAL)?.checked_sub(1).map(Name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_a_kernel_as_long_as_it_launches_no_other() {
        let mut launches = Launches::default();
        launches.note(3, Some(Name(0)));
        launches.note(3, Some(Name(0)));
        launches.note(1, Some(Name(7)));
        assert_eq!([0, 1, 2, 3, 4].map(|at| launches.at(at)), [None, Some(Name(7)), None, Some(Name(0)), None]);
        launches.note(3, Some(Name(7)));
        launches.note(1, None);
        assert_eq!([1, 3].map(|at| launches.at(at)), [None, None]);
        launches.note(3, Some(Name(0)));
        assert_eq!(launches.at(3), None);
    }
}
