//! External event nodes: order between nodes of graphs and outside streams. This is way 3 for memory that outlives its
//! graph.

use std::sync::mpsc;
use std::time::Duration;

use millpond::check::Kind;
use millpond::graph::{ExternalEvent, GraphExec, Instantiate, MemAllocNode};
use millpond::{Device, Result};

use super::made::{each, each_seed, expect};
use crate::common::visit;

const LEN: usize = 1 << 16;

fn kind(error: &millpond::Error) -> Kind {
    error.violation().unwrap_or_else(|| panic!("{error}")).kind
}

/// alloc -> write `value` -> record -> `rest`.
fn producer(
    device: &Device,
    event: &ExternalEvent,
    value: u8,
    rest: impl FnMut() + Send + 'static,
) -> Result<(GraphExec, MemAllocNode<u32>)> {
    let mut graph = device.graph()?;
    let out = graph.add_alloc::<u32>(&[], LEN)?;
    let write = graph.add_memset(&[graph.node_of(out).unwrap()], out.write(), value)?;
    let record = graph.add_event_record(&[write], event)?;
    graph.add_host_function(&[record], rest)?;
    Ok((graph.instantiate(Instantiate::default())?, out))
}

#[test]
fn way_3_event_nodes_inside_both_graphs() {
    each(|on| {
        let device = &on.device;
        let (a, b, c) = (device.stream()?, device.stream()?, device.stream()?);
        let (made, used) = (device.external_event(), device.external_event());
        let (go, wait) = mpsc::channel::<()>();
        // The rest of the graph runs only after the outside stream has used the memory: without order by node, it would
        // hang.
        let rest = move || wait.recv_timeout(Duration::from_secs(20)).expect("the outside runs meanwhile");
        let (produce, out) = producer(device, &made, 7, rest)?;
        let mut graph = device.graph()?;
        let waits = graph.add_event_wait(&[], &used)?;
        graph.add_free(&[waits], out)?;
        let free = graph.instantiate(Instantiate::default())?;
        for _ in 0..3 {
            let _ = produce.launch(&a)?;
            assert_eq!(kind(&visit(&b, out.read()).unwrap_err()), Kind::UseBeforeAlloc);
            b.wait_external(&made)?;
            expect(&b, out.read(), 7);
            b.memset(out.write(), 21)?;
            expect(&b, out.read(), 21);
            go.send(()).unwrap();
            visit(&b, out.read())?;
            // The event is from the round before, or was never recorded: it does not come after the use.
            assert!(matches!(kind(&free.launch(&c).unwrap_err()), Kind::FreeBeforeUse | Kind::FreeBeforeAlloc));
            b.record_external(&used)?;
            let _ = free.launch(&c)?;
            assert_eq!(kind(&visit(&b, out.read()).unwrap_err()), Kind::UseAfterFree);
        }
        device.synchronize()
    });
}

/// An outside stream that waits for a record comes after the nodes before it, and not after the others.
#[test]
fn a_record_covers_what_comes_before_its_node() {
    each(|on| {
        let device = &on.device;
        let (a, b) = (device.stream()?, device.stream()?);
        let event = device.external_event();
        let (x, y) = (a.alloc::<u32>(&device.default_pool(), 4)?, a.alloc::<u32>(&device.default_pool(), 4)?);
        b.wait(&a.record()?)?;
        let mut graph = device.graph()?;
        let left = graph.add_memset(&[], x.write(), 1)?;
        graph.add_event_record(&[left], &event)?;
        graph.add_memset(&[], y.write(), 2)?;
        let exec = graph.instantiate(Instantiate::default())?;
        let _ = exec.launch(&a)?;
        assert_eq!(kind(&visit(&b, x.read()).unwrap_err()), Kind::Race);
        b.wait_external(&event)?;
        expect(&b, x.read(), 1);
        let refused = visit(&b, y.read()).unwrap_err();
        assert_eq!(kind(&refused), Kind::Race);
        // The launching stream comes after all of it.
        visit(&a, y.read())?;
        b.wait(&a.record()?)?;
        expect(&b, y.read(), 2);
        Ok(())
    });
}

/// Nodes after a wait node may use outside memory. The rest of the graph may not, and does not wait.
#[test]
fn a_wait_counts_for_what_comes_after_its_node() {
    each(|on| {
        let device = &on.device;
        let (a, b) = (device.stream()?, device.stream()?);
        let (event, early, pool) = (device.external_event(), device.external_event(), device.default_pool());
        let x = b.alloc::<u32>(&pool, 4)?;
        let (y, z) = (a.alloc::<u32>(&pool, 4)?, a.alloc::<u32>(&pool, 4)?);
        let build = |is_after: bool| -> Result<GraphExec> {
            let mut graph = device.graph()?;
            let fill = graph.add_memset(&[], z.write(), 5)?;
            graph.add_event_record(&[fill], &early)?;
            let wait = graph.add_event_wait(&[], &event)?;
            let after = if is_after { vec![wait] } else { vec![] };
            graph.add_copy(&after, x.read(), y.write())?;
            graph.instantiate(Instantiate::default())
        };
        let (right, wrong) = (build(true)?, build(false)?);
        // Never recorded: no effect (as in CUDA), so nothing comes before the node.
        assert_eq!(kind(&right.launch(&a).unwrap_err()), Kind::UseBeforeAlloc);
        let c = device.stream()?;
        let busy = on.hold(&b, ());
        b.memset(x.write(), 1)?;
        b.record_external(&event)?;
        assert_eq!(kind(&wrong.launch(&a).unwrap_err()), Kind::UseBeforeAlloc);
        let _ = right.launch(&a)?;
        // The other branch has completed while that stream is still busy.
        c.wait_external(&early)?;
        expect(&c, z.read(), 5);
        drop(busy);
        // The stream comes after the launch, and so after everything that the launch waited for.
        expect(&a, y.read(), 1);
        a.free(x)?;
        Ok(())
    });
}

#[test]
fn never_recorded_events_have_no_effect_and_records_can_be_asked() {
    each(|on| {
        let device = &on.device;
        let (a, b) = (device.stream()?, device.stream()?);
        let event = device.external_event();
        b.wait_external(&event)?;
        assert!(event.last().is_none());
        let (exec, out) = producer(device, &event, 5, || ())?;
        let _ = exec.launch(&a)?;
        let last = event.last().expect("recorded by the launch");
        last.synchronize()?;
        assert!(last.is_over()?);
        // The host has waited for the record: it may free at once what comes before it.
        device.free_address(out.address())?;
        assert!(exec.launch(&b).is_ok(), "freed, so launched again");
        let buffer_freed = event.last().unwrap();
        a.wait(&buffer_freed)?;
        a.free_address(out.address())?;
        let other = on.another().device;
        other.stream()?.wait_external(&event)?;
        assert!(other.stream()?.record_external(&event).unwrap_err().invalid().is_some());
        assert!(other.stream()?.capture(|s| s.wait_external(&event)).unwrap_err().invalid().is_some());
        assert!(other.graph()?.add_event_record(&[], &event).unwrap_err().invalid().is_some());
        Ok(())
    });
}

#[test]
fn captures_record_and_wait_at_run_time() {
    each(|on| {
        let device = &on.device;
        let (a, b) = (device.stream()?, device.stream()?);
        let (to, from) = (device.external_event(), device.external_event());
        let x = a.alloc::<u32>(&device.default_pool(), 16)?;
        let y = a.alloc::<u32>(&device.default_pool(), 16)?;
        a.memset(y.write(), 0)?;
        let (graph, ()) = a.capture(|s| {
            s.wait_external(&from)?;
            s.copy(y.read(), x.write())?;
            s.record_external(&to)
        })?;
        assert_eq!(graph.len(), 3);
        assert!(to.last().is_none(), "nothing is recorded by the capture itself");
        let exec = graph.instantiate(Instantiate::default())?;
        for round in 0..4 {
            let _ = exec.launch(&a)?;
            b.wait_external(&to)?;
            expect(&b, x.read(), round);
            b.memset(y.write(), round + 1)?;
            b.record_external(&from)?;
        }
        // A launch into a capture keeps its event nodes.
        let (outer, ()) = a.capture(|s| exec.launch(s).map(|_| ()))?;
        let _ = outer.instantiate(Instantiate::default())?.launch(&a)?;
        b.wait_external(&to)?;
        expect(&b, x.read(), 4);
        Ok(())
    });
}

/// A record before a wait for the same event in one graph is like an edge between them.
#[test]
fn a_record_in_the_graph_replaces_what_the_outside_recorded() {
    each(|on| {
        let device = &on.device;
        let (a, b) = (device.stream()?, device.stream()?);
        let event = device.external_event();
        let x = b.alloc::<u32>(&device.default_pool(), 4)?;
        b.record_external(&event)?;
        let mut graph = device.graph()?;
        let record = graph.add_event_record(&[], &event)?;
        let wait = graph.add_event_wait(&[record], &event)?;
        graph.add_memset(&[wait], x.write(), 1)?;
        let exec = graph.instantiate(Instantiate::default())?;
        assert_eq!(kind(&exec.launch(&a).unwrap_err()), Kind::UseBeforeAlloc);
        a.wait(&b.record()?)?;
        let _ = exec.launch(&a)?;
        Ok(())
    });
}

/// The same verdicts on every schedule, with instances that are made and dropped.
#[test]
fn event_nodes_with_execs_that_come_and_go() {
    each_seed(1..=30, come_and_go);
    each(|on| come_and_go(&on.device));
}

fn come_and_go(device: &Device) -> Result<()> {
    let (a, b) = (device.stream()?, device.stream()?);
    let (event, copied) = (device.external_event(), b.alloc::<u32>(&device.default_pool(), LEN)?);
    for round in 0..5 {
        let (exec, out) = producer(device, &event, round, || ())?;
        for _ in 0..2 {
            let buffer = exec.launch(&a)?.take(out)?;
            b.wait_external(&event)?;
            b.copy(buffer.read(), copied.write())?;
            assert_eq!(kind(&a.free(buffer).unwrap_err().error), Kind::FreeBeforeUse);
            a.wait(&b.record()?)?;
        }
        expect(&b, copied.read(), round);
        if round == 3 {
            device.synchronize()?;
            device.trim_graph_memory()?;
        }
    }
    device.synchronize()
}
