//! Cases about ranges, chunks and mappings.

use std::sync::Arc;

use millpond_driver::{Access, CopyKind, RawChunk, Work};

use crate::subject::{HostMemory, Subject};

pub(crate) fn ranges_are_aligned_and_apart(subject: &Subject) {
    let granule = subject.granule();
    let sizes = [granule, 3 * granule, 1 << 34, granule];
    let mut ranges: Vec<(u64, u64)> =
        sizes.iter().map(|&bytes| (subject.driver.reserve(bytes).unwrap(), bytes)).collect();
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        assert!(pair[0].0 + pair[0].1 <= pair[1].0, "ranges overlap");
    }
    for (at, bytes) in ranges {
        assert!(at > 0 && at % granule == 0);
        subject.unreserve(at, bytes).unwrap();
    }
}

/// Others may take memory of a real device meanwhile, so only what this device took is compared.
pub(crate) fn a_device_says_how_full_it_is(subject: &Subject) {
    let (granule, total) = (subject.granule(), subject.driver.properties().total_bytes);
    let info = || subject.driver.memory_info().expect("every device of ours says it");
    let before = info();
    assert!(before.free_bytes <= before.total_bytes && before.total_bytes <= total, "{before:?} of {total}");
    let chunk = subject.driver.create(64 * granule).unwrap();
    assert!(info().free_bytes <= total - 64 * granule);
    subject.driver.destroy(chunk).unwrap();
    assert_eq!(info().total_bytes, before.total_bytes);
}

pub(crate) fn chunks_are_mapped_and_read_back(subject: &Subject) {
    let granule = subject.granule();
    let at = subject.driver.reserve(4 * granule).unwrap();
    let chunks = [subject.driver.create(granule).unwrap(), subject.driver.create(2 * granule).unwrap()];
    subject.map(chunks[0], at + granule, granule).unwrap();
    subject.map(chunks[1], at + 2 * granule, 2 * granule).unwrap();
    subject.fill(at + granule, 3 * granule, 7);
    subject.fill(at + 2 * granule, granule, 9);
    subject.expect(at + granule, granule, 7);
    subject.expect(at + 2 * granule, granule, 9);
    subject.expect(at + 3 * granule, granule, 7);
    // A chunk that is mapped elsewhere keeps its contents.
    subject.unmap(at + granule, granule).unwrap();
    subject.map(chunks[0], at, granule).unwrap();
    subject.expect(at, granule, 7);
    subject.unmap(at, granule).unwrap();
    subject.unmap(at + 2 * granule, 2 * granule).unwrap();
    for chunk in chunks {
        subject.driver.destroy(chunk).unwrap();
    }
    subject.unreserve(at, 4 * granule).unwrap();
}

pub(crate) fn two_addresses_are_one_memory(subject: &Subject) {
    let granule = subject.granule();
    let at = subject.driver.reserve(2 * granule).unwrap();
    let chunk = subject.driver.create(granule).unwrap();
    let (left, right) = (at, at + granule);
    subject.map(chunk, left, granule).unwrap();
    subject.map(chunk, right, granule).unwrap();
    subject.fill(left, granule, 1);
    subject.expect(right, granule, 1);
    subject.fill(right + 100, 50, 2);
    subject.expect(left + 100, 50, 2);
    // Unmapping one address leaves the other.
    subject.unmap(left, granule).unwrap();
    subject.expect(right + 100, 50, 2);
    subject.unmap(right, granule).unwrap();
    subject.driver.destroy(chunk).unwrap();
    subject.unreserve(at, 2 * granule).unwrap();
}

pub(crate) fn a_destroyed_chunk_lives_while_mapped(subject: &Subject) {
    let granule = subject.granule();
    let at = subject.driver.reserve(granule).unwrap();
    let chunk = subject.driver.create(granule).unwrap();
    subject.map(chunk, at, granule).unwrap();
    subject.driver.destroy(chunk).unwrap();
    subject.fill(at, granule, 3);
    // Memory that others get meanwhile is other memory.
    let other = subject.driver.create(granule).unwrap();
    let elsewhere = subject.driver.reserve(granule).unwrap();
    subject.map(other, elsewhere, granule).unwrap();
    subject.fill(elsewhere, granule, 4);
    subject.expect(at, granule, 3);
    subject.unmap(elsewhere, granule).unwrap();
    subject.driver.destroy(other).unwrap();
    subject.unmap(at, granule).unwrap();
    subject.unreserve(at, granule).unwrap();
    subject.unreserve(elsewhere, granule).unwrap();
}

pub(crate) fn chunks_of_many_sizes_come_and_go(subject: &Subject) {
    let granule = subject.granule();
    let bytes = 64 * granule;
    let at = subject.driver.reserve(bytes).unwrap();
    for round in 0..6u64 {
        let mut chunks = Vec::new();
        let mut end = at;
        for number in 0..10 {
            let size = (1 + (number * 7 + round * 3) % 5) * granule;
            let chunk = subject.driver.create(size).unwrap();
            subject.map(chunk, end, size).unwrap();
            // The ends are enough to detect a chunk that shares memory with another.
            subject.fill(end, 1, number as u8 + 1);
            subject.fill(end + size - 1, 1, number as u8 + 1);
            chunks.push((chunk, end, size));
            end += size;
        }
        for (number, &(chunk, start, size)) in chunks.iter().enumerate() {
            subject.expect(start, 1, number as u8 + 1);
            subject.expect(start + size - 1, 1, number as u8 + 1);
            // Every other chunk is destroyed before it is unmapped.
            if number % 2 == 0 {
                subject.driver.destroy(chunk).unwrap();
            }
            subject.unmap(start, size).unwrap();
            if number % 2 == 1 {
                subject.driver.destroy(chunk).unwrap();
            }
        }
    }
    subject.unreserve(at, bytes).unwrap();
}

pub(crate) fn refused_calls_change_nothing(subject: &Subject) {
    let (driver, granule) = (&subject.driver, subject.granule());
    let at = driver.reserve(4 * granule).unwrap();
    let chunk = driver.create(2 * granule).unwrap();
    subject.map(chunk, at, 2 * granule).unwrap();
    subject.fill(at, 2 * granule, 5);
    let unknown = RawChunk(chunk.0 + 1_000_000);
    let refused = [
        driver.reserve(granule - 1).map(drop),
        driver.reserve(0).map(drop),
        driver.reserve(!(granule - 1)).map(drop),
        driver.create(granule + 1).map(drop),
        driver.create(0).map(drop),
        driver.create(driver.properties().total_bytes).map(drop),
        driver.destroy(unknown),
        subject.map(unknown, at + 2 * granule, 2 * granule),
        subject.map(chunk, at + 2 * granule, granule),
        subject.map(chunk, at + 2 * granule + 4096, 2 * granule),
        subject.map(chunk, at + granule, 2 * granule),
        subject.map(chunk, at + 3 * granule, 2 * granule),
        subject.unmap(at, granule),
        subject.unmap(at + granule, granule),
        subject.unmap(at + 2 * granule, 2 * granule),
        subject.unreserve(at, 4 * granule),
        subject.unreserve(at + granule, 3 * granule),
        subject.unreserve(at, 2 * granule),
    ];
    for (number, outcome) in refused.iter().enumerate() {
        assert!(outcome.is_err(), "wrong call {number} was accepted");
    }
    subject.expect(at, 2 * granule, 5);
    subject.map(chunk, at + 2 * granule, 2 * granule).unwrap();
    subject.expect(at + 2 * granule, 2 * granule, 5);
    subject.unmap(at, 2 * granule).unwrap();
    subject.unmap(at + 2 * granule, 2 * granule).unwrap();
    driver.destroy(chunk).unwrap();
    assert!(driver.destroy(chunk).is_err(), "destroyed twice");
    subject.unreserve(at, 4 * granule).unwrap();
    assert!(subject.unreserve(at, 4 * granule).is_err(), "given back twice");
}

/// The bytes exist until the copy has completed, and no longer than the device.
pub(crate) fn an_upload_keeps_its_bytes(subject: &Subject) {
    let granule = subject.granule();
    let at = subject.driver.reserve(granule).unwrap();
    let chunk = subject.driver.create(granule).unwrap();
    subject.map(chunk, at, granule).unwrap();
    let stream = subject.stream();
    for round in 0..8u8 {
        subject.submit(stream, Work::Fill { at, bytes: granule, value: 0 });
        let from: Arc<Vec<u8>> = vec![round + 1; granule as usize].into();
        let watch = Arc::downgrade(&from);
        subject.submit(stream, Work::Upload { to: at, from });
        // If the bytes had been freed by now, this would overwrite them.
        let other = vec![0xEEu8; granule as usize];
        subject.finish(stream);
        subject.expect(at, granule, round + 1);
        drop(other);
        if subject.has_memory {
            // A device may notice only at the next copy.
            subject.submit(stream, Work::Upload { to: at, from: vec![0].into() });
            subject.finish(stream);
            assert!(watch.upgrade().is_none(), "nobody needs the bytes any more");
        }
    }
    subject.close(stream);
    subject.unmap(at, granule).unwrap();
    subject.driver.destroy(chunk).unwrap();
    subject.unreserve(at, granule).unwrap();
}

pub(crate) fn protection_changes_in_stream_order(subject: &Subject) {
    if !subject.driver.properties().can_protect {
        return;
    }
    let granule = subject.granule();
    let at = subject.driver.reserve(granule).unwrap();
    let chunk = subject.driver.create(granule).unwrap();
    subject.map(chunk, at, granule).unwrap();
    let stream = subject.stream();
    let mut host = [0u8; 16];
    let to = host.as_mut_ptr().expose_provenance() as u64;
    subject.submit(stream, Work::Fill { at, bytes: granule, value: 6 });
    subject.submit(stream, Work::Protect { at: at + 4096, bytes: 8192, access: Access::None });
    subject.submit(stream, Work::Fill { at, bytes: 4096, value: 8 });
    subject.submit(stream, Work::Protect { at: at + 4096, bytes: 8192, access: Access::ReadWrite });
    subject.submit(stream, Work::Copy { to, from: at + 4096 - 8, bytes: 16, kind: CopyKind::DeviceToHost });
    subject.finish(stream);
    assert!(!subject.has_memory || host == [8, 8, 8, 8, 8, 8, 8, 8, 6, 6, 6, 6, 6, 6, 6, 6]);
    // A mapping that ends while it is protected leaves nothing behind.
    subject.submit(stream, Work::Protect { at, bytes: granule, access: Access::None });
    subject.finish(stream);
    subject.unmap(at, granule).unwrap();
    subject.map(chunk, at, granule).unwrap();
    subject.expect(at + 4096, 4096, 6);
    subject.unmap(at, granule).unwrap();
    subject.driver.destroy(chunk).unwrap();
    subject.close(stream);
    subject.unreserve(at, granule).unwrap();
}

pub(crate) fn host_memory_is_copied_from_and_to(subject: &Subject) {
    let (driver, granule) = (&subject.driver, subject.granule());
    let at = driver.reserve(granule).expect("addresses");
    let chunk = driver.create(granule).expect("a chunk");
    subject.map(chunk, at, granule).expect("a mapping");
    let stream = subject.stream();
    let host: [HostMemory; 2] = std::array::from_fn(|_| HostMemory::new(subject, 10_000));
    assert!(host.iter().all(|it| it.at().is_multiple_of(512)), "aligned");
    assert!(host[0].at().abs_diff(host[1].at()) >= 10_000, "apart");
    assert!(host[0].bytes().iter().all(|byte| *byte == 0), "it is initialised");
    host[0].fill(7);
    subject.copy(stream, at, host[0].at(), 10_000, CopyKind::HostToDevice);
    subject.copy(stream, host[1].at(), at, 10_000, CopyKind::DeviceToHost);
    subject.finish(stream);
    let right = if subject.has_memory { 7 } else { 0 };
    assert!(host[1].bytes().iter().all(|byte| *byte == right));
    let first = host[0].at();
    host.into_iter().for_each(|it| it.free().expect("it was given"));
    // It is freed once only, and no other address is.
    for at in [first, first + 4096, 0] {
        assert!(HostMemory::refuses(subject, at), "{at:#x}");
    }
    assert!(driver.alloc_host(0).is_err());
    for bytes in [u64::MAX, 1 << 63, 1 << 62] {
        assert!(driver.alloc_host(bytes).is_err(), "{bytes} B");
    }
    // Memory that is left is freed with the device.
    let _left = HostMemory::new(subject, 1).at();
    subject.close(stream);
    subject.unmap(at, granule).expect("a mapping");
    driver.destroy(chunk).expect("a chunk");
    subject.unreserve(at, granule).expect("a range");
}
