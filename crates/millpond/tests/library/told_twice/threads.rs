//! Threads that call at the same moment: a trace has their operations in an order in which the device decided them.

use super::*;

/// A call that a capture allows is allowed in the trace as well, though another thread begins captures meanwhile.
#[test]
fn what_captures_have_allowed_is_not_forbidden_later() {
    type Call = fn(&Device) -> Result<(), Error>;
    let calls: [(&str, Call); 3] = [
        ("instantiate", |device| device.graph()?.instantiate(Instantiate::default()).map(drop)),
        ("pinned", |device| device.pinned::<u8>(64).map(drop)),
        ("pool", |device| device.pool(PoolConfig::default()).map(drop)),
    ];
    for (name, call) in calls {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("told_twice-allowed-{name}.trace"));
        let trace = Trace::create(&path).unwrap();
        let device = Device::host(HostConfig::default().trace(trace.clone())).unwrap();
        let ([s], is_over) = (streams(&device), AtomicBool::new(false));
        let refused = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    s.begin_capture().unwrap();
                    s.abandon_capture();
                }
            });
            let refused = (0..300).filter(|_| call(&device).is_err()).count();
            is_over.store(true, Ordering::Relaxed);
            refused
        });
        drop((s, device, trace));
        let findings = traced::findings(&path, Settings { leaks: false, ..Settings::RECORDED }, |_| true);
        // A refusal may stand behind the end of the capture that forbade it.
        assert!(findings.len() <= refused, "{name}: {} of {refused}", findings.len());
    }
}

/// A capture that begins while another thread waits does not forbid that call, which was allowed when it was made.
#[test]
fn a_capture_may_begin_while_a_call_waits() {
    type Wait = fn(&Device, &Stream) -> Result<(), Error>;
    let waits: [Wait; 3] = [|_, s| s.synchronize(), |device, _| device.synchronize(), |_, s| s.record()?.synchronize()];
    for (at, wait) in waits.into_iter().enumerate() {
        // A slow thread calls only after the capture has begun, and is refused.
        let is_allowed = || {
            let [live, by_trace] = told(&format!("while-it-waits-{at}"), |said, [device]| {
                let [s, t] = streams(&device);
                let (open, gate) = std::sync::mpsc::channel::<()>();
                s.launch((), move |()| gate.recv().unwrap()).unwrap();
                std::thread::scope(|scope| {
                    let waiting = scope.spawn(|| wait(&device, &s));
                    std::thread::sleep(std::time::Duration::from_millis(50));
                    t.begin_capture().unwrap();
                    open.send(()).unwrap();
                    said.of(waiting.join().unwrap());
                    let _ = t.end_capture();
                });
            });
            assert_eq!(live, by_trace);
            live.is_empty()
        };
        assert!((0..10).any(|_| is_allowed()));
    }
}

/// Repeats a call until it succeeds, while another thread synchronises with a stream. Returns the number of refusals.
fn tries(stream: &Stream, mut attempt: impl FnMut() -> bool) -> usize {
    std::thread::scope(|scope| {
        scope.spawn(|| stream.synchronize().unwrap());
        std::iter::repeat_with(&mut attempt).take_while(|is_done| !is_done).count()
    })
}

/// Access that is refused to be taken away stands before the synchronisation that it lacked.
#[test]
fn a_refused_revoke_stands_before_the_synchronisation_that_it_missed() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("told_twice-revoke.trace");
    let trace = Trace::create(&path).unwrap();
    let [a, b] = [0, 1].map(|_| Device::host(HostConfig::default().trace(trace.clone())).unwrap());
    let (pool, left, right) = (a.default_pool(), a.stream().unwrap(), b.stream().unwrap());
    let x = left.alloc_zeroed::<u32>(&pool, 4).unwrap();
    left.synchronize().unwrap();
    let mut refused = 0;
    for _ in 0..300 {
        pool.grant(&b, PeerAccess::ReadWrite).unwrap();
        right.launch(x.write(), |_| ()).unwrap();
        refused += tries(&right, || pool.revoke(&b).is_ok());
    }
    left.free(x).unwrap();
    drop((pool, left, right, a, b, trace));
    let settings = Settings { leaks: false, advice: false, ..Settings::RECORDED };
    let findings = traced::findings(&path, settings, |_| true);
    assert!(findings.iter().all(|it| it.kind == Kind::NoAccess), "{findings:#?}");
    assert_eq!(findings.len(), refused, "as often as live");
}

/// Another thread that sees the end of a capture works behind it, in the trace as well.
#[test]
fn what_comes_after_a_capture_stands_behind_its_end() {
    agreed("after-the-end", &[], |_, [device]| {
        let (pool, [left, side, other]) = (device.default_pool(), streams(&device));
        let mut y = Some(side.alloc_zeroed::<u32>(&pool, 4).unwrap());
        for round in 0..10 {
            left.begin_capture().unwrap();
            // So many that the end takes a while.
            for _ in 0..1000 {
                let _node = left.alloc::<u32>(&pool, 4).unwrap().into_alloc_node();
            }
            side.wait(&left.record().unwrap()).unwrap();
            left.wait(&side.record().unwrap()).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while side.is_capturing().unwrap() {}
                    if round % 2 == 0 {
                        other.synchronize().unwrap();
                    }
                    side.memset(y.as_ref().unwrap().write(), 1).unwrap();
                    side.free(y.take().unwrap()).unwrap();
                    y = Some(side.alloc_zeroed::<u32>(&pool, 4).unwrap());
                });
                left.end_capture().unwrap();
            });
        }
    });
}

/// A stream that has joined a capture records an event while another thread ends the capture: in it, or after it.
#[test]
fn an_event_is_recorded_in_a_capture_or_after_it() {
    let device = Device::host(HostConfig::default()).unwrap();
    let [left, side] = streams(&device);
    for _ in 0..200 {
        left.begin_capture().unwrap();
        side.wait(&left.record().unwrap()).unwrap();
        left.wait(&side.record().unwrap()).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| (0..20).for_each(|_| drop(side.record().unwrap())));
            drop(left.end_capture());
        });
    }
}

/// One thread synchronises while another one repeats a call until it succeeds. In the trace, the refused calls come
/// before the synchronisation that they missed, and the successful one after it.
#[test]
fn a_try_that_is_refused_stands_before_the_synchronisation_that_it_missed() {
    const ROUNDS: usize = 500;
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("told_twice-threads.trace");
    let trace = Trace::create(&path).unwrap();
    let device = Device::host(HostConfig::default().trace(trace.clone())).unwrap();
    let (pool, [s, t]) = (device.default_pool(), streams(&device));
    let mut pinned = device.pinned::<u8>(64).unwrap();
    let mut refused = 0;
    for round in 0..ROUNDS {
        let x = s.alloc::<u8>(&pool, 64).unwrap();
        s.memset(x.write(), 1).unwrap();
        s.copy_to_pinned(x.read(), pinned.write()).unwrap();
        let mut held = Some(x);
        let mut free = |free: &dyn Fn(Buffer<u8>) -> Option<Buffer<u8>>| {
            tries(&s, || {
                held = held.take().and_then(free);
                held.is_none()
            })
        };
        refused += match round % 3 {
            0 => free(&|x| t.free(x).err().map(|refused| refused.buffer)),
            1 => free(&|x| device.free(x).err().map(|refused| refused.buffer)),
            _ => tries(&s, || pinned.as_slice().is_ok()),
        };
        let Some(x) = held else { continue };
        s.memset(x.write(), 1).unwrap();
        let mut graph = device.graph().unwrap();
        graph.add_memset(&[], x.write(), 3).unwrap();
        let exec = graph.instantiate(Instantiate::default()).unwrap();
        refused += match round % 2 {
            0 => tries(&s, || t.memset(x.write(), 2).is_ok()),
            _ => tries(&s, || exec.launch(&t).is_ok()),
        };
        s.wait(&t.record().unwrap()).unwrap();
        s.free(x).unwrap();
    }
    drop((pinned, s, t, pool, device, trace));
    let settings = Settings { leaks: false, advice: false, ..Settings::RECORDED };
    let findings = traced::findings(&path, settings, |_| true);
    assert!(findings.iter().all(|it| it.kind.is_order()), "{findings:#?}");
    assert_eq!(findings.len(), refused, "as often as live");
}

/// One thread captures while another one begins and ends captures on the same streams. In the trace, its refused calls
/// come before the end of the other capture. After that end the same calls would be right.
#[test]
fn what_is_refused_beside_a_capture_stands_before_its_end() {
    const ROUNDS: usize = 300;
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("told_twice-captures.trace");
    let trace = Trace::create(&path).unwrap();
    let device = Device::host(HostConfig::default().trace(trace.clone())).unwrap();
    let [s, side] = streams(&device);
    let refused = AtomicUsize::new(0);
    let count = |done: Result<(), Error>| {
        let is_counted = done.is_err_and(|error| error.violation().is_some());
        refused.fetch_add(usize::from(is_counted), Ordering::Relaxed);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..ROUNDS {
                count(s.begin_capture().map(|()| drop(s.end_capture().unwrap())));
                count(side.end_capture().map(drop));
            }
        });
        for _ in 0..ROUNDS {
            let captured = s.capture(|s| {
                side.wait(&s.record()?)?;
                s.wait(&side.record()?)
            });
            count(captured.map(drop));
        }
    });
    drop((s, side, device, trace));
    let findings = traced::findings(&path, Settings { leaks: false, ..Settings::RECORDED }, |_| true);
    let found = findings.iter().filter(|finding| finding.kind.is_about_captures()).count();
    assert_eq!(found, refused.into_inner(), "{:#?}", findings.first());
}
