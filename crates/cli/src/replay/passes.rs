//! Serves a program several times and measures the time.
//!
//! The time includes only the calls to the server and the loop around them. The cost of that loop is measured with a
//! server that does nothing, through the same code. A pass is served in slices. Between them the clock is stopped, the
//! curve of the first pass is sampled, and progress is shown.

use std::fmt;
use std::hint::black_box;
use std::time::{Duration, Instant};

use millpond_core::units::Bytes;

use super::picture::{Curve, Sample};
use super::server::{Figures, ServeError, Server};
use crate::recorded::{Event, Program};

/// The largest number of slices of a pass.
const SLICES: usize = 512;

/// The number of measurements of the idle loop.
const IDLE_PASSES: usize = 7;

/// One pass through the program.
#[derive(Clone, Debug)]
pub(crate) struct Pass {
    pub(crate) elapsed: Duration,
    pub(crate) figures: Figures,
}

/// All passes of a program.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// The passes; at least one.
    pub(crate) passes: Vec<Pass>,
    /// The curve of the first pass.
    pub(crate) curve: Curve,
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

/// Serves the program `repeat` times. `advance` receives the number of events of each slice.
pub(crate) fn serve(
    program: &Program,
    server: &mut dyn Server,
    repeat: u32,
    advance: &mut dyn FnMut(u64),
) -> Result<Run, Failure> {
    let mut passes = Vec::with_capacity(repeat as usize);
    let mut curve = Curve::default();
    for pass in 0..repeat {
        let fail = |event, reason| Failure { pass, event, reason };
        let mut live = Live::default();
        let elapsed = timed(program, server, &mut |server, slice| {
            if pass == 0 {
                curve.samples.push(sample(slice, &mut live, server.reserved_bytes()));
            }
            advance(slice.len() as u64);
        });
        let elapsed = elapsed.map_err(|(index, reason)| fail(Some((index, program.events()[index])), reason))?;
        for left in program.leftovers() {
            server.free(left.id, left.stream).map_err(|reason| fail(None, reason))?;
        }
        let figures = server.end_of_pass().map_err(|reason| fail(None, reason))?;
        passes.push(Pass { elapsed, figures });
    }
    curve.events = program.events().len();
    Ok(Run { passes, curve })
}

/// Measures the loop itself, in nanoseconds per event.
pub(crate) fn loop_nanoseconds(program: &Program) -> f64 {
    let nanoseconds = (0..IDLE_PASSES).map(|_| {
        let elapsed = timed(program, &mut Idle, &mut |_, _| {}).unwrap_or_default();
        elapsed.as_nanos() as f64 / program.events().len() as f64
    });
    median(nanoseconds.collect())
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

/// Serves one pass and measures the time. `between` runs after each slice, while the clock is stopped. An error has the
/// number of its event.
fn timed(
    program: &Program,
    server: &mut dyn Server,
    between: &mut dyn FnMut(&dyn Server, &[Event]),
) -> Result<Duration, (usize, ServeError)> {
    let events = program.events();
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
        between(server, slice);
    }
    Ok(elapsed)
}

/// Returns the point of the curve after a slice. `live` is updated from before the slice to after it.
fn sample(slice: &[Event], live: &mut Live, reserved_bytes: u64) -> Sample {
    let mut requested_bytes = live.bytes;
    for event in slice {
        match *event {
            Event::Alloc { bytes, id, .. } => live.add(id, bytes),
            Event::Free { id, .. } => live.remove(id),
        }
        requested_bytes = requested_bytes.max(live.bytes);
    }
    Sample { requested_bytes, reserved_bytes }
}

/// The live bytes, as requested.
#[derive(Default)]
struct Live {
    /// The size of each allocation so far, by id.
    sizes: Vec<u64>,
    bytes: u64,
}

impl Live {
    fn add(&mut self, id: u32, bytes: u64) {
        debug_assert_eq!(id as usize, self.sizes.len(), "dense-ids");
        self.sizes.push(bytes);
        self.bytes += bytes;
    }

    fn remove(&mut self, id: u32) {
        self.bytes -= std::mem::take(&mut self.sizes[id as usize]);
    }
}

/// A server that does nothing.
struct Idle;

impl Server for Idle {
    fn alloc(&mut self, id: u32, bytes: u64, stream: u32) -> Result<(), ServeError> {
        black_box((id, bytes, stream));
        Ok(())
    }

    fn free(&mut self, id: u32, stream: u32) -> Result<(), ServeError> {
        black_box((id, stream));
        Ok(())
    }

    fn address(&self, _: u32) -> u64 {
        0
    }

    fn reserved_bytes(&self) -> u64 {
        0
    }

    fn end_of_pass(&mut self) -> Result<Figures, ServeError> {
        Ok(Figures::default())
    }
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
        let run = serve(&program, &mut server, 3, &mut |events| served += events).unwrap();
        assert_eq!((server.allocs, server.frees, server.ends), (6000, 6000, 3));
        assert_eq!(served, 3 * 3999);
        assert_eq!(run.passes.len(), 3);
        assert_eq!(run.curve.samples.len(), 3999_usize.div_ceil(3999_usize.div_ceil(SLICES)));
        let peak = run.curve.samples.iter().map(|sample| sample.requested_bytes).max();
        assert_eq!(peak, Some(program.peak_bytes()));
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
    fn the_loop_costs_little() {
        let nanoseconds = loop_nanoseconds(&program(20_000));
        assert!(nanoseconds > 0.0 && nanoseconds < 1000.0, "{nanoseconds} ns an event");
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(vec![]), 0.0);
    }
}
