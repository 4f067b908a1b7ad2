//! Submits a program to the driver, lane by lane. Decides nothing.
//!
//! Invariant **self-sufficient**: submitted work owns what it needs (closures, bytes), so that the instance, its graph
//! and the device's last handle can be dropped while it runs.
//!
//! Invariant **rejoined**: all work that a launch has submitted to a lane comes before the launching stream's later
//! work, even if the driver refused a call in between. If the driver refuses that wait as well, as for a lost device,
//! the lane's work is kept as side work: no thread takes the launch for completed before it.

use std::sync::Arc;

use millpond_driver::{CopyKind, Driver, RawEvent, RawStream, Work};

use super::events::Waited;
use super::exec::{ExecShared, Run};
use super::program::Step;
use crate::clock::device_event::DeviceEvent;
use crate::names::error::{Error, Result};
use crate::pool::shell::{self, TRIES};
use crate::state::context::Context;
use crate::state::stream::StreamShared;
use crate::stream::kernel::Kernel;
use crate::stream::payload::Payload;

/// The result of a submission.
pub(crate) enum Submitted {
    /// The driver has all of it. The value has the events that it recorded at the record nodes, in their order.
    Whole(Vec<DeviceEvent>),
    /// The driver refused a call after some work was submitted, which runs.
    Part(Error),
    /// The driver refused a call before anything was submitted.
    Nothing(Error),
}

impl ExecShared {
    /// Submits the program to the driver.
    pub(crate) fn submit(&self, stream: &StreamShared, run: &mut Run, waited: &Waited) -> Submitted {
        let raw = stream.raw;
        if let Some(native) = &self.native {
            return match native.launch(&self.context, raw) {
                Ok(()) => Submitted::Whole(Vec::new()),
                Err(error) => Submitted::Nothing(error),
            };
        }
        let driver = &*self.context.driver;
        run.raw_events.clear();
        run.raw_events.resize(self.program.events, RawEvent(u64::MAX));
        let mut recorded = Vec::new();
        let mut has_work = false;
        let result = self.submit_steps(raw, run, waited, &mut recorded, &mut has_work);
        run.raw_events.iter().for_each(|event| driver.forget(*event));
        match result {
            Ok(()) => Submitted::Whole(recorded),
            Err(error) if has_work => {
                self.lanes.iter().for_each(|lane| self.rejoin(stream, *lane));
                Submitted::Part(error)
            }
            Err(error) => Submitted::Nothing(error),
        }
    }

    fn submit_steps(
        &self,
        raw: RawStream,
        run: &mut Run,
        waited: &Waited,
        recorded: &mut Vec<DeviceEvent>,
        has_work: &mut bool,
    ) -> Result<()> {
        let driver = &*self.context.driver;
        let program = &*self.program;
        if program.lanes > 1 {
            let start = DeviceEvent::new(driver.record(raw)?, &self.context.driver);
            self.lanes.iter().try_for_each(|lane| driver.wait(*lane, start.raw))?;
        }
        let mut waited = waited.iter();
        for step in &program.steps {
            let lane = if step.lane == 0 { raw } else { self.lanes[step.lane as usize - 1] };
            for wait in &step.waits {
                driver.wait(lane, run.raw_events[*wait as usize])?;
            }
            match &step.payload {
                Payload::EventRecord(_) => recorded.push(DeviceEvent::new(driver.record(lane)?, &self.context.driver)),
                Payload::EventWait(_) => {
                    if let Some(Some((_, event))) = waited.next() {
                        driver.wait(lane, event.raw)?;
                    }
                }
                Payload::Kernel(kernel) | Payload::HostFunction(kernel) => {
                    let turn = kernel.turn(&self.context, self.number, lane)?;
                    submit_step(&self.context, lane, step)?;
                    *has_work = true;
                    turn.submitted(&self.context, lane)?;
                }
                _ => {
                    submit_step(&self.context, lane, step)?;
                    *has_work = true;
                }
            }
            if let Some(event) = step.event {
                run.raw_events[event as usize] = driver.record(lane)?;
            }
        }
        for tail in &program.tails {
            driver.wait(raw, run.raw_events[*tail as usize])?;
        }
        Ok(())
    }

    /// Makes the stream come after the work on a lane.
    #[cold]
    fn rejoin(&self, stream: &StreamShared, lane: RawStream) {
        let driver = &*self.context.driver;
        let mut end = None;
        for _ in 0..TRIES {
            let Ok(raw) = driver.record(lane) else { continue };
            let event = DeviceEvent::new(raw, &self.context.driver);
            if driver.wait(stream.raw, raw).is_ok() {
                return;
            }
            end = Some(Arc::new(event));
        }
        stream.progress.add_side_work(end);
    }
}

/// A kernel of a launch, which may outlive its graph.
struct Launched(Option<Kernel>);

impl Launched {
    fn run(&self) {
        self.0.iter().for_each(Kernel::run);
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(Kernel::drop_after_item);
    }
}

fn submit_step(context: &Context, lane: RawStream, step: &Step) -> Result<()> {
    match &step.payload {
        Payload::Nothing | Payload::EventRecord(_) | Payload::EventWait(_) | Payload::Open | Payload::Late(_) => Ok(()),
        Payload::Foreign(foreign) => foreign.launch(context, lane),
        Payload::Kernel(kernel) | Payload::HostFunction(kernel) => {
            let kernel = Launched(Some(kernel.clone()));
            let task = Box::new(move || kernel.run());
            Ok(shell::submit_task(context, lane, &mut Some(Work::Run(task)))?)
        }
        Payload::Copy { to, from, bytes } => {
            Ok(shell::submit_copy(context, lane, *to, *from, *bytes, CopyKind::DeviceToDevice)?)
        }
        Payload::Upload { to, from } => Ok(shell::submit_upload(context, lane, *to, Arc::clone(from))?),
        Payload::Memset { at, bytes, value } => Ok(shell::submit_fill(context, lane, *at, *bytes, *value)?),
    }
}
