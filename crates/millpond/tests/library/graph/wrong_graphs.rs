//! The message of a wrong graph names both sides with their names and places, and the missing order between them. The
//! other faults are in `crates/litmus/tests/live/refusals`, each with its message.

use millpond::check::Kind;
use millpond::graph::{CaptureMode, Graph, Instantiate};
use millpond::{Device, Result, Stream};

use super::made::{each, kind};
use crate::common::{Subject, visit};

fn device(on: &Subject) -> (&Device, Stream, Stream) {
    let [a, b] = on.streams();
    (&on.device, a, b)
}

/// Asserts that the message contains each of the parts, in this order.
#[track_caller]
fn assert_says(error: &dyn std::fmt::Debug, parts: &[&str]) {
    let text = format!("{error:?}");
    let mut rest = text.as_str();
    for part in parts {
        let at = rest.find(part).unwrap_or_else(|| panic!("`{part}` is not (or not there) in:\n{text}"));
        rest = &rest[at + part.len()..];
    }
}

/// Makes a graph with one named allocation, its alloc node, and a named fill that writes it, with no edge between them.
fn pair(device: &Device) -> Result<Graph> {
    let mut graph = device.graph()?;
    let x = graph.add_alloc::<u32>(&[], 16)?;
    let alloc = graph.node_of(x).unwrap();
    let fill = graph.add_memset(&[], x.write(), 0)?;
    graph.set_name(alloc, "activations")?;
    graph.set_name(fill, "zero")?;
    Ok(graph)
}

#[test]
fn a_use_without_a_path_from_the_alloc_node() {
    each(|on| {
        let (device, a, b) = device(on);
        let graph = pair(device)?;
        let refused = graph.instantiate(Instantiate::default()).unwrap_err();
        assert_eq!(kind(&refused), Kind::UseBeforeAlloc);
        let parts = [
            "`activations` (graph allocation 0, 64 B) is written by memset `zero` with no path from its alloc node",
            "allocated  mem alloc `activations`",
            "wrong_graphs.rs:",
            "written    memset `zero`",
            "wrong_graphs.rs:",
            "help: add an edge from mem alloc `activations` to memset `zero`",
        ];
        assert_says(&refused, &parts);
        // In a capture, at its line.
        a.begin_capture_in(CaptureMode::Relaxed)?;
        b.wait(&a.record()?)?;
        let x = a.alloc::<u32>(&device.default_pool(), 16)?;
        x.set_name("x");
        let refused = visit(&b, x.read()).unwrap_err();
        assert_eq!(kind(&refused), Kind::UseBeforeAlloc);
        assert_says(&refused, &["`x`", "is read by kernel node 1 (", "before it captures kernel node 1 ("]);
        // In a child graph, by the path to it.
        let mut parent = device.graph()?;
        parent.add_child(&[], &graph)?;
        assert_says(
            &parent.instantiate(Instantiate::default()).unwrap_err(),
            &["add an edge from mem alloc `activations` (node 0.0) to memset `zero` (node 0.1)"],
        );
        Ok(())
    });
}

#[test]
fn foreign_pointers() {
    each(|on| {
        let (device, a, _) = device(on);
        let on_the_host = 0u64;
        a.begin_capture()?;
        for address in [0x7000, (&raw const on_the_host) as u64] {
            let refused = a.free_address(address).unwrap_err();
            assert_says(&refused, &[&format!("{address:#x} is not the start of a live allocation")]);
        }
        a.end_capture()?;
        let plain = a.alloc::<u32>(&device.default_pool(), 16)?;
        let refused = device.graph()?.add_free(&[], plain.into_alloc_node()).unwrap_err();
        assert_says(&refused, &["a free node frees memory of an alloc node; this is none"]);
        Ok(())
    });
}
