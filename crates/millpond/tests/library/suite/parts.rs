//! Parts of an allocation, each used separately: only bytes that two uses share need an order.

use millpond::check::Kind;
use millpond::error::Invalid;
use millpond::graph::Instantiate;
use millpond::raw::AccessList;
use millpond::{Buffer, Device, Error, HostConfig, Stream, View};

use crate::common::{Subject, kind_of, on_devices_that_run_closures, on_every_device, order, visit};

/// Returns a buffer that both streams come after.
fn shared(on: &Subject, [s, t]: [&Stream; 2]) -> Buffer<u8> {
    let x = s.alloc::<u8>(&on.device.default_pool(), 1000).unwrap();
    order(s, t);
    x
}

fn part(x: &Buffer<u8>, from: usize, to: usize) -> View<u8> {
    x.slice(from..to).unwrap()
}

#[test]
fn two_streams_use_two_halves_and_both_come_before_the_free() {
    on_every_device(|on| {
        let [s, t] = on.streams();
        let x = shared(on, [&s, &t]);
        let (low, high) = x.split_at(500).unwrap();
        visit(&s, low.write()).unwrap();
        visit(&t, high.write()).unwrap();
        visit(&s, low.read()).unwrap();
        let refused = s.free(x).unwrap_err();
        let violation = refused.error.violation().unwrap();
        assert_eq!((violation.kind, violation.earlier.as_ref().unwrap().stream), (Kind::FreeBeforeUse, Some(t.id())));
        order(&t, &s);
        s.free(refused.buffer).unwrap();
        s.synchronize().unwrap();
    });
}

#[test]
fn bytes_that_two_uses_share_need_an_order() {
    on_every_device(|on| {
        let [s, t] = on.streams();
        let x = shared(on, [&s, &t]);
        visit(&s, part(&x, 0, 500).write()).unwrap();
        let race = |it: Result<(), Error>| assert_eq!(kind_of(&it.unwrap_err()), Kind::Race);
        race(visit(&t, part(&x, 499, 500).read()));
        race(visit(&t, part(&x, 499, 1000).write()));
        race(visit(&t, x.read()));
        race(visit(&t, x.view().write()));
        visit(&t, part(&x, 500, 501).read()).unwrap();
        // Only a read by another stream forbids a write here.
        race(visit(&s, part(&x, 500, 600).write()));
        visit(&s, part(&x, 501, 600).write()).unwrap();
        order(&s, &t);
        visit(&t, x.write()).unwrap();
        race(visit(&s, part(&x, 999, 1000).read()));
        order(&t, &s);
        visit(&s, part(&x, 999, 1000).read()).unwrap();
        s.free(x).unwrap();
        s.synchronize().unwrap();
    });
}

#[test]
fn a_closure_is_given_bytes_that_it_writes_once() {
    on_devices_that_run_closures(|on| {
        let [s, t] = on.streams();
        let x = shared(on, [&s, &t]);
        visit(&s, (part(&x, 0, 10).write(), part(&x, 10, 20).write(), part(&x, 20, 1000).read())).unwrap();
        visit(&s, (part(&x, 0, 600).read(), part(&x, 10, 20).read(), part(&x, 600, 601).write())).unwrap();
        let aliased = |it: Result<(), Error>| {
            let error = it.unwrap_err();
            assert!(matches!(error.invalid(), Some(Invalid::Aliased { .. })), "{error}");
        };
        aliased(visit(&s, (part(&x, 0, 11).write(), part(&x, 10, 20).write())));
        aliased(visit(&s, (part(&x, 10, 20).read(), part(&x, 12, 13).read(), part(&x, 0, 1000).write())));
        aliased(visit(&s, (x.write(), part(&x, 999, 1000).read())));
        // The long read ends after the short one.
        aliased(visit(&s, (part(&x, 0, 100).read(), part(&x, 10, 20).read(), part(&x, 50, 60).write())));
        s.free(x).unwrap();
        s.synchronize().unwrap();
    });
}

/// Allowed for uses that are only declared, or given as addresses and not as slices, as in CUDA's kernels.
#[test]
fn the_same_bytes_are_read_and_written_in_place() {
    on_every_device(|on| {
        let [s, t] = on.streams();
        let x = shared(on, [&s, &t]);
        let list = || {
            let mut list = AccessList::default();
            list.write(x.raw().unwrap(), 0, 600).unwrap();
            list.read(x.raw().unwrap(), 0, 1000).unwrap();
            list
        };
        type Run<'a> = &'a dyn Fn(&Stream) -> Result<(), Error>;
        let run: [Run<'_>; 4] = [
            &|on| on.declare((x.read(), x.write())),
            &|on| on.declare((part(&x, 100, 200).write(), part(&x, 0, 150).read())),
            &|on| visit(on, list()),
            // SAFETY: nothing is submitted.
            &|on| unsafe { on.enqueue((x.read(), x.write()), |_, _| Ok(())) },
        ];
        for run in run {
            run(&s).unwrap();
            let refused = t.memset(part(&x, 120, 130).write(), 1).unwrap_err();
            assert_eq!(kind_of(&refused), Kind::Race);
            order(&s, &t);
            run(&t).unwrap();
            let refused = s.declare(part(&x, 120, 130).read()).unwrap_err();
            assert_eq!(kind_of(&refused), Kind::Race);
            order(&t, &s);
        }
        // SAFETY: nothing is submitted.
        let slices = unsafe { s.enqueue_slices((x.read(), x.write()), |_, _| Ok(())) }.unwrap_err();
        assert!(matches!(slices.invalid(), Some(Invalid::Aliased { .. })), "{slices}");
        s.free(x).unwrap();
        on.device.synchronize().unwrap();
    });
}

#[test]
fn the_source_and_the_target_of_a_copy_do_not_overlap() {
    on_every_device(|on| {
        let [s, t] = on.streams();
        let x = shared(on, [&s, &t]);
        let overlap = |it: Result<(), Error>| {
            let error = it.unwrap_err();
            assert!(error.violation().is_some_and(|it| it.kind == Kind::Aliased), "{error}");
        };
        overlap(s.copy(part(&x, 0, 500).read(), part(&x, 499, 999).write()));
        overlap(s.copy(x.read(), x.write()));
        let mut graph = on.device.graph().unwrap();
        overlap(graph.add_copy(&[], part(&x, 1, 501).read(), part(&x, 0, 500).write()).map(drop));
        graph.add_copy(&[], part(&x, 0, 500).read(), part(&x, 500, 1000).write()).unwrap();
        drop(graph.instantiate(Instantiate::default()).unwrap().launch(&s).unwrap());
        s.copy(part(&x, 500, 1000).read(), part(&x, 0, 500).write()).unwrap();
        s.free(x).unwrap();
        on.device.synchronize().unwrap();
    });
}

#[test]
fn a_use_of_no_bytes_is_no_access() {
    on_every_device(|on| {
        let [s, t] = on.streams();
        let x = s.alloc::<u8>(&on.device.default_pool(), 1000).unwrap();
        let none = part(&x, 1000, 1000);
        visit(&t, none.write()).unwrap();
        visit(&t, (none.write(), none.write())).unwrap();
        let mut graph = on.device.graph().unwrap();
        graph.add_memset(&[], none.write(), 1).unwrap();
        drop(graph.instantiate(Instantiate::default()).unwrap().launch(&t).unwrap());
        s.free(x).unwrap();
        visit(&t, none.read()).unwrap();
        on.device.synchronize().unwrap();
    });
}

#[test]
fn nodes_and_launches_use_parts() {
    on_every_device(|on| {
        let [s, t] = on.streams();
        let x = shared(on, [&s, &t]);
        let mut graph = on.device.graph().unwrap();
        graph.add_memset(&[], part(&x, 0, 250).write(), 1).unwrap();
        let quarter = graph.add_memset(&[], part(&x, 250, 500).write(), 2).unwrap();
        let exec = graph.instantiate(Instantiate::default()).unwrap();
        // The other half belongs to the other stream.
        visit(&t, part(&x, 500, 1000).write()).unwrap();
        drop(exec.launch(&s).unwrap());
        visit(&t, part(&x, 500, 1000).write()).unwrap();
        let race = visit(&t, part(&x, 499, 501).read()).unwrap_err();
        assert_eq!(kind_of(&race), Kind::Race);
        visit(&s, part(&x, 0, 500).read()).unwrap();
        // A launch is refused because of the node that uses the other stream's bytes.
        order(&s, &t);
        visit(&t, part(&x, 300, 301).write()).unwrap();
        let refused = exec.launch(&s).unwrap_err();
        let violation = refused.violation().unwrap();
        assert_eq!((violation.kind, violation.later.as_ref().unwrap().node.as_deref()), (Kind::Race, Some("1")));
        order(&t, &s);
        // Of two nodes that share a byte, one must come after the other.
        graph.add_memset(&[quarter], part(&x, 249, 251).write(), 3).unwrap();
        assert!(graph.instantiate(Instantiate::default()).is_err());
        s.free(x).unwrap();
        on.device.synchronize().unwrap();
    });
}

#[test]
fn captured_streams_use_two_halves() {
    on_every_device(|on| {
        let [s, t] = on.streams();
        let pool = on.device.default_pool();
        let captured = s.capture(|s| {
            let x = s.alloc::<u8>(&pool, 1000)?;
            order(s, &t);
            s.memset(part(&x, 0, 500).write(), 1)?;
            t.memset(part(&x, 500, 1000).write(), 2)?;
            let race = t.memset(part(&x, 499, 501).write(), 3).unwrap_err();
            assert!(race.to_string().contains("no path between them"), "{race}");
            order(&t, s);
            s.memset(part(&x, 499, 501).write(), 3)?;
            s.free(x).map_err(Error::from)
        });
        let (graph, ()) = captured.unwrap();
        drop(graph.instantiate(Instantiate::default()).unwrap().launch(&s).unwrap());
        on.device.synchronize().unwrap();
    });
}

#[test]
fn copies_and_fills_use_the_part_that_they_are_given() {
    on_devices_that_run_closures(|on| {
        let [s, t] = on.streams();
        let x = shared(on, [&s, &t]);
        s.memset(part(&x, 0, 500).write(), 1).unwrap();
        t.copy_from_host(part(&x, 500, 1000).write(), &[2; 500]).unwrap();
        s.copy(part(&x, 0, 100).read(), part(&x, 100, 200).write()).unwrap();
        assert_eq!(t.copy_to_host(part(&x, 900, 1000).read()).unwrap(), [2; 100]);
        assert!(s.copy(part(&x, 0, 101).read(), part(&x, 100, 201).write()).is_err());
        assert!(s.copy(part(&x, 0, 100).read(), part(&x, 600, 700).write()).is_ok(), "the host waited for it");
        on.device.synchronize().unwrap();
        let all = s.copy_to_host(x.read()).unwrap();
        assert_eq!((&all[..500], &all[500..600], &all[600..700]), (&[1; 500][..], &[2; 100][..], &[1; 100][..]));
        s.free(x).unwrap();
    });
}

/// Pages of a cache: each stream has its own, for many rounds. Then the streams exchange them.
#[test]
fn pages_of_a_cache_are_used_by_many_streams() {
    on_every_device(|on| {
        let streams: Vec<Stream> = (0..4).map(|_| on.device.non_blocking_stream().unwrap()).collect();
        let x = streams[0].alloc::<u8>(&on.device.default_pool(), 64 * 16).unwrap();
        streams[1..].iter().for_each(|stream| order(&streams[0], stream));
        let page = |at: usize| part(&x, at * 16, at * 16 + 16);
        for round in 0..20 {
            for at in 0..64 {
                visit(&streams[at % 4], page(at).write()).unwrap();
                visit(&streams[at % 4], page((at + 4 * round) % 64).read()).unwrap();
            }
        }
        let other = visit(&streams[1], page(0).read());
        assert_eq!(kind_of(&other.unwrap_err()), Kind::Race);
        order(&streams[0], &streams[1]);
        visit(&streams[1], page(0).write()).unwrap();
        streams[1..].iter().for_each(|stream| order(stream, &streams[0]));
        streams[0].free(x).unwrap();
        on.device.synchronize().unwrap();
    });
}

/// Uses that the host knows to have completed are forgotten, and no others.
#[test]
fn pages_that_are_read_together_are_kept_apart_until_the_host_knows() {
    on_every_device(|on| {
        let [s, t] = on.streams();
        let x = shared(on, [&s, &t]);
        for round in 0..4 {
            for at in 0..100 {
                visit(if at % 2 == 0 { &s } else { &t }, part(&x, at * 10, at * 10 + 10).write()).unwrap();
            }
            if round % 2 == 0 {
                on.device.synchronize().unwrap();
            } else {
                assert_eq!(kind_of(&visit(&s, x.read()).unwrap_err()), Kind::Race);
                order(&t, &s);
            }
            (0..10).for_each(|_| visit(&s, x.read()).unwrap());
            visit(&t, part(&x, 10, 20).read()).unwrap();
            let unordered = visit(&t, part(&x, 10, 20).write()).unwrap_err();
            assert_eq!(kind_of(&unordered), Kind::Race, "the other stream reads all");
            assert_eq!(kind_of(&visit(&t, x.write()).unwrap_err()), Kind::Race);
            order(&s, &t);
            order(&t, &s);
        }
        s.free(x).unwrap();
        on.device.synchronize().unwrap();
    });
}

/// Nodes of graphs are judged as uses of all bytes. One node may have several parts.
#[test]
fn a_node_of_a_graph_has_several_parts() {
    let device = Device::host(HostConfig::default()).unwrap();
    let (s, t) = (device.stream().unwrap(), device.stream().unwrap());
    let x = s.alloc::<u8>(&device.default_pool(), 100).unwrap();
    let (low, high) = x.split_at(50).unwrap();
    let fill = |(low, high): (&mut [u8], &mut [u8])| {
        low.fill(3);
        high.fill(4);
    };
    let (graph, ()) = s.capture(|s| s.launch((low.write(), high.write()), fill)).unwrap();
    let exec = graph.instantiate(Instantiate::default()).unwrap();
    drop(exec.launch(&s).unwrap());
    let mut graph = device.graph().unwrap();
    graph.add_kernel(&[], (low.write(), high.write()), fill).unwrap();
    let aliased = graph.add_kernel(&[], (low.write(), x.read()), |_| ()).unwrap_err();
    assert!(matches!(aliased.invalid(), Some(Invalid::Aliased { .. })), "{aliased}");
    let exec = graph.instantiate(Instantiate::default()).unwrap();
    assert_eq!(kind_of(&exec.launch(&t).unwrap_err()), Kind::UseBeforeAlloc);
    drop(exec.launch(&s).unwrap());
    assert_eq!(s.copy_to_host(x.read()).unwrap()[49..51], [3, 4]);
    s.free(x).unwrap();
}
