//! The readers against small files of each format: the program read, and every kind of refusal.

use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use millpond_cli::recorded::Event::{self, Alloc, Free};
use millpond_cli::recorded::{self, Format, Recorded, Skipped};
use millpond_cli::source;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn read(name: &str) -> Recorded {
    let mut found = source::read_file(&data(name)).unwrap_or_else(|refusal| panic!("{refusal}"));
    assert_eq!(found.len(), 1, "{name}");
    found.remove(0)
}

/// Returns the refusal of these bytes, without a file's name.
fn refusal(bytes: &[u8]) -> String {
    match recorded::read("test", bytes) {
        Ok(found) => panic!("{:?} was read as {found:?}", String::from_utf8_lossy(bytes)),
        Err(refusal) => refusal.to_string(),
    }
}

fn zipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn our_own_recordings() {
    for name in ["ours.jsonl", "ours.jsonl.gz"] {
        let recorded = read(name);
        assert_eq!(recorded.format, Format::JsonLines);
        assert_eq!(recorded.program.name, "small");
        assert_eq!(recorded.program.seconds, Some(0.25));
        assert_eq!(recorded.recorded_reserved_bytes, Some(2_097_152));
        assert_eq!(
            recorded.program.events,
            [
                Alloc { id: 0, bytes: 1024, stream: 0 },
                Alloc { id: 1, bytes: 512, stream: 1 },
                Free { id: 0, stream: 1 },
                Alloc { id: 2, bytes: 256, stream: 0 },
            ]
        );
        assert_eq!(recorded.program.peak_bytes, 1536);
    }
}

/// The history of device 0 in all the snapshots of `make.py`.
const SNAPSHOT: [Event; 4] = [
    Alloc { id: 0, bytes: 500, stream: 0 },
    Alloc { id: 1, bytes: 1 << 20, stream: 1 },
    Free { id: 0, stream: 0 },
    Alloc { id: 2, bytes: 300, stream: 0 },
];

#[test]
fn snapshots_of_every_protocol() {
    for protocol in 2..=5 {
        let recorded = read(&format!("one_device_p{protocol}.pickle"));
        assert_eq!(recorded.format, Format::Snapshot);
        assert_eq!(recorded.gpu, None, "only one device has events");
        assert_eq!(recorded.program.events, SNAPSHOT);
        assert_eq!(recorded.program.seconds, Some(0.5));
        let skipped = Skipped { earlier_frees: 1, failed_allocs: 1, pending_frees: 1, ..Skipped::default() };
        assert_eq!(recorded.skipped, skipped);
        assert_eq!(recorded.program.leftovers.len(), 2);
    }
}

/// Times count from the first event. Annotations are paired by name, and extend to the border if one end is missing.
/// Memory whose segment was another one then, or no longer exists, is of no known pool.
#[test]
fn a_snapshot_keeps_times_annotations_and_pools() {
    let around = read("annotated.pickle").history.expect("a snapshot has a history").around;
    assert_eq!(around.times, [0, 100, 201, 1500, 2500, 250_001, 1_500_000]);
    let found: Vec<_> = around.annotations.iter().map(|it| (&*it.name, it.from, it.to, it.micros)).collect();
    let expected = [
        ("warm-up", 0, 1, None),
        ("step 1", 3, 6, Some(299_001)),
        ("forward", 3, 5, Some(1400)),
        ("backward", 5, 6, Some(297_300)),
        ("step 2", 6, 7, None),
    ];
    assert_eq!(found, expected);
    assert_eq!(around.pools, ["default pool", "pool (0, 1)"]);
    assert_eq!(around.event_pools, [1, 0, 0, 2, 1, 2, 1]);
    // With only the default pool there is nothing to distinguish.
    let plain = read("one_device_p4.pickle").history.unwrap().around;
    assert!(plain.pools.is_empty() && plain.event_pools.is_empty() && plain.annotations.is_empty());
    assert_eq!(plain.times.len(), 4);
}

#[test]
fn a_snapshot_of_two_devices_is_two_programs() {
    let found = source::read_file(&data("two_devices.pickle")).unwrap();
    assert_eq!(found.iter().map(|recorded| recorded.gpu).collect::<Vec<_>>(), [Some(0), Some(1)]);
    assert_eq!(found[0].program.events, SNAPSHOT);
    assert_eq!(found[1].program.events, [Alloc { id: 0, bytes: 4096, stream: 0 }, Free { id: 0, stream: 0 }]);
}

#[test]
fn a_snapshot_without_history_says_how_to_record() {
    let text = source::read_file(&data("no_history.pickle")).unwrap_err().to_string();
    assert!(text.contains("no device has any allocation in its history"), "{text}");
    assert!(text.contains("help: call torch.cuda.memory._record_memory_history()"), "{text}");
}

#[test]
fn logs_of_rmm() {
    let expected = [
        Alloc { id: 0, bytes: 1 << 20, stream: 0 },
        Alloc { id: 1, bytes: 256, stream: 1 },
        Free { id: 0, stream: 0 },
        Alloc { id: 2, bytes: 512, stream: 1 },
        Free { id: 1, stream: 0 },
    ];
    let recorded = read("rmm.csv");
    assert_eq!(recorded.format, Format::Rmm);
    assert_eq!(recorded.program.events, expected);
    let skipped = Skipped { earlier_frees: 1, empty_allocs: 1, failed_allocs: 1, ..Skipped::default() };
    assert_eq!(recorded.skipped, skipped);

    // The same without its header, as a terminal shows it; and with a header with another order of columns.
    let text = std::fs::read_to_string(data("rmm.csv")).unwrap();
    let (_, lines) = text.split_once('\n').unwrap();
    assert_eq!(recorded::read("x", lines.as_bytes()).unwrap()[0].program.events, expected);
    let turned = "Action,Stream,Size,Pointer\nallocate,0x5,16,ff\n";
    let turned = recorded::read("x", turned.as_bytes()).unwrap();
    assert_eq!(turned[0].program.events, [Alloc { id: 0, bytes: 16, stream: 0 }]);
}

#[test]
fn plain_lines() {
    for name in ["plain.txt", "plain.txt.gz"] {
        let recorded = read(name);
        assert_eq!((recorded.format, recorded.program.name.as_str()), (Format::Plain, "plain"));
        assert_eq!(
            recorded.program.events,
            [
                Alloc { id: 0, bytes: 4096, stream: 0 },
                Alloc { id: 1, bytes: 512, stream: 1 },
                Free { id: 0, stream: 0 },
                Alloc { id: 2, bytes: 100, stream: 0 },
            ]
        );
    }
}

#[test]
fn the_recordings_of_the_project() {
    for (name, events, peak) in [
        ("gpt2_train", 68_571, 12_293_635_680),
        ("resnet_train", 28_048, 4_374_876_176),
        ("gnn_train", 62_484, 6_088_458_968),
        ("multistream", 11_156, 2_278_842_400),
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/files/traces/{name}.jsonl.gz"));
        let found = source::read_file(&path).unwrap_or_else(|refusal| panic!("{refusal}"));
        assert_eq!(found[0].program.name, name);
        assert_eq!((found[0].program.events.len(), found[0].program.peak_bytes), (events, peak));
    }
}

/// Each broken file and the beginning of its refusal. The part after `help:` may be anywhere.
const BROKEN: &[(&[u8], &str, &str)] = &[
    (b"", "the file is empty", "record the program again"),
    (b"\n\n", "the file is empty", ""),
    (b"\x7fELF\x02\x01\x01\0\0", "none of the known formats", "JSON lines of Millpond, a PyTorch"),
    (b"PK\x03\x04....", "a zip archive", "_dump_snapshot"),
    // Our own format.
    (b"{\"name\": \"x\"\n", "line 1: EOF while parsing an object (column 12)", "describes the run"),
    (b"{\"name\": 5}\n", "line 1: invalid type: integer `5`, expected a string", ""),
    (b"{\"seconds\": -1}\n", "line 1: a run of -1 seconds", ""),
    (b"[\"a\",0,512,0]\n", "line 1: the line that describes the run is missing", "{\"name\""),
    (b"{}\n", "line 1: a recording without any allocation", "switched on"),
    (b"{}\nhello\n", "line 2: expected value (column 1)", "[\"a\", id, bytes, stream, microseconds]"),
    (b"{}\n\n{\"a\": 1}\n", "line 3: invalid type: map, expected an event (an array)", ""),
    (b"{}\n[\"a\",0,512]\n", "line 2: the stream is missing", ""),
    (b"{}\n[\"a\",0,-512,0]\n", "line 2: bytes: invalid value: integer `-512`, expected u64", ""),
    (b"{}\n[\"a\",0,\"512\",0]\n", "line 2: bytes: invalid type: string \"512\", expected u64", ""),
    (b"{}\n[\"a\",0,512.5,0]\n", "line 2: bytes: invalid type: floating point `512.5`, expected u64", ""),
    (b"{}\n[\"a\",0,1e30,0]\n", "line 2: bytes: invalid type: floating point `1e+30`, expected u64", ""),
    (b"{}\n[\"a\",0,512,0,1,2]\n", "line 2: trailing characters", ""),
    (b"{}\n[\"b\",0,512,0]\n", "line 2: event `b` is neither `a` nor `f`", ""),
    (b"{}\n[]\n", "line 2: an empty event", ""),
    (b"{}\n[\"a\",0,0,0]\n", "line 2: an allocation of 0 bytes", "leave"),
    (b"{}\n[\"a\",0,999999999999999,0]\n", "line 2: an allocation of 999999999999999 bytes, more than any", "in bytes"),
    (
        b"{}\n[\"a\",0,140737488355328,0]\n[\"a\",1,1,0]\n",
        "line 3: 128.00 TiB live at once, more than any address space has",
        "",
    ),
    (b"{}\n[\"f\",7,0]\n", "line 2: id 7 is freed but was never allocated", "beginning of the recording"),
    (b"{}\n[\"a\",0,1,0]\n[\"a\",0,1,0]\n", "line 3: id 0 is allocated a second time, first on line 2", "unique"),
    (
        b"{}\n[\"a\",0,1,0]\n[\"f\",0,0]\n\n[\"f\",0,0]\n",
        "line 5: id 0 is freed a second time, first on line 3",
        "freed twice",
    ),
    (b"{}\n[\"a\",0,1,0]\n\xff\xfe\n", "line 3: not text (no UTF-8)", "damaged"),
    // Plain lines.
    (b"a 0\n", "line 1: the line has no bytes", "a <id> <bytes> [<stream>]"),
    (b"a x 5\n", "line 1: `x` is not a number of id", ""),
    (b"a 0 -5\n", "line 1: `-5` is not a number of bytes", ""),
    (b"a 0 99999999999999999999\n", "line 1: `99999999999999999999` is not a number of bytes", ""),
    (b"a 0 5 0 9\n", "line 1: `9` is one word too many", ""),
    (b"a 0 5\nb 0\n", "line 2: `b` is neither `a` nor `f`", ""),
    (b"a 0 5\na 0 5\n", "line 2: id 0 is allocated while it is still live since line 1", "a free is missing"),
    (b"a 0 5\nf 0\nf 0\n", "line 3: id 0 is freed a second time, first on line 2", ""),
    (b"f 3\n", "line 1: id 3 is freed but was never allocated", ""),
    (b"# nothing\n", "line 1: a recording without any allocation", ""),
    // RMM logs.
    (b"Thread,Time,Action,Pointer,Size\n", "line 1: no column `Stream` in the header", "logging_resource_adaptor"),
    (
        b"Thread,Time,Action,Pointer,Size,Stream,Size\n",
        "line 1: column `Size` is in the header more than once",
        "logging_resource_adaptor",
    ),
    (b"Thread,Time,Action,Pointer,Size,Stream\n1,2,free\n", "line 2: 3 columns where the header has 6", ""),
    (b"Thread,Time,Action,Pointer,Size,Stream\n1,2,grow,0x1,2,0\n", "line 2: action `grow`; known are allocate", ""),
    (b"1,2,allocate,0x1,2.5,0\n", "line 1: `2.5` is not a number of bytes", ""),
    (b"1,2,allocate,zz,2,0\n", "line 1: `zz` is not a hexadecimal pointer", ""),
    (b"1,2,allocate,0x1,2,q\n", "line 1: `q` is not a hexadecimal stream", ""),
    (b"1,2,allocate,0x10,2,0\n1,2,allocate,0x10,2,0\n", "line 2: pointer 0x10 is allocated while it is still", ""),
    (b"1,2,free,0x10,2,0\n", "line 1: a recording without any allocation", ""),
    // Snapshots; the machine under them has tests of its own.
    (b"\x80\x07.", "a pickle of protocol 7", ""),
    (b"\x80\x04N.", "the pickle is not a snapshot: it holds no dict", "_record_memory_history"),
    (b"\x80\x04}.", "byte 2: the snapshot has no `device_traces`", "_record_memory_history"),
    (b"\x80\x04}\x8c\x0ddevice_tracesNs.", "byte 2: `device_traces` is not a list", ""),
    (b"\x80\x04}\x8c\x0ddevice_traces]Nas.", "byte 18: a device's trace is not a list", ""),
    (b"\x80\x04}\x8c\x0ddevice_traces]]}aas.", "byte 20: entry 0 of gpu 0: no `action`", "write it again"),
    (
        b"\x80\x02}q\x00X\x0d\x00\x00\x00device_tracesq\x01]q\x02(]q\x03}q\x04X\x06\x00\x00\x00a\
            ctionq\x05X\x08\x00\x00\x00snapshotq\x06sah\x03es.",
        "byte 25: two devices have one list of events",
        "_record_memory_history",
    ),
    (b"\x80\x04cos\nsystem\n.", "byte 2: the pickle imports `os.system`; nothing of it was run", "trust"),
];

#[test]
fn broken_files_are_refused_with_place_reason_and_help() {
    for (bytes, begins, help) in BROKEN {
        let text = refusal(bytes);
        assert!(text.starts_with(begins), "{:?}\n{text}", String::from_utf8_lossy(bytes));
        assert!(text.contains("\n  help: ") || help.is_empty(), "{text}");
        assert!(text.contains(help), "no `{help}` in: {text}");
        // Zipped, it is refused with the same text.
        if !bytes.is_empty() {
            assert_eq!(refusal(&zipped(bytes)), text);
        }
    }
}

#[test]
fn broken_gzip_is_refused() {
    let lines: String = (0..5000).map(|n| format!("a {n} {}\n", n * 7919 % 4096 + 1)).collect();
    let whole = zipped(lines.as_bytes());
    let text = refusal(&whole[..whole.len() / 2]);
    assert!(
        text.contains("the gzip data ends in the middle") && text.contains("help: the file was cut short"),
        "{text}"
    );
    let mut broken = whole.clone();
    let middle = broken.len() / 2;
    broken[middle..].fill(0xff);
    let text = refusal(&broken);
    assert!(text.contains("the gzip data is broken"), "{text}");
    assert!(refusal(&zipped(&whole)).starts_with("gzipped twice"));
    assert!(refusal(&whole[..2]).contains("the gzip data ends in the middle"));
}

#[test]
fn a_bomb_of_one_line_is_refused_early() {
    let mut bomb = b"a 1 ".to_vec();
    bomb.resize(64 << 20, b'0');
    let small = zipped(&bomb);
    assert!(small.len() < 100_000);
    let text = refusal(&small);
    assert!(text.starts_with("line 1: longer than 1 MiB"), "{text}");
}

#[test]
fn what_a_file_says_is_shown_short_and_harmless() {
    let found = recorded::read("x", &b"{\"name\": \"a\\u001b[31mb\"}\n[\"a\",0,1,0]\n"[..]).unwrap();
    assert_eq!(found[0].program.name, "a\\u{1b}[31mb");
    let long = format!("{{}}\n[\"a\",0,\"{}\",0]\n", "\\u001b".repeat(10_000));
    let text = refusal(long.as_bytes());
    assert!(text.len() < 500 && text.contains("...") && !text.contains('\x1b'), "{text}");
}

#[test]
fn what_is_no_file_is_refused() {
    let text = source::read_file(&data("")).unwrap_err().to_string();
    assert!(text.contains("tests/data/: a directory, not a file"), "{text}");
    let text = source::read_file(&data("elsewhere/missing.jsonl")).unwrap_err().to_string();
    assert!(text.contains("missing.jsonl: cannot be opened: no such file or directory\n  help:"), "{text}");
}

#[test]
fn a_small_file_does_not_unpack_to_any_size() {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(b"\x80\x04").unwrap();
    (0..64).for_each(|_| packed.write_all(&[b']'; 1 << 20]).unwrap());
    let text = refusal(&packed.finish().unwrap());
    assert!(text.contains("a gzipped snapshot of more than 200 times the size of its file"), "{text}");
}

#[test]
fn a_snapshot_keeps_frames_segments_and_what_was_before() {
    for protocol in 2..=5 {
        let recorded = read(&format!("one_device_p{protocol}.pickle"));
        let history = recorded.history.expect("a snapshot has one");
        assert_eq!(history.frames, ["forward (train.py:12)", "<module> (train.py:40)"]);
        assert_eq!(history.stacks, [vec![], vec![0, 1]], "the stack is there once");
        assert_eq!(history.events, [1, 1, 1, 1]);
        assert_eq!(history.site(1), Some(0));
        // It has 2 MiB at the end, and reserved as much during the history, before the first event.
        assert_eq!(history.reserved, [(0, 2 << 20)]);
        assert_eq!(recorded.recorded_reserved_bytes, Some(2 << 20));
        // One free of a block that was never allocated in the history. The allocation of the block live at the end is
        // in it.
        assert_eq!((history.earlier_blocks, history.earlier_bytes), (1, 4096));
    }
}

/// A list that a file names several times is read once.
#[test]
fn blocks_of_a_shared_list_are_counted_once() {
    let shared = b"\x80\x02}q\x00(X\x0d\x00\x00\x00device_tracesq\x01]q\x02]q\x03}q\x04(X\x06\x00\x00\x00\
            actionq\x05X\x05\x00\x00\x00allocq\x06X\x04\x00\x00\x00addrq\x07M\x00\x10X\x04\x00\x00\
            \x00sizeq\x08M\x00\x02X\x06\x00\x00\x00streamq\x09K\x00X\x07\x00\x00\x00time_usq\x0aK\x01\
            uaaX\x08\x00\x00\x00segmentsq\x0b]q\x0c(}q\x0d(X\x06\x00\x00\x00deviceq\x0eK\x00X\x0a\x00\
            \x00\x00total_sizeq\x0fM\x00\x02X\x06\x00\x00\x00blocksq\x10]q\x11}q\x12(X\x05\x00\x00\
            \x00stateq\x13X\x10\x00\x00\x00active_allocatedq\x14X\x07\x00\x00\x00addressq\x15K\x07\
            h\x08Kduauh\x0dh\x0deu.";
    let found = recorded::read("shared", &shared[..]).unwrap();
    let history = found[0].history.as_ref().expect("a snapshot has one");
    assert_eq!((history.earlier_blocks, history.earlier_bytes), (1, 100));
    assert_eq!(history.reserved, [(0, 3 * 512)]);
}
