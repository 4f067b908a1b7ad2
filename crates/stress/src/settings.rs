//! The settings: the conditions that programs run in, and the weights of the kinds of operations.

use crate::kind::{KINDS, Kind};

/// A setting.
#[derive(Debug)]
pub struct Setting {
    /// Its name, for `--only`.
    pub name: &'static str,
    /// Its purpose.
    pub about: &'static str,
    /// The weight with which it is chosen.
    pub share: u32,
    /// The number of threads that run operations.
    pub threads: usize,
    /// The number of operations of each thread.
    pub ops: usize,
    /// The number of devices, one or two.
    pub devices: usize,
    /// The kinds of devices that it runs on.
    pub kinds: &'static [DeviceKind],
    /// Memory of each device, in bytes.
    pub total_bytes: u64,
    /// The longest duration of a kernel, in microseconds.
    pub slow: u64,
    /// The pools that are made.
    pub pools: Pools,
    /// `true` if some pools guard freed memory.
    pub guards: bool,
    /// `true` if graphs record external events and wait for them.
    pub event_nodes: bool,
    /// The weights that differ from the usual ones.
    pub weights: &'static [&'static [(Kind, u32)]],
}

/// A kind of device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceKind {
    /// The host device, with threads.
    Host,
    /// The host device, with one thread and a seeded order.
    Seeded,
    /// The host device without memory, whose work completes at once.
    Sim,
    /// The host device without memory, whose work completes when a thread waits.
    SimLate,
    /// CUDA.
    Cuda,
}

/// The reuse that pools may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pools {
    /// Any policy.
    Any,
    /// Reuse by order and by completion. The pool adds no waits of its own, so that the order of every reuse is
    /// checked.
    Strict,
    /// As `Strict`, with at most a few MiB for each pool.
    Tight,
}

use DeviceKind::{Cuda, Host, Seeded, Sim, SimLate};
use Kind::*;

const MIB: u64 = 1 << 20;
const PLAIN: Setting = Setting {
    name: "",
    about: "",
    share: 1,
    threads: 1,
    ops: 250,
    devices: 1,
    kinds: &[Host],
    total_bytes: 1 << 32,
    slow: 100,
    pools: Pools::Any,
    guards: false,
    event_nodes: false,
    weights: &[],
};

const GRAPHS: &[(Kind, u32)] = &[
    (Capture, 8),
    (Build, 8),
    (Instantiate, 6),
    (Launch, 24),
    (Upload, 2),
    (Update, 2),
    (DropExec, 3),
    (TrimGraphs, 2),
];
const SHARING: &[(Kind, u32)] = &[
    (MakePool, 8),
    (Spawn, 14),
    (Lend, 30),
    (Redeem, 5),
    (Work, 40),
    (Return, 16),
    (Ask, 14),
    (Borrow, 8),
    (Repay, 6),
    (Flood, 2),
    (Kill, 2),
    (HangUp, 1),
    (DropDevice, 0),
];
const SHARED: &[(Kind, u32)] = &[(Share, 4), (UseShared, 8)];
const HANDED: &[(Kind, u32)] = &[(Give, 8), (Take, 8)];

/// All settings.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "order",
        about: "one thread, exact verdicts, any pool",
        share: 4,
        kinds: &[Host, Seeded, Sim, SimLate, Cuda],
        ..PLAIN
    },
    Setting {
        name: "reuse",
        about: "one thread, small pools that add no waits, slow kernels: who may get which bytes",
        share: 6,
        kinds: &[Host, Seeded, SimLate, Cuda],
        pools: Pools::Tight,
        slow: 2000,
        weights: &[&[(Alloc, 50), (Free, 40), (Hold, 6), (SyncDevice, 0), (SyncStream, 1), (Wait, 20), (Record, 16)]],
        ..PLAIN
    },
    Setting {
        name: "threads",
        about: "threads that hand buffers on and use each other's streams",
        share: 6,
        threads: 3,
        weights: &[SHARED, &[(Give, 12), (Take, 16)]],
        kinds: &[Host, Cuda],
        ..PLAIN
    },
    Setting {
        name: "guards",
        about: "threads with pools that close what is freed",
        share: 2,
        threads: 2,
        guards: true,
        weights: &[HANDED, &[(MakePool, 8), (DropPool, 8)]],
        ..PLAIN
    },
    Setting {
        name: "closing",
        about: "threads that open and close streams and pools all the time, and synchronise",
        share: 6,
        threads: 3,
        slow: 300,
        weights: &[&[(Open, 30), (Close, 30), (MakePool, 12), (DropPool, 12), (SyncDevice, 10)], SHARED, HANDED],
        ..PLAIN
    },
    Setting {
        name: "graphs",
        about: "one thread, graphs by nodes and by capture, instances in turn, children, updates, event nodes",
        share: 5,
        event_nodes: true,
        kinds: &[Host, Seeded, Sim, SimLate, Cuda],
        weights: &[GRAPHS],
        ..PLAIN
    },
    Setting {
        name: "graph-threads",
        about: "threads with graphs, on little memory",
        share: 4,
        threads: 3,
        event_nodes: true,
        total_bytes: 96 * MIB,
        weights: &[GRAPHS, SHARED, HANDED],
        ..PLAIN
    },
    Setting {
        name: "scarce",
        about: "threads on a device that is nearly full",
        share: 4,
        threads: 3,
        total_bytes: 24 * MIB,
        weights: &[HANDED, &[(Alloc, 50), (Trim, 8), (MakePool, 8), (DropPool, 8)]],
        ..PLAIN
    },
    Setting {
        name: "owning",
        about: "kernels that own buffers, streams and pools, and call the library when they are dropped",
        share: 5,
        threads: 2,
        weights: &[&[(Owning, 24), (Launch, 10), (Build, 4), (DropExec, 4), (Give, 6), (Take, 6), (DropDevice, 1)]],
        ..PLAIN
    },
    Setting {
        name: "panics",
        about: "kernels that panic: the device is lost, and everything still ends",
        share: 5,
        threads: 2,
        ops: 150,
        weights: &[&[
            (Panic, 1),
            (Owning, 12),
            (Hold, 4),
            (Launch, 10),
            (Build, 4),
            (Capture, 3),
            (Give, 6),
            (Take, 6),
            (DropDevice, 1),
        ]],
        ..PLAIN
    },
    Setting {
        name: "devices",
        about: "two devices, with grants and events between them",
        share: 4,
        threads: 2,
        devices: 2,
        weights: &[&[(Grant, 8), (Give, 8), (Take, 8), (Owning, 4), (Launch, 6), (Build, 3), (Hold, 2)]],
        ..PLAIN
    },
    Setting {
        name: "devices-exact",
        about: "two devices, one thread",
        share: 2,
        devices: 2,
        kinds: &[Host, Seeded],
        weights: &[&[(Grant, 8), (Wait, 20)]],
        ..PLAIN
    },
    Setting {
        name: "sharing",
        about: "threads that lend memory to processes and borrow theirs; some are killed",
        share: 4,
        threads: 2,
        ops: 120,
        weights: &[SHARING],
        ..PLAIN
    },
    Setting {
        name: "sharing-exact",
        about: "one thread that does so, exact verdicts",
        share: 3,
        ops: 200,
        pools: Pools::Strict,
        weights: &[SHARING],
        ..PLAIN
    },
    Setting {
        name: "failing",
        about: "a driver whose calls fail on demand",
        share: 5,
        kinds: &[Host, Seeded, SimLate, Cuda],
        weights: &[&[
            (Fail, 16),
            (EndFailure, 8),
            (Capture, 3),
            (Build, 3),
            (Launch, 8),
            (DropExec, 2),
            (TrimGraphs, 1),
        ]],
        ..PLAIN
    },
    Setting {
        name: "failing-threads",
        about: "such a driver, under threads",
        share: 3,
        threads: 3,
        weights: &[&[(Fail, 10), (EndFailure, 8), (Open, 10), (Close, 10)], SHARED, HANDED],
        ..PLAIN
    },
];

impl Setting {
    /// Returns the weight of a kind.
    pub fn weight_of(&self, kind: Kind) -> u32 {
        let usual = || KINDS.iter().find(|(it, _)| *it == kind).map_or(0, |(_, weight)| *weight);
        self.weights.iter().copied().flatten().find(|(it, _)| *it == kind).map_or_else(usual, |(_, weight)| *weight)
    }

    /// Returns `true` if a kind occurs at all.
    pub fn has(&self, kind: Kind) -> bool {
        self.weight_of(kind) > 0
    }
}

/// Returns the setting of this name.
pub fn find(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}
