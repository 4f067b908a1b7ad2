//! What the threads of a program share that lends memory to other processes; streams, pools and buffers at hand.

use std::fs::File;
use std::sync::{Arc, Mutex};

use millpond::ids::StreamId;
use millpond::{Buffer, Pool, Stream};
use millpond_reach::Past;

use super::life::Life;
use super::oracle::{Line, Oracle};
use crate::finding::lock;
use crate::maker::Tie;
use crate::settings::{DeviceKind, Setting};
use crate::stage::Stage;

/// A stream at hand.
#[derive(Clone, Debug)]
pub(super) struct Held {
    /// The library's.
    pub(super) stream: Stream,
    /// What is known of it.
    pub(super) line: Arc<Line>,
}

/// A pool at hand.
#[derive(Clone, Debug)]
pub(super) struct HeldPool {
    /// The library's.
    pub(super) pool: Pool,
    /// Its number in the program.
    pub(super) number: u32,
    /// Whether it adds no waits of its own, so that every reuse must be in order or after the work.
    pub(super) is_strict: bool,
    /// Whether it is for other processes.
    pub(super) is_shareable: bool,
}

/// A buffer at hand.
#[derive(Debug)]
pub(super) struct Buf {
    /// The library's.
    pub(super) buffer: Buffer<u8>,
    /// What is known of it.
    pub(super) life: Life,
}

/// What all threads of a program share, beside the stage.
pub(crate) struct World {
    /// One device.
    pub(crate) stage: Stage,
    /// The order of what was done.
    pub(super) oracle: Oracle,
    /// What the host knows.
    pub(super) host: Mutex<Past>,
    /// Default streams that are known.
    defaults: Mutex<Vec<(StreamId, Arc<Line>)>>,
}

impl World {
    /// A fresh device.
    pub(crate) fn new(setting: &'static Setting, kind: DeviceKind, seed: u64, log: Option<File>) -> Self {
        let stage = Stage::new(setting, kind, seed, log);
        Self { stage, oracle: Oracle::default(), host: Mutex::default(), defaults: Mutex::default() }
    }

    /// What is known of a default stream, which may have been met before.
    pub(super) fn default_line(&self, stream: &Stream, tie: Tie, knows: Past) -> Arc<Line> {
        let mut defaults = lock(&self.defaults);
        if let Some((_, line)) = defaults.iter().find(|(id, _)| *id == stream.id()) {
            return Arc::clone(line);
        }
        let line = self.oracle.open(true, tie, knows);
        defaults.push((stream.id(), Arc::clone(&line)));
        line
    }
}
