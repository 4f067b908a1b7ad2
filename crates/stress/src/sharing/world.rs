//! State that the threads of a program share if it shares memory with other processes; streams, pools and buffers.

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

/// A stream of a thread.
#[derive(Clone, Debug)]
pub(super) struct Held {
    /// The library's stream.
    pub(super) stream: Stream,
    /// The oracle's knowledge of it.
    pub(super) line: Arc<Line>,
}

/// A pool of a thread.
#[derive(Clone, Debug)]
pub(super) struct HeldPool {
    /// The library's pool.
    pub(super) pool: Pool,
    /// Its number in the program.
    pub(super) number: u32,
    /// `true` if it adds no waits of its own, so that every reuse must be ordered or come after completed work.
    pub(super) is_strict: bool,
    /// `true` if it is for other processes.
    pub(super) is_shareable: bool,
}

/// A buffer of a thread.
#[derive(Debug)]
pub(super) struct Buf {
    /// The library's buffer.
    pub(super) buffer: Buffer<u8>,
    /// Its life.
    pub(super) life: Life,
}

/// State that all threads of a program share, beside the stage.
pub(crate) struct World {
    /// The stage, with one device.
    pub(crate) stage: Stage,
    /// The order of the operations.
    pub(super) oracle: Oracle,
    /// The operations that the host knows to have completed.
    pub(super) host: Mutex<Past>,
    /// The default streams that were taken.
    defaults: Mutex<Vec<(StreamId, Arc<Line>)>>,
}

impl World {
    /// Makes the state, with a fresh device.
    pub(crate) fn new(setting: &'static Setting, kind: DeviceKind, seed: u64, log: Option<File>) -> Self {
        let stage = Stage::new(setting, kind, seed, log);
        Self { stage, oracle: Oracle::default(), host: Mutex::default(), defaults: Mutex::default() }
    }

    /// Returns the knowledge of a default stream, which may have been taken before.
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
