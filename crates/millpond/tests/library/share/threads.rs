//! Threads: those of the program that end while it shares, and those of the library that wait.

use std::cell::RefCell;
use std::sync::{Arc, mpsc};

use millpond::Buffer;

use super::{Side, eventually, gate, import};

/// Frees memory that was lent and returned, at the end of its thread.
struct Last(Arc<Side>, Option<Buffer<u32>>);

impl Drop for Last {
    fn drop(&mut self) {
        let Some(buffer) = self.1.take() else { return };
        // A panic here would end the process.
        let freed = self.0.stream.free(buffer).map_err(|refused| refused.error.to_string());
        println!("freed at the end of its thread: {freed:?}");
    }
}

#[test]
fn a_thread_that_ends_frees_what_is_lent() {
    thread_local!(static LAST: RefCell<Option<Last>> = const { RefCell::new(None) });
    // The system may drop the first value first or last: both are tested.
    for is_first in [false, true] {
        let (there, here) = (Arc::new(Side::new()), Side::new());
        let theirs = Arc::clone(&there);
        let run = move || {
            let buffer = theirs.filled(100, 1);
            let imported = import(&here.device, &buffer.export().unwrap()).unwrap();
            if is_first {
                LAST.set(Some(Last(Arc::clone(&theirs), None)));
            }
            assert_eq!(theirs.device.sharing().leases, 1);
            drop(imported);
            LAST.set(Some(Last(theirs, Some(buffer))));
        };
        std::thread::spawn(run).join().expect("no panic");
        assert_eq!(there.pool.statistics().used_bytes, 0, "it is freed");
    }
}

/// Makes imports, each freed on a stream of its own while its use runs. Returns the gates that the uses wait for.
fn in_use(there: &Side, here: &Side, count: usize) -> Vec<mpsc::Sender<()>> {
    let one = |at| {
        let buffer = there.filled(100, at as u32);
        let imported = import(&here.device, &buffer.export().unwrap()).unwrap();
        let stream = here.device.stream().unwrap();
        let go = gate(&stream).unwrap();
        stream.launch(imported.read(), |_| ()).unwrap();
        stream.free(imported).unwrap();
        go
    };
    (0..count).map(one).collect()
}

/// The uses of the last one complete first: what it held is returned then, whatever the others wait for. They may wait
/// for their exporter.
#[test]
fn an_import_that_is_over_waits_for_no_other() {
    let (there, here) = (Side::new(), Side::new());
    let mut gates = in_use(&there, &here, 3);
    assert_eq!(here.device.sharing().returning, 3);
    for left in (0..3).rev() {
        drop(gates.pop());
        eventually("one is given back", || {
            there.device.sharing();
            here.device.sharing().returning == left && there.pool.statistics().used_bytes == 400 * left as u64
        });
    }
    there.assert_given_back_by(&here);
}

/// The import does not wait for later work of its streams, because that may wait for the exporter.
#[test]
fn an_import_that_is_over_waits_for_no_later_work() {
    let (there, here) = (Side::new(), Side::new());
    let uses = in_use(&there, &here, 1);
    let buffer = there.filled(100, 7);
    let imported = import(&here.device, &buffer.export().unwrap()).unwrap();
    let go = gate(&here.stream).unwrap();
    here.stream.launch(imported.read(), |_| ()).unwrap();
    here.stream.free(imported).unwrap();
    let later = gate(&here.stream).unwrap();
    drop((buffer, go));
    eventually("it is given back", || {
        there.device.sharing();
        here.device.sharing().returning == 1 && there.pool.statistics().used_bytes == 400
    });
    drop((later, uses));
    there.assert_given_back_by(&here);
}

/// There are more of them than waiting threads: threads that finish take over the rest.
#[test]
fn more_streams_than_threads_are_waited_for() {
    let (there, here) = (Side::new(), Side::new());
    for _ in 0..2 {
        let gates = in_use(&there, &here, 70);
        assert_eq!(here.device.sharing().returning, 70);
        drop(gates);
        there.assert_given_back_by(&here);
    }
}

/// Uses that the host knows to have completed are returned without a thread. The thread that learned it does not wait
/// for later work, which may wait for that very thread.
#[test]
fn a_host_that_learns_of_the_uses_waits_for_no_later_work() {
    let (there, here) = (Side::new(), Side::new());
    // No thread is left for one more.
    let gates = in_use(&there, &here, 64);
    let buffer = there.filled(100, 7);
    let imported = import(&here.device, &buffer.export().unwrap()).unwrap();
    let (used, freed) = (&here.stream, here.device.stream().unwrap());
    let go = gate(used).unwrap();
    used.launch(imported.read(), |_| ()).unwrap();
    let use_ended = used.record().unwrap();
    let later = gate(used).unwrap();
    freed.wait(&use_ended).unwrap();
    freed.free(imported).unwrap();
    assert_eq!(here.device.sharing().returning, 65);
    drop(go);
    let (ended, said) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            freed.record().unwrap().synchronize().unwrap();
            ended.send(here.device.sharing().returning).unwrap();
        });
        let waited = said.recv_timeout(std::time::Duration::from_secs(30));
        // In both cases, so that the test ends.
        drop((later, gates));
        assert_eq!(waited, Ok(64));
    });
    drop(buffer);
    there.assert_given_back_by(&here);
}
