//! Numbers of elements come from anywhere. Their size in bytes is computed in one place, and never wraps.

use millpond::Error;
use millpond::error::Invalid;
use millpond::graph::Instantiate;

use crate::common::{on_every_device, visit};

/// Numbers of elements of 8 bytes that take 512 bytes if the product wraps, or more than any slice may have.
const HUGE: [usize; 5] = [(1 << 61) + 64, (1 << 62) + 64, (1 << 63) + 64, usize::MAX, (isize::MAX as usize) / 8 + 1];

#[test]
fn an_alloc_node_is_named_with_its_own_number_of_elements_only() {
    on_every_device(|on| {
        let mut graph = on.device.graph().unwrap();
        let memory = graph.add_alloc::<u64>(&[], 64).unwrap();
        let node = graph.node_of(memory).unwrap();
        for len in HUGE.into_iter().chain([0, 63, 65]) {
            let refused = graph.alloc_node::<u64>(node, len).unwrap_err();
            assert!(matches!(refused.invalid(), Some(Invalid::NoOutput)), "{len}: {refused}");
        }
        assert_eq!(graph.alloc_node::<u64>(node, 64).unwrap().len(), 64);
        assert_eq!(graph.alloc_node::<[u64; 2]>(node, 32).unwrap().len(), 32);
    });
}

#[test]
fn what_cannot_be_counted_in_bytes_is_out_of_memory() {
    on_every_device(|on| {
        let (stream, pool) = (on.stream(), on.device.default_pool());
        let (mut graph, mut symbolic) = (on.device.graph().unwrap(), on.device.symbolic_graph().unwrap());
        for len in HUGE {
            assert!(matches!(stream.alloc::<u64>(&pool, len), Err(Error::OutOfMemory(_))), "{len}");
            assert!(graph.add_alloc::<u64>(&[], len).is_err(), "{len}");
            assert!(symbolic.add_alloc::<u64>(&[], len).is_err(), "{len}");
            stream.begin_capture().unwrap();
            assert!(stream.alloc::<u64>(&pool, len).is_err(), "{len}");
            assert_eq!(stream.end_capture().unwrap().len(), 0);
        }
        assert_eq!((graph.len(), symbolic.len()), (0, 0));
    });
}

/// The number of elements of zero size is not limited.
#[test]
fn elements_without_bytes_are_never_too_many() {
    on_every_device(|on| {
        let (stream, pool) = (on.stream(), on.device.default_pool());
        let nothing = stream.alloc::<()>(&pool, usize::MAX).unwrap();
        assert_eq!((nothing.len(), nothing.bytes(), nothing.address()), (usize::MAX, 0, 0));
        visit(&stream, nothing.write()).unwrap();
        assert_eq!(nothing.view().slice(7..).unwrap().len(), usize::MAX - 7);
        assert_eq!(stream.copy_to_host(nothing.view().slice(..3).unwrap().read()).unwrap().len(), 3);
    });
}

/// A name that no graph allocated names no memory: it gives no slices.
#[test]
fn a_buffer_that_no_capture_allocated_leaves_a_name_of_nothing() {
    on_every_device(|on| {
        let (stream, pool) = (on.stream(), on.device.default_pool());
        let name = stream.alloc::<u64>(&pool, 64).unwrap().into_alloc_node();
        assert_eq!(visit(&stream, name.write()), Err(Error::from(Invalid::Stale)));
        assert_eq!(visit(&stream, [name.read(), name.read()]), Err(Error::from(Invalid::Stale)));
        let mut graph = on.device.graph().unwrap();
        assert_eq!(graph.add_memset(&[], name.write(), 1), Err(Error::from(Invalid::Stale)));
        stream.begin_capture().unwrap();
        assert_eq!(stream.memset(name.write(), 1), Err(Error::from(Invalid::Stale)));
        assert_eq!(stream.end_capture().unwrap().len(), 0);
        let exec = graph.instantiate(Instantiate::default()).unwrap();
        assert!(exec.launch(&stream).unwrap().take(name).is_err());
    });
}
