//! Memory of one device used by another: granted, refused without a grant, ordered by events, revoked.

use std::sync::Arc;
use std::sync::mpsc::channel;

use millpond::check::Kind;
use millpond::config::{Schedule, Slack};
use millpond::cuda::CudaConfig;
use millpond::error::Invalid;
use millpond::pool::PeerAccess;
use millpond::{Buffer, Device, DeviceConfig, Error, HostConfig, MIB, Pool, PoolConfig, Stream};
use millpond_driver::{CallKind, DriverError, Failing, HostDriver};

use crate::common::{Make, Subject, kind_of, makes, order, visit};

/// Runs a body on pairs of devices that may have access to each other's memory.
fn on_peers(body: impl Fn(&Device, &Device)) {
    let of_kind = |fits: fn(&Make) -> bool| makes().into_iter().filter(fits).collect::<Vec<_>>();
    let hosts = of_kind(|make| matches!(make, Make::Parallel | Make::Seeded(1 | 2)));
    for (here, there) in hosts.iter().flat_map(|here| hosts.iter().map(move |there| (*here, *there))) {
        eprintln!("on {here:?} and {there:?}:");
        body(&Subject::new(here).device, &Subject::new(there).device);
    }
    for make in of_kind(|make| matches!(make, Make::Fake)) {
        eprintln!("on {make:?}, twice:");
        body(&Subject::new(make).device, &Subject::new(make).device);
    }
    for make in of_kind(|make| matches!(make, Make::Cuda)) {
        eprintln!("on {make:?}, twice, or a GPU and itself:");
        let other = Device::cuda(1).or_else(|_| Device::cuda(0)).expect("a GPU");
        body(&Subject::new(make).device, &other);
    }
}

fn filled(stream: &Stream, pool: &Pool, value: u8) -> Buffer<u8> {
    let buffer = stream.alloc::<u8>(pool, 1 << 20).unwrap();
    stream.memset(buffer.write(), value).unwrap();
    buffer
}

fn is_no_access(error: &Error) -> bool {
    error.violation().is_some_and(|it| it.kind == Kind::NoAccess)
}

#[track_caller]
fn assert_refused(result: Result<(), Error>, here: &Device, there: &Device, call: &str) {
    let error = result.expect_err("there is no grant");
    assert!(is_no_access(&error), "{error}");
    let text = error.report().to_string();
    for part in [&here.name().to_string(), &there.name().to_string(), "pool 1", call] {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

/// Past and future allocations, and copies both ways, on the other device's stream.
#[test]
fn a_grant_lets_another_device_in_to_all_of_a_pool() {
    on_peers(|here, there| {
        let (pool, other) = (here.pool(PoolConfig::default()).unwrap(), there.default_pool());
        let (own, foreign) = (here.stream().unwrap(), there.stream().unwrap());
        let before = filled(&own, &pool, 3);
        let local = foreign.alloc::<u8>(&other, 1 << 20).unwrap();
        order(&own, &foreign);
        assert_refused(
            foreign.copy(before.read(), local.write()),
            here,
            there,
            "pool.grant(&device, PeerAccess::Read)",
        );
        assert_refused(foreign.memset(before.write(), 9), here, there, "pool.grant(&device, PeerAccess::ReadWrite)");
        assert_eq!(pool.access_of(there), PeerAccess::None);

        pool.grant(there, PeerAccess::ReadWrite).unwrap();
        assert_eq!(pool.access_of(there), PeerAccess::ReadWrite);
        assert_eq!((pool.access_of(here), other.access_of(here)), (PeerAccess::ReadWrite, PeerAccess::None));
        let after = filled(&own, &pool, 4);
        order(&own, &foreign);
        for (memory, value) in [(&before, 3), (&after, 4)] {
            foreign.copy(memory.read(), local.write()).unwrap();
            assert_eq!(foreign.copy_to_host(local.read()).unwrap(), vec![value; 1 << 20]);
            assert_eq!(foreign.copy_to_host(memory.view().read()).unwrap(), vec![value; 1 << 20]);
            foreign.memset(memory.write(), value + 10).unwrap();
        }
        order(&foreign, &own);
        assert_eq!(own.copy_to_host(before.read()).unwrap(), vec![13; 1 << 20]);
        assert_eq!(own.copy_to_host(after.read()).unwrap(), vec![14; 1 << 20]);

        pool.revoke(there).unwrap();
        assert_eq!(pool.access_of(there), PeerAccess::None);
        assert_refused(visit(&foreign, after.read()), here, there, "PeerAccess::Read");
        own.free(before).unwrap();
        own.free(after).unwrap();
        foreign.free(local).unwrap();
        here.synchronize().unwrap();
        assert_eq!(pool.statistics().reserved_bytes, 0);
    });
}

#[test]
fn a_grant_to_read_lets_nobody_write() {
    // A GPU may refuse to grant this.
    if makes().contains(&Make::Cuda) {
        return;
    }
    on_peers(|here, there| {
        let pool = here.pool(PoolConfig::default()).unwrap();
        let (own, foreign) = (here.stream().unwrap(), there.stream().unwrap());
        let memory = filled(&own, &pool, 3);
        order(&own, &foreign);
        pool.grant(there, PeerAccess::Read).unwrap();
        visit(&foreign, memory.read()).unwrap();
        assert_refused(foreign.memset(memory.write(), 9), here, there, "grants it read access");
        pool.grant(there, PeerAccess::ReadWrite).unwrap();
        foreign.memset(memory.write(), 9).unwrap();
        // To grant less than before is like a revocation.
        let refused = pool.grant(there, PeerAccess::Read).unwrap_err();
        assert!(is_no_access(&refused), "{refused}");
        foreign.synchronize().unwrap();
        pool.grant(there, PeerAccess::Read).unwrap();
        assert_eq!(foreign.copy_to_host(memory.read()).unwrap(), vec![9; 1 << 20]);
    });
}

/// A pool can neither grant nor revoke its own device's access.
#[test]
fn a_pools_own_device_always_has_access() {
    on_peers(|here, _| {
        let pool = here.pool(PoolConfig::default()).unwrap();
        pool.grant(here, PeerAccess::ReadWrite).unwrap();
        let refused = pool.revoke(here).unwrap_err();
        assert!(matches!(refused.invalid(), Some(Invalid::OwnAccess { .. })), "{refused}");
    });
}

#[test]
fn devices_that_cannot_meet_say_so() {
    let mut strangers = Vec::new();
    if makes().contains(&Make::Parallel) {
        strangers.push((Make::Parallel, Subject::new(Make::Sim(Schedule::AtOnce)).device));
    }
    if makes().contains(&Make::Fake) {
        // The last of its devices is no peer of any other.
        let last = CudaConfig::default().ordinal(64).library(fakecuda::library());
        strangers.push((Make::Fake, Device::cuda_with(last, DeviceConfig::default()).unwrap()));
        strangers.push((Make::Fake, Device::host(HostConfig::default()).unwrap()));
    }
    for (make, there) in strangers {
        let here = Subject::new(make).device;
        let refused = here.default_pool().grant(&there, PeerAccess::ReadWrite).unwrap_err();
        assert!(matches!(refused.invalid(), Some(Invalid::NotPeers { .. })), "{refused}");
        let refused = there.default_pool().grant(&here, PeerAccess::Read).unwrap_err();
        assert!(matches!(refused.invalid(), Some(Invalid::NotPeers { .. })), "{refused}");
        assert_eq!(here.default_pool().access_of(&there), PeerAccess::None);
        here.default_pool().revoke(&there).unwrap();
    }
}

/// The same rules as between two streams of one device, with both devices named.
#[test]
fn uses_of_two_devices_are_ordered_by_events() {
    on_peers(|here, there| {
        let pool = here.pool(PoolConfig::default()).unwrap();
        pool.grant(there, PeerAccess::ReadWrite).unwrap();
        let (own, foreign) = (here.stream().unwrap(), there.stream().unwrap());
        let memory = filled(&own, &pool, 3);
        let early = foreign.memset(memory.write(), 9).unwrap_err();
        assert_eq!(kind_of(&early), Kind::UseBeforeAlloc);
        if here.name().number < 254 && there.name().number < 254 {
            let text = early.to_string();
            let side = |stream: &Stream, device: &Device| format!("{} of device {}", stream.id(), device.name().number);
            assert!(text.contains(&side(&own, here)) && text.contains(&side(&foreign, there)), "{text}");
        }
        order(&own, &foreign);
        foreign.memset(memory.write(), 9).unwrap();
        assert_eq!(kind_of(&visit(&own, memory.read()).unwrap_err()), Kind::Race);
        let refused = own.free(memory).unwrap_err();
        assert_eq!(kind_of(&refused.error), Kind::FreeBeforeUse);
        order(&foreign, &own);
        assert_eq!(own.copy_to_host(refused.buffer.read()).unwrap(), vec![9; 1 << 20]);
        own.free(refused.buffer).unwrap();
    });
}

/// A thread that waited for one device then submits to the other one.
#[test]
fn what_the_host_was_told_by_one_device_counts_on_the_other() {
    on_peers(|here, there| {
        let pool = here.pool(PoolConfig::default()).unwrap();
        pool.grant(there, PeerAccess::ReadWrite).unwrap();
        let (own, foreign) = (here.stream().unwrap(), there.stream().unwrap());
        let memory = filled(&own, &pool, 3);
        own.synchronize().unwrap();
        foreign.memset(memory.write(), 9).unwrap();
        assert_eq!(kind_of(&visit(&own, memory.read()).unwrap_err()), Kind::Race);
        foreign.synchronize().unwrap();
        visit(&own, memory.write()).unwrap();
        there.synchronize().unwrap();
        assert!(here.free_address(memory.address()).is_err(), "the write on its own device");
        own.synchronize().unwrap();
        here.free_address(memory.address()).unwrap();

        let memory = filled(&own, &pool, 5);
        order(&own, &foreign);
        foreign.memset(memory.write(), 6).unwrap();
        own.synchronize().unwrap();
        assert_eq!(here.free_address(memory.address()).unwrap_err().violation().unwrap().kind, Kind::FreeBeforeUse);
        there.synchronize().unwrap();
        here.free_address(memory.address()).unwrap();
        drop(memory);
    });
}

/// Streams of both devices wait for each other many times.
#[test]
fn two_devices_hand_memory_back_and_forth() {
    on_peers(|here, there| {
        let (left, right) = (here.pool(PoolConfig::default()).unwrap(), there.pool(PoolConfig::default()).unwrap());
        left.grant(there, PeerAccess::ReadWrite).unwrap();
        right.grant(here, PeerAccess::ReadWrite).unwrap();
        let (own, foreign) = (here.stream().unwrap(), there.stream().unwrap());
        let mut memory = filled(&own, &left, 0);
        for round in 0..40u8 {
            let next = foreign.alloc::<u8>(&right, 1 << 20).unwrap();
            order(&own, &foreign);
            foreign.copy(memory.read(), next.write()).unwrap();
            order(&foreign, &own);
            own.free(memory).unwrap();
            memory = own.alloc::<u8>(&left, 1 << 20).unwrap();
            own.copy(next.read(), memory.write()).unwrap();
            own.memset(memory.view().slice(0..=usize::from(round)).unwrap().write(), round).unwrap();
            order(&own, &foreign);
            foreign.free(next).unwrap();
        }
        let found = own.copy_to_host(memory.read()).unwrap();
        assert!(found[..40].iter().all(|it| *it == 39) && found[40..].iter().all(|it| *it == 0));
        own.free(memory).unwrap();
        here.synchronize().unwrap();
        there.synchronize().unwrap();
        assert_eq!((left.statistics().reserved_bytes, right.statistics().reserved_bytes), (0, 0));
    });
}

#[test]
fn access_in_use_is_not_taken_away() {
    on_peers(|here, there| {
        let pool = here.pool(PoolConfig::default()).unwrap();
        pool.grant(there, PeerAccess::ReadWrite).unwrap();
        let (own, foreign) = (here.stream().unwrap(), there.stream().unwrap());
        let memory = filled(&own, &pool, 3);
        order(&own, &foreign);
        visit(&foreign, memory.write()).unwrap();
        order(&foreign, &own);
        // Also if the memory is freed already: the work may still run.
        own.free(memory).unwrap();
        let refused = pool.revoke(there).unwrap_err();
        let Some(violation) = refused.violation().filter(|it| it.kind == Kind::NoAccess) else { panic!("{refused}") };
        assert!(violation.earlier.as_ref().is_some_and(|last| last.op.is_some()));
        assert!(violation.later.as_ref().is_some_and(|revoked| revoked.spot.line.is_some()));
        assert_eq!(pool.access_of(there), PeerAccess::ReadWrite);
        there.synchronize().unwrap();
        pool.revoke(there).unwrap();
        pool.revoke(there).unwrap();
    });
}

/// Memory is moved, given back and allocated again under a grant: every mapping of it grants the access.
#[test]
fn a_grant_holds_wherever_memory_moves() {
    on_peers(|here, there| {
        let config = PoolConfig::default().slack(Slack::Fixed(0.0));
        let pool = here.pool(config).unwrap();
        let (own, foreign) = (here.stream().unwrap(), there.stream().unwrap());
        pool.grant(there, PeerAccess::ReadWrite).unwrap();
        let mut live: Vec<(Buffer<u8>, u8)> = Vec::new();
        for round in 0..30u8 {
            let bytes = (1 + usize::from(round) * 7 % 11) << 20;
            let memory = own.alloc::<u8>(&pool, bytes).unwrap();
            own.memset(memory.write(), round).unwrap();
            live.push((memory, round));
            if round % 3 == 2 {
                own.free(live.swap_remove(usize::from(round) * 5 % live.len()).0).unwrap();
            }
            if round % 7 == 6 {
                own.synchronize().unwrap();
                pool.trim_to(0).unwrap();
            }
            order(&own, &foreign);
            for (memory, value) in &live {
                let found = foreign.copy_to_host(memory.read()).unwrap();
                assert!(found.iter().all(|it| it == value), "round {round}, {value}");
            }
            order(&foreign, &own);
        }
    });
}

/// Two handles of one of the driver's devices: what one loses, the other keeps.
#[test]
fn grants_are_kept_apart() {
    let library = || Some(fakecuda::library());
    let open = |ordinal| {
        let config = CudaConfig::default().ordinal(ordinal).library(library());
        Device::cuda_with(config, DeviceConfig::default()).unwrap()
    };
    let (here, one, two, same) = (open(40), open(41), open(41), open(40));
    let pool = here.default_pool();
    let own = here.stream().unwrap();
    let memory = filled(&own, &pool, 8);
    own.synchronize().unwrap();
    for device in [&one, &two, &same] {
        pool.grant(device, PeerAccess::ReadWrite).unwrap();
    }
    pool.revoke(&one).unwrap();
    assert!(one.stream().unwrap().copy_to_host(memory.read()).is_err());
    let more = filled(&own, &pool, 9);
    own.synchronize().unwrap();
    for device in [&two, &same] {
        let stream = device.stream().unwrap();
        assert_eq!(stream.copy_to_host(memory.read()).unwrap()[0], 8);
        assert_eq!(stream.copy_to_host(more.read()).unwrap()[0], 9);
    }
}

/// Work of another device uses the memory while the buffer, pool, stream and device of the memory are dropped.
#[test]
fn memory_outlives_its_device_under_anothers_work() {
    for schedule in [Schedule::Parallel, Schedule::Seeded(4)] {
        if !makes().contains(&Make::Parallel) {
            return;
        }
        let host = || Device::host(HostConfig::default().schedule(schedule)).unwrap();
        let (here, there) = (host(), host());
        let pool = here.pool(PoolConfig::default()).unwrap();
        pool.grant(&there, PeerAccess::ReadWrite).unwrap();
        let (own, foreign) = (here.stream().unwrap(), there.stream().unwrap());
        let memory = filled(&own, &pool, 6);
        order(&own, &foreign);
        let (go, gate) = channel::<()>();
        let (tell, told) = channel();
        let read = move |memory: &[u8]| {
            let _ = gate.recv();
            let _ = tell.send(memory.iter().all(|it| *it == 6));
        };
        foreign.launch(memory.read(), read).unwrap();
        let result = foreign.record().unwrap();
        drop((memory, pool, own, here));
        drop((foreign, go));
        result.synchronize().unwrap();
        assert_eq!(told.recv(), Ok(true));
    }
}

/// If memory is dropped while another device uses it, nobody gets it before that use has completed.
#[test]
fn dropped_memory_waits_for_other_devices() {
    if !makes().contains(&Make::Parallel) {
        return;
    }
    let host = || Device::host(HostConfig::default()).unwrap();
    let (here, there) = (host(), host());
    let pool = here.pool(PoolConfig::default()).unwrap();
    pool.grant(&there, PeerAccess::Read).unwrap();
    let (own, foreign) = (here.stream().unwrap(), there.stream().unwrap());
    for is_busy in [true, false] {
        let memory = filled(&own, &pool, 6);
        order(&own, &foreign);
        let (go, gate) = channel::<()>();
        let (tell, told) = channel();
        let read = move |memory: &[u8]| {
            let _ = gate.recv();
            let _ = tell.send(memory.iter().all(|it| *it == 6));
        };
        foreign.launch(memory.read(), read).unwrap();
        if !is_busy {
            drop(go);
            foreign.synchronize().unwrap();
            drop(memory);
            assert_eq!(told.recv(), Ok(true));
            continue;
        }
        drop(memory);
        // A second buffer of the same size: at another address, or after the reader.
        let next = filled(&own, &pool, 7);
        pool.trim_to(0).unwrap();
        drop(go);
        assert_eq!(told.recv(), Ok(true));
        own.free(next).unwrap();
    }
    drop((own, pool));
    foreign.synchronize().unwrap();
    here.synchronize().unwrap();
}

/// Each call of the driver fails in turn: earlier grants stay, and no memory is lost.
#[test]
fn a_driver_that_fails_loses_no_grant() {
    for n in 0.. {
        let driver = Arc::new(Failing::new(HostDriver::new(Default::default()).unwrap()));
        let here = Device::with_driver(driver.clone(), DeviceConfig::default()).unwrap();
        let there = Device::host(HostConfig::default()).unwrap();
        let pool = here.pool(PoolConfig::default()).unwrap();
        let (own, foreign) = (here.stream().unwrap(), there.stream().unwrap());
        let memory: Vec<_> = (0..4).map(|value| filled(&own, &pool, value)).collect();
        let high = own.alloc::<u8>(&pool, 32 * MIB as usize).unwrap();
        own.synchronize().unwrap();
        driver.fail_at(n);
        let granted = pool.grant(&there, PeerAccess::ReadWrite);
        assert_eq!(pool.access_of(&there) == PeerAccess::ReadWrite, granted.is_ok());
        let again = granted.or_else(|_| pool.grant(&there, PeerAccess::ReadWrite));
        let more = own.alloc::<u8>(&pool, 64 * MIB as usize).or_else(|_| own.alloc::<u8>(&pool, 64 * MIB as usize));
        let revoked = pool.revoke(&there);
        let left = pool.access_of(&there);
        let struck = driver.struck();
        driver.disarm();
        assert!(again.is_ok() && more.is_ok(), "one call failed: {struck:?}");
        assert_eq!(left == PeerAccess::None, revoked.is_ok(), "{struck:?}");
        pool.grant(&there, PeerAccess::ReadWrite).unwrap();
        own.synchronize().unwrap();
        for (value, memory) in memory.iter().enumerate() {
            assert_eq!(foreign.copy_to_host(memory.read()).unwrap(), vec![value as u8; 1 << 20]);
        }
        drop((memory, high, more));
        here.synchronize().unwrap();
        assert_eq!(pool.statistics().reserved_bytes, 0, "{struck:?}");
        if struck.is_empty() {
            assert!(n > 8, "grant, map and revoke call the driver");
            return;
        }
    }
}

/// The same if the device itself refuses, and if nothing that failed can be restored.
#[test]
fn a_grant_that_cannot_be_restored_is_gone() {
    let driver = Arc::new(Failing::new(HostDriver::new(Default::default()).unwrap()));
    let here = Device::with_driver(driver.clone(), DeviceConfig::default()).unwrap();
    let there = Device::host(HostConfig::default()).unwrap();
    let pool = here.pool(PoolConfig::default()).unwrap();
    let (own, foreign) = (here.stream().unwrap(), there.stream().unwrap());
    let memory = filled(&own, &pool, 1);
    let high = own.alloc::<u8>(&pool, 32 * MIB as usize).unwrap();
    own.synchronize().unwrap();
    pool.grant(&there, PeerAccess::ReadWrite).unwrap();
    // The first mapping is closed, the second is not, and the first cannot be opened again.
    driver.fail_at_kind(CallKind::LetIn, 1);
    let refused = pool.revoke(&there).unwrap_err();
    assert!(matches!(refused, Error::Driver(_)), "{refused}");
    assert_eq!(pool.access_of(&there), PeerAccess::ReadWrite, "all was restored");
    assert_eq!(foreign.copy_to_host(memory.read()).unwrap(), vec![1; 1 << 20]);
    let reason = DriverError::Failed { call: "let_in", reason: "out of order".into() };
    driver.fail_every(CallKind::LetIn, reason);
    assert!(pool.revoke(&there).is_err());
    driver.disarm();
    let _ = pool.revoke(&there);
    assert_eq!(pool.access_of(&there), PeerAccess::None);
    drop(high);
}
