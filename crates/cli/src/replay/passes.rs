//! Serves a program several times and measures the time.
//!
//! The time includes only the calls to the server and the loop around them. A pass is served in slices. Between them
//! the clock is stopped, and progress is shown.

use std::fmt;
use std::time::{Duration, Instant};

use millpond_core::units::Bytes;

use super::server::{Figures, ServeError, Server};
use crate::recorded::{Event, Program};

/// The largest number of slices of a pass.
const SLICES: usize = 512;

/// One pass through the program.
#[derive(Clone, Debug)]
pub(crate) struct Pass {
    pub(crate) elapsed: Duration,
    pub(crate) figures: Figures,
}

/// The failure of a pass.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pass: u32,
    /// The event and its number; `None` if the end of the pass failed.
    event: Option<(usize, Event)>,
    reason: ServeError,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.event {
            Some((index, Event::Alloc { id, bytes, stream })) => {
                let bytes = Bytes(bytes);
                write!(f, "event {index} (allocation {id}, {bytes} on stream {stream}) was not served")?;
            }
            Some((index, Event::Free { id, stream })) => {
                write!(f, "event {index} (free of allocation {id} on stream {stream}) was not served")?;
            }
            None => f.write_str("the end of the pass failed")?,
        }
        write!(f, " in pass {}: {}", self.pass + 1, self.reason)
    }
}

/// Serves the program `repeat` times. Returns the passes. `advance` receives the number of events of each slice.
pub(crate) fn serve(
    program: &Program,
    server: &mut dyn Server,
    repeat: u32,
    advance: &mut dyn FnMut(u64),
) -> Result<Vec<Pass>, Failure> {
    let mut passes = Vec::with_capacity(repeat as usize);
    for pass in 0..repeat {
        let fail = |event, reason| Failure { pass, event, reason };
        let elapsed = timed(program, server, advance)
            .map_err(|(index, reason)| fail(Some((index, program.events[index])), reason))?;
        for left in &program.leftovers {
            server.free(left.id, left.stream).map_err(|reason| fail(None, reason))?;
        }
        let figures = server.end_of_pass().map_err(|reason| fail(None, reason))?;
        passes.push(Pass { elapsed, figures });
    }
    Ok(passes)
}

/// Returns the median: for an even count the mean of the two middle numbers, for none 0.
pub(crate) fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    match numbers.len() {
        0 => 0.0,
        count if count % 2 == 1 => numbers[count / 2],
        count => (numbers[count / 2 - 1] + numbers[count / 2]) / 2.0,
    }
}

/// Serves one pass and measures the time. `advance` runs after each slice, while the clock is stopped. An error has the
/// number of its event.
fn timed(
    program: &Program,
    server: &mut dyn Server,
    advance: &mut dyn FnMut(u64),
) -> Result<Duration, (usize, ServeError)> {
    let events = &program.events;
    let size = events.len().div_ceil(SLICES).max(1);
    let mut elapsed = Duration::ZERO;
    for (number, slice) in events.chunks(size).enumerate() {
        let began = Instant::now();
        for (offset, event) in slice.iter().enumerate() {
            let served = match *event {
                Event::Alloc { id, bytes, stream } => server.alloc(id, bytes, stream),
                Event::Free { id, stream } => server.free(id, stream),
            };
            if let Err(reason) = served {
                return Err((number * size + offset, reason));
            }
        }
        elapsed += began.elapsed();
        advance(slice.len() as u64);
    }
    Ok(elapsed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorded::program::{At, Keys, Recorder};
    use crate::refusal::Place;

    fn program(pairs: u64) -> Program {
        let mut recorder = Recorder::new(Keys::Unique, |id| format!("id {id}"), "line");
        for key in 0..pairs {
            recorder.alloc(key, 1000 + key, 0, At::line(1)).unwrap();
            if key > 0 {
                recorder.free(key - 1, None, At::line(1)).unwrap();
            }
        }
        recorder.finish("pairs", Place::Whole).unwrap().0
    }

    /// A server that counts its calls and fails at one allocation.
    #[derive(Default)]
    struct Counting {
        allocs: u32,
        frees: u32,
        ends: u32,
        fails_at_alloc: Option<u32>,
    }

    impl Server for Counting {
        fn alloc(&mut self, _: u32, _: u64, _: u32) -> Result<(), ServeError> {
            if self.fails_at_alloc == Some(self.allocs) {
                return Err(ServeError("no more memory".to_owned()));
            }
            self.allocs += 1;
            Ok(())
        }

        fn free(&mut self, _: u32, _: u32) -> Result<(), ServeError> {
            self.frees += 1;
            Ok(())
        }

        fn address(&self, _: u32) -> u64 {
            0
        }

        fn reserved_bytes(&self) -> u64 {
            4096
        }

        fn end_of_pass(&mut self) -> Result<Figures, ServeError> {
            self.ends += 1;
            assert_eq!(self.allocs, self.frees, "a pass ends with everything freed");
            Ok(Figures { peak_reserved_bytes: 4096, ..Figures::default() })
        }
    }

    #[test]
    fn every_pass_serves_every_event_and_frees_the_rest() {
        let program = program(2000);
        let (mut server, mut served) = (Counting::default(), 0);
        let passes = serve(&program, &mut server, 3, &mut |events| served += events).unwrap();
        assert_eq!((server.allocs, server.frees, server.ends), (6000, 6000, 3));
        assert_eq!(served, 3 * 3999);
        assert_eq!(passes.len(), 3);
    }

    #[test]
    fn a_failure_names_its_event() {
        let mut server = Counting { fails_at_alloc: Some(1000), ..Counting::default() };
        let failure = serve(&program(2000), &mut server, 3, &mut |_| {}).unwrap_err().to_string();
        assert_eq!(
            failure,
            "event 1999 (allocation 1000, 2000 B on stream 0) was not served in pass 1: no more memory"
        );
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(vec![]), 0.0);
    }
}
