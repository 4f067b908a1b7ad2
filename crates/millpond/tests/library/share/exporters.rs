//! Exporters whose files are not what they claim: no memory, too little, or of another device. On the host device, and
//! on CUDA: over `fakecuda`, and with `MILLPOND_TEST_DEVICE=cuda` on GPUs.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

use millpond::share::{Ticket, TicketKind};
use millpond::{Buffer, Device};
use millpond_core::share::{ChunkName, LeaseId, MemoryGrant, Part, Reply, Request};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::child::Child;
use super::raw::{Raw, RawExporter, one_use};
use super::{Side, copy_in, device, import, is_filled, kind};

const MIB: u64 = 1 << 20;

/// Returns the file of an allocation's first chunk, and that chunk's size, as an importer gets them.
fn genuine(buffer: &Buffer<u32>) -> (OwnedFd, u64) {
    let ticket = buffer.export().unwrap();
    let raw = Raw::connect(&ticket).unwrap();
    let part = raw.claim(&ticket).parts[0];
    match raw.ask(&Request::Fetch(vec![part.chunk])) {
        Some((Reply::Chunks(1), mut files)) => (files.pop().unwrap(), part.bytes),
        other => panic!("{other:?}"),
    }
}

/// Starts an exporter of one allocation, which is one chunk of `bytes` bytes with this file. It ends with the returned
/// lease.
fn exporter(file: OwnedFd, bytes: u64) -> (Ticket, JoinHandle<LeaseId>) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = u128::from(NEXT.fetch_add(1, Ordering::Relaxed));
    let name = u128::from(std::process::id()) << 64 | 1 << 32 | number;
    let exporter = RawExporter::new(name);
    let served = std::thread::spawn(move || {
        let raw = exporter.accept();
        let parts = vec![Part { chunk: ChunkName { pool: 0, serial: 0 }, bytes }];
        let (lease, device, born) = (LeaseId(5), number + 1000, one_use(number + 1000, 0, 0));
        let (gone, uses, offset, part_count, can_write) = (Vec::new(), Vec::new(), 0, 1, true);
        let grant = MemoryGrant { lease, bytes, offset, part_count, parts, gone, born, uses, device, can_write };
        while let Ok(Some((packet, _))) = raw.receive() {
            match Request::from_bytes(&packet).unwrap() {
                Request::Claim { .. } => raw.send(&Reply::Memory(grant.clone()).to_bytes(), &[]).unwrap(),
                Request::Fetch(_) => raw.send(&Reply::Chunks(1).to_bytes(), &[file.as_fd()]).unwrap(),
                Request::Release { lease, .. } => return lease,
                _ => {}
            }
        }
        panic!("nothing was given back");
    });
    (Ticket { kind: TicketKind::Memory, exporter: name, nonce: 1, bytes }, served)
}

#[test]
fn files_that_are_not_the_memory_are_refused() {
    for kind in ["host", kind()] {
        let (there, here) = (Side::of(device(kind)), Side::of(device(kind)));
        let buffer = there.stream.alloc::<u32>(&there.pool, 100_000).unwrap();
        copy_in(&there.stream, &buffer, 3).unwrap();
        there.stream.synchronize().unwrap();
        let memfd = memfd_create("not millpond's", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&memfd, 64 * MIB).unwrap();
        let (file, bytes) = genuine(&buffer);
        let files: Vec<(&str, OwnedFd, u64)> = vec![
            ("/dev/null", File::open("/dev/null").unwrap().into(), bytes),
            ("/dev/zero", File::open("/dev/zero").unwrap().into(), bytes),
            ("this program", File::open("/proc/self/exe").unwrap().into(), bytes),
            ("an eventfd", eventfd(0, EventfdFlags::CLOEXEC).unwrap(), bytes),
            ("a pipe", std::io::pipe().unwrap().0.into(), bytes),
            ("a memfd of its own", memfd, bytes),
            ("a chunk said to be larger", file.try_clone().unwrap(), 2 * bytes),
            ("a chunk said to be much larger", file.try_clone().unwrap(), bytes << 20),
        ];
        for (what, file, bytes) in files {
            let (ticket, served) = exporter(file, bytes);
            let refused = import(&here.device, &ticket);
            assert!(refused.is_err(), "{what} on {kind}: {refused:?}");
            drop(refused);
            assert_eq!(served.join().unwrap(), LeaseId(5), "{what} on {kind}");
            let sharing = here.device.sharing();
            let left = (sharing.imports, sharing.returning, sharing.imported_chunks);
            assert_eq!(left, (0, 0, 0), "{what} on {kind}");
        }
        // The correct counterpart: the same exporter with the real chunk.
        let (ticket, served) = exporter(file, bytes);
        let imported = import(&here.device, &ticket).unwrap();
        let bytes = here.stream.copy_to_host(imported.view().slice(0..100_000).unwrap().read()).unwrap();
        let right = there.stream.copy_to_host(buffer.read()).unwrap();
        assert!(bytes == right, "on {kind}");
        drop(imported);
        here.device.synchronize().unwrap();
        assert_eq!(served.join().unwrap(), LeaseId(5));
    }
}

/// Importers that lie, with an exporter of CUDA chunks: the rules of the host device hold there, too.
#[test]
fn importers_that_lie_get_nothing_of_a_gpu() {
    let side = Side::of(device(kind()));
    let buffer = side.stream.alloc::<u32>(&side.pool, 100_000).unwrap();
    copy_in(&side.stream, &buffer, 1).unwrap();
    side.stream.synchronize().unwrap();
    for what in ["granted", "untrue", "many", "1"] {
        let mut evil = Child::new();
        evil.must(format!("raw {}", buffer.export().unwrap()));
        evil.must(format!("raw-release {what}"));
        evil.must("raw-say over");
        evil.must("raw-say known");
        evil.kill();
    }
    let mut evil = Child::new();
    evil.must(format!("raw {}", buffer.export().unwrap()));
    // It asks for files, and reads none.
    evil.must("raw-fetch 100");
    evil.kill();
    super::eventually("all are gone", || side.device.sharing().connections == 0);
    assert!(is_filled(&side.stream, &buffer, 1).unwrap());
    side.stream.free(buffer).unwrap();
    side.assert_empty();
}

/// Memory of one GPU, imported into another.
#[test]
fn memory_of_another_gpu_is_imported_or_refused() {
    if kind() != "cuda" {
        println!("skipped: it needs two GPUs (MILLPOND_TEST_DEVICE=cuda)");
        return;
    }
    let Ok(second) = Device::cuda(1) else {
        println!("skipped: there is one GPU");
        return;
    };
    let (there, here) = (Side::of(second), Side::of(device("cuda")));
    let buffer = there.stream.alloc::<u32>(&there.pool, 100_000).unwrap();
    copy_in(&there.stream, &buffer, 3).unwrap();
    there.stream.synchronize().unwrap();
    match import(&here.device, &buffer.export().unwrap()) {
        Ok(imported) => {
            assert!(is_filled(&here.stream, &imported, 3).unwrap());
            copy_in(&here.stream, &imported, 4).unwrap();
            here.stream.synchronize().unwrap();
            drop(imported);
            here.device.synchronize().unwrap();
            println!("imported, read and written");
            assert!(is_filled(&there.stream, &buffer, 4).unwrap());
        }
        Err(error) => println!("refused: {error}"),
    }
    there.stream.free(buffer).unwrap();
    there.assert_empty();
}
