//! Names of streams: messages of every kind contain them, on any device, and after the end of the stream.

use millpond::Buffer;

use crate::common::on_every_device;

#[test]
fn both_sides_are_called_by_name() {
    on_every_device(|on| {
        let [s, t] = on.streams();
        s.set_name("load");
        s.set_name("copy");
        let t = t.named("compute");
        assert_eq!((s.name().as_deref(), t.name().as_deref()), (Some("copy"), Some("compute")));
        let x: Buffer<u8> = s.alloc(&on.device.default_pool(), 1000).unwrap();
        let refusal = t.free(x).unwrap_err();
        let text = refusal.error.report().to_string();
        let sides = "freed on stream `compute`, but nothing makes that free wait for the allocation on stream `copy`";
        assert!(text.contains(sides), "{text}");
        assert!(text.contains("make stream `compute` wait for an event recorded on stream `copy`"), "{text}");
        s.free(refusal.buffer).unwrap();
    });
}

/// In a capture, the missing edge is an event.
#[test]
fn a_capture_says_which_stream_has_to_wait() {
    on_every_device(|on| {
        let [s, t] = on.streams();
        let (s, t) = (s.named("main"), t.named("side"));
        let x: Buffer<u8> = s.alloc(&on.device.default_pool(), 1000).unwrap();
        s.begin_capture().unwrap();
        t.wait(&s.record().unwrap()).unwrap();
        t.memset(x.write(), 1).unwrap();
        let text = s.memset(x.write(), 2).unwrap_err().report().to_string();
        assert!(text.contains("make stream `main` wait, before it captures memset node 1 ("), "{text}");
        assert!(text.contains("), for an event that stream `side` records after memset node 0 ("), "{text}");
        s.wait(&t.record().unwrap()).unwrap();
        s.memset(x.write(), 2).unwrap();
        s.end_capture().unwrap();
        s.free(x).unwrap();
    });
}

#[test]
fn a_closed_stream_keeps_its_name() {
    on_every_device(|on| {
        let [s, t] = on.streams();
        let s = s.named("loader");
        let x: Buffer<u8> = s.alloc(&on.device.default_pool(), 1000).unwrap();
        let event = s.record().unwrap();
        drop(s);
        let refusal = t.free(x).unwrap_err();
        let text = refusal.error.report().to_string();
        assert!(text.contains("wait for the allocation on stream `loader`"), "{text}");
        t.wait(&event).unwrap();
        t.free(refusal.buffer).unwrap();
    });
}

#[test]
fn streams_of_other_devices_have_names_of_their_own() {
    on_every_device(|on| {
        let [s, t] = on.streams();
        let other = on.another();
        let _named = other.streams::<2>().map(|stream| stream.named("other"));
        let x: Buffer<u8> = s.alloc(&on.device.default_pool(), 1000).unwrap();
        let refusal = t.free(x).unwrap_err();
        let text = refusal.error.report().to_string();
        assert!(!text.contains('`'), "{text}");
        s.free(refusal.buffer).unwrap();
    });
}

/// A server opens streams for each request, without end. An old name never names another stream.
#[test]
fn streams_that_come_and_go_have_few_numbers() {
    on_every_device(|on| {
        for round in 0..2500 {
            let stream = on.device.stream().unwrap();
            assert!(stream.id().0 < 1200, "{}", stream.id());
            assert_eq!(stream.name(), None, "{}", stream.id());
            if round % 2 == 0 {
                stream.set_name("request");
            }
        }
    });
}
