//! The contract of `Driver`, as one suite that every device must pass.
//!
//! A case is written once, against `Subject`. `conform!` makes one test of it for each device. Cases see memory only
//! through copies, and time only through events and the order in which closures ran, so that a device that is not a
//! thread of this process can take part.
//!
//! `MILLPOND_TEST_DEVICE` selects one kind: `host`, `sim` (the host device without memory, checked), `fake` (the CUDA
//! driver over `fakecuda`) or `cuda` (a real GPU, which must exist then). If it is not set, all kinds but `cuda` run.

mod graphs;
mod memory;
mod sharing;
mod streams;
mod subject;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use millpond_driver::{Checked, CudaConfig, CudaDriver, HostConfig, HostDriver, Schedule};
use subject::Subject;

fn host(schedule: Schedule) -> Subject {
    let driver = HostDriver::new(HostConfig { schedule, ..HostConfig::default() }).expect("a host device");
    Subject {
        driver: Arc::new(driver),
        has_memory: true,
        is_parallel: schedule == Schedule::Parallel,
        has_clock: schedule == Schedule::Parallel,
        progresses: schedule != Schedule::AtWait,
        work_may_submit: true,
    }
}

/// The checks change nothing.
fn checked() -> Subject {
    let Subject { driver, has_memory, is_parallel, has_clock, progresses, work_may_submit } = host(Schedule::Parallel);
    let driver = Arc::new(Checked::new(driver));
    Subject { driver, has_memory, is_parallel, has_clock, progresses, work_may_submit }
}

fn sim(schedule: Schedule) -> Subject {
    let driver = HostDriver::new(HostConfig { schedule, memory: false, ..HostConfig::default() });
    let progresses = schedule == Schedule::AtOnce;
    Subject {
        driver: Arc::new(Checked::new(driver.expect("a host device"))),
        has_memory: false,
        is_parallel: false,
        has_clock: false,
        progresses,
        work_may_submit: true,
    }
}

/// Closures are host functions there: one at a time, and none may call the device.
fn cuda(config: CudaConfig) -> Subject {
    let driver = CudaDriver::new(config).expect("a CUDA device");
    Subject {
        driver: Arc::new(driver),
        has_memory: true,
        is_parallel: false,
        has_clock: true,
        progresses: true,
        work_may_submit: false,
    }
}

fn fake() -> Subject {
    // Tests run in parallel, each on a device of its own.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let ordinal = NEXT.fetch_add(1, Ordering::Relaxed) % 64;
    cuda(CudaConfig::default().ordinal(ordinal).library(fakecuda::library()))
}

/// Returns `true` if the environment selects a kind of device. Otherwise prints that it does not.
fn is_wanted(kind: &str) -> bool {
    let wish = std::env::var("MILLPOND_TEST_DEVICE").unwrap_or_default();
    let is_wanted = if wish.is_empty() { kind != "cuda" } else { kind == wish };
    if !is_wanted {
        println!("skipped on {kind}: MILLPOND_TEST_DEVICE={wish}");
    }
    is_wanted
}

macro_rules! conform {
    ($($device:ident: $kind:literal, $subject:expr;)*) => {
        $(mod $device {
            use super::*;

            conform!(@memory $kind, $subject => ranges_are_aligned_and_apart, chunks_are_mapped_and_read_back,
                two_addresses_are_one_memory, a_destroyed_chunk_lives_while_mapped, chunks_of_many_sizes_come_and_go,
                refused_calls_change_nothing, a_device_says_how_full_it_is, an_upload_keeps_its_bytes,
                protection_changes_in_stream_order, host_memory_is_copied_from_and_to);
            conform!(@sharing $kind, $subject => a_file_is_another_holder_of_the_memory,
                a_size_that_is_a_lie_is_found_out, only_what_was_made_for_it_is_handed_out,
                an_event_for_others_is_an_event_like_any);
            conform!(@streams $kind, $subject => work_runs_in_order, an_event_covers_what_came_before,
                times_follow_the_work, asking_gets_there, a_stream_waits_for_an_event, chains_of_streams,
                diamonds, waits_that_change_nothing, parallel_streams_overlap,
                a_woken_stream_overlaps_its_waker, streams_come_and_go,
                closed_streams_finish, work_submits_work,
                random_programs_keep_their_order, threads_share_a_device);
            conform!(@graphs $kind, $subject => edges_are_kept, nodes_work_on_memory, launches_are_work_of_their_stream,
                a_destroyed_graph_ends_its_launches, captured_work_is_a_node,
                a_capture_is_apart_from_the_streams_work, graphs_refuse_what_is_not_there);
        })*
    };
    (@$module:ident $kind:literal, $subject:expr => $($case:ident),*) => {
        $(#[test]
        fn $case() {
            if is_wanted($kind) {
                $module::$case(&$subject);
            }
        })*
    };
}

conform! {
    host_parallel: "host", host(Schedule::Parallel);
    host_seed_1: "host", host(Schedule::Seeded(1));
    host_seed_2: "host", host(Schedule::Seeded(2));
    host_at_once: "host", host(Schedule::AtOnce);
    host_at_wait: "host", host(Schedule::AtWait);
    host_checked: "host", checked();
    sim_at_once: "sim", sim(Schedule::AtOnce);
    sim_at_wait: "sim", sim(Schedule::AtWait);
    cuda_over_fakecuda: "fake", fake();
    cuda_on_a_gpu: "cuda", cuda(CudaConfig::default());
}
