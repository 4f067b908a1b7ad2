//! One parent, its children, and memory that passes between them.

use millpond::PoolConfig;
use millpond::config::Slack;

use super::child::Child;
use super::{Side, eventually, fill, import, is_filled};

const LEN: usize = 1_500_000;

#[test]
fn two_children_fill_check_and_free_their_share() {
    let side = Side::new();
    let shares = [side.filled(LEN, 1), side.filled(LEN, 2)];
    let mut children = [Child::new(), Child::new()];
    for (child, (share, seed)) in children.iter_mut().zip(shares.iter().zip([1, 2])) {
        child.must(format!("import x {}", share.export().unwrap()));
        assert_eq!(child.must(format!("check x {seed}")), "right");
        child.must(format!("fill x {}", seed + 10));
    }
    assert_eq!(side.device.sharing().leases, 2);
    for (child, (share, seed)) in children.iter_mut().zip(shares.iter().zip([1, 2])) {
        let event: millpond::share::Ticket = child.must("record").parse().unwrap();
        child.must("free x");
        side.stream.wait(&side.device.import_event(&event).unwrap()).unwrap();
        assert!(is_filled(&side.stream, share, seed + 10).unwrap());
    }
    // The last call of each child is its free. The parent's free comes after.
    for (child, share) in children.iter_mut().zip(shares) {
        let event: millpond::share::Ticket = child.must("record").parse().unwrap();
        side.stream.wait(&side.device.import_event(&event).unwrap()).unwrap();
        side.stream.free(share).unwrap();
    }
    children.into_iter().for_each(Child::end);
    side.assert_empty();
    let sharing = side.device.sharing();
    assert_eq!((sharing.lent, sharing.released, sharing.reclaimed, sharing.lost), (2, 2, 0, 0));
}

#[test]
fn memory_comes_back_when_the_last_holder_lets_go() {
    let side = Side::new();
    let buffer = side.filled(1000, 3);
    let mut children = [Child::new(), Child::new()];
    for child in &mut children {
        child.must(format!("import x {}", buffer.export().unwrap()));
    }
    drop(buffer);
    assert_eq!(side.pool.statistics().used_bytes, 4000, "two still hold it");
    for (child, left) in children.iter_mut().zip([4000, 0]) {
        assert_eq!(child.must("check x 3"), "right");
        child.must("free x");
        child.must("sync");
        eventually("it was given back", || {
            side.device.sharing();
            side.pool.statistics().used_bytes == left
        });
    }
    children.into_iter().for_each(Child::end);
    side.assert_empty();
}

#[test]
fn the_exporter_may_go_first() {
    let side = Side::new();
    let mut child = Child::new();
    child.must("alloc x 5000 7");
    child.must("alloc y 5000 8");
    child.must("sync");
    let ticket = child.must("export x").parse().unwrap();
    let late = child.must("export y").parse().unwrap();
    let buffer = import(&side.device, &ticket).unwrap();
    child.kill();
    assert!(is_filled(&side.stream, &buffer, 7).unwrap(), "it stays valid");
    fill(&side.stream, &buffer, 9).unwrap();
    assert!(is_filled(&side.stream, &buffer, 9).unwrap());
    let refused = import(&side.device, &late).unwrap_err().report().to_string();
    assert!(refused.contains("the exporter of this ticket is gone"), "{refused}");
    side.stream.free(buffer).unwrap();
    eventually("all is unmapped", || {
        let sharing = side.device.sharing();
        (sharing.imports, sharing.returning, sharing.imported_chunks) == (0, 0, 0)
    });
}

#[test]
fn what_an_exporter_drops_stays_valid_for_its_importers() {
    let (there, here) = (Side::new(), Side::new());
    let buffer = there.filled(5000, 7);
    let imported = import(&here.device, &buffer.export().unwrap()).unwrap();
    // Everything of the exporter is dropped: buffer, stream, pool and device.
    drop((buffer, there));
    assert!(is_filled(&here.stream, &imported, 7).unwrap());
    here.stream.free(imported).unwrap();
}

#[test]
fn memory_that_is_lent_stays_where_it_is() {
    let (there, here) = (Side::new(), Side::new());
    let pool = there.device.pool(PoolConfig::default().shareable(true).slack(Slack::Fixed(0.0))).unwrap();
    let lent = there.stream.alloc::<u32>(&pool, LEN).unwrap();
    fill(&there.stream, &lent, 5).unwrap();
    there.stream.synchronize().unwrap();
    let imported = import(&here.device, &lent.export().unwrap()).unwrap();
    drop(lent);
    // The pool would move or give back every chunk that nothing holds.
    for round in 1..20 {
        let other = there.stream.alloc::<u32>(&pool, LEN * round / 10).unwrap();
        fill(&there.stream, &other, 99).unwrap();
        there.stream.free(other).unwrap();
        there.device.synchronize().unwrap();
        pool.trim_to(0).unwrap();
        assert!(pool.statistics().reserved_bytes >= 4 * LEN as u64);
    }
    assert!(is_filled(&here.stream, &imported, 5).unwrap());
    drop(imported);
    here.device.synchronize().unwrap();
    eventually("it is given back", || {
        there.device.sharing();
        pool.trim_to(0).unwrap();
        pool.statistics().reserved_bytes == 0
    });
}

#[test]
fn an_event_of_another_process_is_waited_for() {
    let side = Side::new();
    let buffer = side.filled(5000, 1);
    let mut child = Child::new();
    child.must(format!("import x {}", buffer.export().unwrap()));
    let (go, gate) = std::sync::mpsc::channel::<()>();
    side.stream
        .launch(buffer.write(), move |x| {
            let _ = gate.recv();
            x.fill(5);
        })
        .unwrap();
    let event = side.stream.record().unwrap();
    child.must(format!("wait {}", event.export().unwrap()));
    // It reads what the kernel writes, which runs only now.
    child.tell("check x 1");
    go.send(()).unwrap();
    assert_eq!(child.hear().unwrap(), "wrong", "the kernel's bytes are there");
    child.must("fill x 6");
    let back = side.device.import_event(&child.must("record").parse().unwrap()).unwrap();
    back.synchronize().unwrap();
    assert!(is_filled(&side.stream, &buffer, 6).unwrap(), "the host was told");
    child.must("drop x");
    child.end();
    side.stream.free(buffer).unwrap();
    side.assert_empty();
}

#[test]
fn an_exporter_that_does_not_listen_holds_nobody_up() {
    const COUNT: usize = 600;
    let side = Side::new();
    let mut child = Child::new();
    child.must("alloc x 1000 7");
    child.must("sync");
    let tickets: Vec<millpond::share::Ticket> = (0..COUNT).map(|_| child.must("export x").parse().unwrap()).collect();
    let imports: Vec<_> = tickets.iter().map(|ticket| import(&side.device, ticket).unwrap()).collect();
    child.signal("-STOP");
    // More releases than the socket has room for.
    for imported in imports {
        side.stream.launch(imported.read(), |_| ()).unwrap();
        side.stream.free(imported).unwrap();
    }
    side.device.synchronize().unwrap();
    assert_eq!(side.device.sharing().imports, 0);
    child.signal("-CONT");
    eventually("all releases are heard", || child.must("leases") == "0");
    child.must("drop x");
    child.end();
}

#[test]
fn an_event_of_an_exporter_that_went_ends_the_wait() {
    let side = Side::new();
    let mut child = Child::new();
    child.must("alloc x 5000 7");
    let event = side.device.import_event(&child.must("record").parse().unwrap()).unwrap();
    side.stream.wait(&event).unwrap();
    child.kill();
    side.stream.synchronize().unwrap();
}

#[test]
fn chunks_of_a_shared_pool_are_fetched_once() {
    let side = Side::new();
    let mut child = Child::new();
    child.must(format!("pool {}", side.pool.export().unwrap()));
    let first = side.filled(1_000_000, 1);
    child.must(format!("import x {}", first.export().unwrap()));
    assert_eq!(child.must("check x 1"), "right");
    let exports = side.device.driver_calls()[millpond::device::CallKind::Export];
    assert!(exports > 0);
    child.must("drop x");
    side.stream.free(first).unwrap();
    for seed in 2..20 {
        let next = side.filled(900_000, seed);
        child.must(format!("import x {}", next.export().unwrap()));
        assert_eq!(child.must(format!("check x {seed}")), "right");
        child.must("drop x");
        side.stream.free(next).unwrap();
    }
    let again = side.device.driver_calls()[millpond::device::CallKind::Export];
    // Freed memory is given back at synchronisations and allocated again, as other chunks.
    assert!(again >= exports);
    let kept: Vec<u32> = child.must("counts").split(' ').map(|count| count.parse().unwrap()).collect();
    assert_eq!(kept[0], 0, "nothing is imported");
    child.end();
    side.assert_empty();
}

/// The end of a process returns what it held. The end of its socket does not, because its work may outlive that.
#[test]
fn a_process_that_hung_up_holds_what_it_has_until_it_ends() {
    let side = Side::new();
    let buffer = side.filled(1000, 1);
    let mut child = Child::new();
    child.must(format!("import x {}", buffer.export().unwrap()));
    assert_ne!(child.must("hang-up"), "0");
    eventually("nothing is heard of it", || side.device.sharing().importers == 0);
    assert_eq!((side.device.sharing().leases, side.device.sharing().lost), (1, 0));
    let refused = side.stream.free(buffer).unwrap_err();
    assert!(refused.report().to_string().contains(&format!("process {} holds it", child.id())), "{refused}");
    assert_eq!(child.must("check x 1"), "right");
    child.kill();
    side.stream.free(refused.buffer).unwrap();
    let sharing = side.device.sharing();
    assert_eq!((sharing.leases, sharing.lost, sharing.reclaimed), (0, 1, 1));
    side.assert_empty();
}

#[test]
fn the_exporter_sees_what_it_lost() {
    let side = Side::new();
    let (kept, buffer) = (side.filled(1000, 1), side.filled(1000, 2));
    let (mut good, mut bad) = (Child::new(), Child::new());
    good.must(format!("import x {}", kept.export().unwrap()));
    bad.must(format!("import x {}", buffer.export().unwrap()));
    bad.must(format!("import y {}", kept.export().unwrap()));
    assert_eq!((side.device.sharing().leases, side.device.sharing().importers), (3, 2));
    bad.kill();
    // The parent knows that it has ended: what it held is returned.
    side.stream.free(buffer).unwrap();
    let sharing = side.device.sharing();
    assert_eq!((sharing.lost, sharing.reclaimed, sharing.leases, sharing.importers), (1, 2, 1, 1));
    let refused = side.stream.free(kept).unwrap_err();
    assert!(refused.report().to_string().contains(&format!("process {} holds it", good.id())), "{refused}");
    good.must("drop x");
    good.end();
    side.stream.free(refused.buffer).unwrap();
    side.assert_empty();
}
