//! The contract of `Driver`, as one suite that every device must pass.
//!
//! A case is written once, against `Subject`; `conform!` makes one test of it for each device. Cases see memory only
//! through copies, and time only through marks and the order in which closures ran, so that a device that is not a
//! thread of this process can join.

mod memory;
mod streams;
mod subject;

use std::sync::Arc;

use millpond_driver::{Completion, HostConfig, HostDriver, Schedule, SimConfig, SimDriver};
use subject::Subject;

fn host(schedule: Schedule) -> Subject {
    let driver = HostDriver::new(HostConfig { schedule, ..HostConfig::default() }).expect("a host device");
    Subject {
        driver: Arc::new(driver),
        has_memory: true,
        is_parallel: schedule == Schedule::Parallel,
        progresses: true,
    }
}

fn sim(completion: Completion) -> Subject {
    let driver = SimDriver::new(SimConfig { completion, ..SimConfig::default() });
    let progresses = completion == Completion::AtOnce;
    Subject { driver: Arc::new(driver), has_memory: false, is_parallel: false, progresses }
}

macro_rules! conform {
    ($($device:ident: $subject:expr;)*) => {
        $(mod $device {
            use super::*;

            conform!(@memory $subject => ranges_are_aligned_and_apart, chunks_are_mapped_and_read_back,
                two_addresses_are_one_memory, a_destroyed_chunk_lives_while_mapped, chunks_of_many_sizes_come_and_go,
                refused_calls_change_nothing, protection_changes_in_stream_order);
            conform!(@streams $subject => work_runs_in_order, a_mark_covers_what_came_before, asking_gets_there,
                a_stream_waits_for_a_mark, chains_of_streams, diamonds, waits_that_change_nothing,
                parallel_streams_overlap, a_woken_stream_overlaps_its_waker, streams_come_and_go,
                closed_streams_finish, work_submits_work,
                random_programs_keep_their_order, threads_share_a_device);
        })*
    };
    (@$module:ident $subject:expr => $($case:ident),*) => {
        $(#[test]
        fn $case() {
            $module::$case(&$subject);
        })*
    };
}

conform! {
    host_parallel: host(Schedule::Parallel);
    host_seed_1: host(Schedule::Seeded(1));
    host_seed_2: host(Schedule::Seeded(2));
    sim_at_once: sim(Completion::AtOnce);
    sim_at_block: sim(Completion::AtBlock);
}
