//! The output of a launch, used by its buffer or a view in another graph that frees it by its alloc node: one memory.

use millpond::check::Kind;
use millpond::graph::{GraphExec, Instantiate, MemAllocNode};
use millpond::{Buffer, Device, Result, Stream};

use super::made::{each, is_kind, is_of_graph};

/// Makes an instance that leaves one allocation live, which it has written.
fn leaving(device: &Device, stream: &Stream) -> Result<(GraphExec, MemAllocNode<u32>)> {
    let pool = device.default_pool();
    let (graph, node) = stream.capture(|s| {
        let x = s.alloc::<u32>(&pool, 64)?;
        s.memset(x.write(), 1)?;
        Ok(x.into_alloc_node())
    })?;
    Ok((graph.instantiate(Instantiate::default())?, node))
}

fn free(stream: &Stream, buffer: Buffer<u32>) -> Result<()> {
    stream.free(buffer).map_err(Into::into)
}

#[test]
fn a_buffer_that_is_used_in_a_capture_is_freed_there() {
    each(|on| {
        for (drops_exec, by_view, by_node) in [
            (false, false, false),
            (true, false, false),
            (false, true, false),
            (true, true, true),
            (false, false, true),
        ] {
            let stream = on.device.stream()?;
            let (exec, node) = leaving(&on.device, &stream)?;
            let mut exec = Some(exec);
            let buffer = exec.as_ref().unwrap().launch(&stream)?.take(node)?;
            if drops_exec {
                exec = None;
            }
            let (graph, left) = stream.capture(|s| {
                if by_view {
                    s.memset(buffer.view().write(), 2)?
                } else {
                    s.memset(buffer.write(), 2)?
                };
                if by_node {
                    s.free_alloc_node(node)?;
                    return Ok(Some(buffer));
                }
                free(s, buffer)?;
                Ok(None)
            })?;
            let freeing = graph.instantiate(Instantiate::default())?;
            let _ = freeing.launch(&stream)?;
            drop(left);
            let again = freeing.launch(&stream).unwrap_err();
            assert_eq!(again.violation().map(|it| it.kind), Some(Kind::UseAfterFree), "{again}");
            if let Some(exec) = &exec {
                let anew = exec.launch(&stream)?.take(node)?;
                let refused = freeing.launch(&stream).unwrap_err();
                let violation = refused.violation().expect("it is of an earlier life");
                assert_eq!(violation.kind, Kind::UseAfterFree, "{refused}");
                let text = refused.report().to_string();
                assert!(["  freed ", "  allocated ", " node 0"].iter().all(|side| text.contains(side)), "{text}");
                free(&stream, anew)?;
            }
        }
        Ok(())
    });
}

#[test]
fn a_node_that_uses_a_buffer_comes_before_the_free_by_its_alloc_node() {
    each(|on| {
        let stream = on.device.stream()?;
        let (exec, node) = leaving(&on.device, &stream)?;
        let buffer = exec.launch(&stream)?.take(node)?;
        for is_ordered in [false, true] {
            let mut graph = on.device.graph()?;
            let used = graph.add_memset(&[], buffer.write(), 2)?;
            graph.add_free(if is_ordered { std::slice::from_ref(&used) } else { &[] }, node)?;
            let made = graph.instantiate(Instantiate::default());
            match is_ordered {
                true => drop(made?.launch(&stream)?),
                false => assert!(is_of_graph(&made.unwrap_err())),
            }
        }
        let side = on.device.stream()?;
        let buffer = exec.launch(&stream)?.take(node)?;
        let captured = stream.capture(|s| {
            side.wait(&s.record()?)?;
            side.memset(buffer.write(), 2)?;
            let refused = s.free_alloc_node(node).unwrap_err();
            assert!(is_of_graph(&refused), "{refused}");
            s.wait(&side.record()?)
        });
        captured?;
        free(&stream, buffer)
    });
}

#[test]
fn a_buffer_of_an_earlier_launch_is_not_what_the_same_graph_makes_anew() {
    each(|on| {
        let stream = on.device.stream()?;
        let mut inner = on.device.graph()?;
        let memory = inner.add_alloc::<u32>(&[], 16)?;
        let exec = inner.instantiate(Instantiate::default())?;
        let buffer = exec.launch(&stream)?.take(memory)?;
        let alloc = inner.node_of(memory).unwrap();
        let is_refused = |error: millpond::Error| {
            assert!(is_kind(&error, Kind::GraphRefused), "{error}");
        };
        is_refused(inner.add_memset(&[alloc], buffer.write(), 1).unwrap_err());
        drop(exec);
        let mut outer = on.device.graph()?;
        let child = outer.add_child(&[], &inner)?;
        outer.add_memset(&[child], buffer.write(), 1)?;
        is_refused(outer.instantiate(Instantiate::default()).unwrap_err());
        free(&stream, buffer)
    });
}
