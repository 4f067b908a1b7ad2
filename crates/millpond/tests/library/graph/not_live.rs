//! Memory of alloc nodes that is not live: never launched, or freed, with and without the instance that allocated it.

use millpond::Error;
use millpond::check::{Act, Kind};

use super::made::{each, instance, is_kind, with_alloc};

#[test]
fn a_launch_of_a_free_node_whose_memory_is_not_live_is_refused() {
    each(|on| {
        let device = &on.device;
        let stream = device.stream()?;
        let (graph, x, _) = with_alloc(device);
        let mut freeing = device.graph()?;
        freeing.add_free(&[], x)?;
        let (make, free) = (instance(&graph)?, instance(&freeing)?);
        let is_not_live = |error: &Error| is_kind(error, Kind::FreeBeforeAlloc);
        assert!(is_not_live(&free.launch(&stream).unwrap_err()));
        for _ in 0..2 {
            let _ = make.launch(&stream)?;
            let _ = free.launch(&stream)?;
            // Both sides: the earlier free, and the node that would free it again.
            let refused = free.launch(&stream).unwrap_err();
            let violation = refused.violation().expect("the memory was freed");
            assert_eq!(
                (violation.kind, violation.earlier.as_ref().unwrap().act),
                (Kind::DoubleFree, Some(Act::Free)),
                "{refused}"
            );
            assert!(violation.later.as_ref().unwrap().title().contains("mem free"), "{refused}");
        }
        // The instance is dropped, and its memory with it. The place of the free is still known, until the next launch.
        let was_freed = |error: &Error| {
            let freed = error.violation().and_then(|it| it.earlier.as_ref());
            is_kind(error, Kind::DoubleFree) && freed.is_some_and(|free| free.act == Some(Act::Free))
        };
        drop(make);
        let refused = free.launch(&stream).unwrap_err();
        assert!(was_freed(&refused) && refused.to_string().contains("but it is freed already"), "{refused}");
        let make = instance(&graph)?;
        let refused = free.launch(&stream).unwrap_err();
        assert!(was_freed(&refused), "{refused}");
        let _ = make.launch(&stream)?;
        let _ = free.launch(&stream)?;
        Ok(())
    });
}

/// Memory that is freed on a stream after its instance was dropped.
#[test]
fn memory_that_outlives_its_instance_is_known_to_be_freed() {
    each(|on| {
        let device = &on.device;
        let stream = device.stream()?;
        let (graph, x, _) = with_alloc(device);
        let make = instance(&graph)?;
        let never = stream.memset(x.write(), 1).unwrap_err();
        assert!(is_kind(&never, Kind::UseBeforeAlloc), "{never}");
        let launched = make.launch(&stream)?;
        drop(make);
        stream.memset(x.write(), 1)?;
        stream.free(launched.take(x)?)?;
        drop(launched);
        let gone = stream.memset(x.write(), 1).unwrap_err();
        assert!(is_kind(&gone, Kind::UseAfterFree), "{gone}");
        drop(graph);
        let gone = stream.memset(x.write(), 1).unwrap_err();
        assert!(is_kind(&gone, Kind::UseAfterFree), "its graph is gone: {gone}");
        Ok(())
    });
}
