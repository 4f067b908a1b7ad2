//! Reads an operation trace: no panic, and what is read can be written and read again.
//!
//! The bytes are taken twice: as a whole trace, and as the operations of a frame whose checksum is right, as otherwise
//! nothing behind the checksum would ever be met.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millpond_core::op::Op;
use millpond_core::trace::ops::{Reader, Writer};

fn framed(ops: &[u8]) -> Vec<u8> {
    let mut head = b"ops\n".to_vec();
    head.extend((ops.len() as u32).to_le_bytes());
    head.extend((ops.len() as u32).to_le_bytes());
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&head);
    hasher.update(ops);
    let mut trace = Writer::new().seal();
    trace.extend(head);
    trace.extend(hasher.finalize().to_le_bytes());
    trace.extend(ops);
    trace
}

fn read(trace: &[u8]) -> (Vec<Op>, Reader) {
    let (mut reader, mut ops) = (Reader::new(), Vec::new());
    for bytes in trace.chunks(4096) {
        reader.feed(bytes);
        while let Ok(Some(op)) = reader.next_op() {
            ops.push(op);
        }
    }
    (ops, reader)
}

fuzz_target!(|bytes: &[u8]| {
    read(bytes);
    let (ops, reader) = read(&framed(bytes));
    let mut writer = Writer::new();
    ops.iter().for_each(|op| writer.push(op, reader.names()));
    let (again, _) = read(&writer.finish());
    assert_eq!(again.len(), ops.len());
});
