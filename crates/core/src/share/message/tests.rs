//! Tests that every message survives the wire, that no other bytes are read as one, and that none panic.

use super::*;

fn point(seq: u64) -> ForeignPoint {
    ForeignPoint { device: 3 << 90, chain: 5, seq }
}

fn end(seq: u64) -> ForeignEnd {
    ForeignEnd { point: point(seq), process: seq as u32 % 2 }
}

fn one_use(seq: u64) -> ForeignUse {
    ForeignUse { point: point(seq), act: Act::Write, stream: 2, op: op_at(seq), process: seq as u32 % 3 }
}

fn requests() -> Vec<Request> {
    let chunk = ChunkName { pool: 1, serial: 9 };
    vec![
        Request::Claim { kind: TicketKind::Memory, nonce: 1 << 99 },
        Request::Claim { kind: TicketKind::Event, nonce: 0 },
        Request::Parts { lease: LeaseId(4), from: 1024 },
        Request::Fetch(vec![chunk; FETCH_CHUNKS_MAX]),
        Request::Fetch(Vec::new()),
        Request::Release { lease: LeaseId(u64::MAX), uses: vec![one_use(5), one_use(6)] },
        Request::Release { lease: LeaseId(2), uses: Vec::new() },
        Request::Over(LeaseId(7)),
        Request::Known(LeaseId(7)),
    ]
}

fn replies() -> Vec<Reply> {
    let part = Part { chunk: ChunkName { pool: 0, serial: 1 }, bytes: 2 << 20 };
    let memory = MemoryGrant {
        lease: LeaseId(1),
        bytes: 5000,
        offset: 512,
        part_count: 2,
        parts: vec![part; 2],
        gone: vec![part.chunk],
        born: one_use(3),
        uses: vec![one_use(4), one_use(9)],
        device: 3 << 90,
        can_write: false,
    };
    let mut replies = vec![
        Reply::Memory(memory),
        Reply::Event(EventGrant { end: end(7), known: vec![end(1), end(2)], name: None, device: 1 }),
        Reply::Event(EventGrant { end: end(7), known: Vec::new(), name: Some([9; EVENT_NAME_BYTES]), device: 1 }),
        Reply::Pool(3),
        Reply::Parts(vec![part; PARTS_MAX]),
        Reply::Chunks(64),
    ];
    replies.extend(REFUSALS.map(Reply::Refused));
    replies
}

fn packets() -> Vec<Vec<u8>> {
    let mut packets: Vec<_> = requests().iter().map(Request::to_bytes).collect();
    packets.extend(replies().iter().map(Reply::to_bytes));
    packets
}

#[test]
fn messages_survive_the_wire() {
    for request in requests() {
        assert_eq!(Request::from_bytes(&request.to_bytes()), Ok(request));
    }
    for reply in replies() {
        assert_eq!(Reply::from_bytes(&reply.to_bytes()), Ok(reply));
    }
}

#[test]
fn cut_or_lengthened_messages_are_refused() {
    let check = |bytes: Vec<u8>, is_read: fn(&[u8]) -> bool| {
        assert!((0..bytes.len()).all(|len| !is_read(&bytes[..len])), "cut: {bytes:?}");
        assert!(!is_read(&[&bytes[..], &[0]].concat()), "lengthened: {bytes:?}");
    };
    requests().iter().for_each(|request| check(request.to_bytes(), |bytes| Request::from_bytes(bytes).is_ok()));
    replies().iter().for_each(|reply| check(reply.to_bytes(), |bytes| Reply::from_bytes(bytes).is_ok()));
}

#[test]
fn the_largest_messages_fit_a_packet() {
    let part = Part { chunk: ChunkName { pool: 0, serial: 1 }, bytes: 2 << 20 };
    let largest = Reply::Memory(MemoryGrant {
        lease: LeaseId(1),
        bytes: 1,
        offset: 0,
        part_count: 1,
        parts: vec![part; PARTS_MAX],
        gone: vec![part.chunk; PARTS_MAX],
        born: one_use(3),
        uses: vec![one_use(4); USES_MAX],
        device: 1,
        can_write: true,
    });
    let event = Reply::Event(EventGrant {
        end: end(7),
        known: vec![end(1); POINTS_MAX],
        name: Some([7; EVENT_NAME_BYTES]),
        device: 1,
    });
    let release = Request::Release { lease: LeaseId(1), uses: vec![one_use(4); USES_MAX] }.to_bytes();
    assert!(release.len() <= MESSAGE_BYTES_MAX && Request::from_bytes(&release).is_ok());
    for reply in [largest, event] {
        let bytes = reply.to_bytes();
        assert!(bytes.len() <= MESSAGE_BYTES_MAX, "{} B", bytes.len());
        assert_eq!(Reply::from_bytes(&bytes), Ok(reply));
    }
}

#[test]
fn a_strangers_length_sizes_nothing() {
    // A list that claims four billion entries, and one that claims more than there are bytes for.
    for len in [u32::MAX, FETCH_CHUNKS_MAX as u32] {
        let mut bytes = vec![3];
        bytes.extend_from_slice(&len.to_le_bytes());
        bytes.push(0);
        assert!(Request::from_bytes(&bytes).is_err());
    }
}

/// Any bytes are read without a panic, and what is read can be written again unchanged.
#[test]
fn any_bytes_are_a_message_or_none() {
    let mut state = 1u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let packets = packets();
    let mut read = 0;
    for _ in 0..20_000 {
        let mut bytes = packets[random() as usize % packets.len()].clone();
        bytes.truncate(512);
        for _ in 0..1 + random() % 3 {
            let at = random() as usize % bytes.len();
            bytes[at] = random() as u8;
        }
        if let Ok(request) = Request::from_bytes(&bytes) {
            assert_eq!(request.to_bytes(), bytes);
            read += 1;
        }
        if let Ok(reply) = Reply::from_bytes(&bytes) {
            assert_eq!(reply.to_bytes(), bytes);
            read += 1;
        }
    }
    assert!(read > 1000, "{read} were messages");
}
