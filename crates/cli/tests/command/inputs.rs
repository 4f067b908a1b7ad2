//! One reader for all subcommands: from a path, a pipe or `-`, gzipped or not, with a byte order mark or without. A
//! file for another subcommand is refused with that one's name.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;

const LITMUS: &str = "stream s\na = alloc s 64\nfree s a\n";
const TABLE: &str = "id,lower,upper,size\n0,0,2,16\n1,1,3,16\n";
const PLAIN: &str = "a 0 512\nf 0\n";

/// Runs the command with these bytes on standard input.
fn run(words: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_millpond"))
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    // A command that refuses the beginning does not read the end.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn zipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn to(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("inputs");
    std::fs::create_dir_all(&folder).unwrap();
    folder.join(name)
}

/// The format that each subcommand reads.
const READS: [(&[&str], &str); 5] = [
    (&["check"], LITMUS),
    (&["view"], LITMUS),
    (&["view"], PLAIN),
    (&["plan", "--quick"], TABLE),
    (&["replay"], PLAIN),
];

#[test]
fn standard_input_and_pipes_are_read_as_files_are() {
    for (words, text) in READS {
        let plain = text.as_bytes().to_vec();
        let marked = [b"\xef\xbb\xbf", text.as_bytes()].concat();
        for input in
            [plain.clone(), marked.clone(), zipped(&plain), zipped(&marked), [zipped(&plain), vec![0; 9]].concat()]
        {
            for path in ["-", "/dev/stdin"] {
                let output = run(&[words, &[path]].concat(), &input);
                let error = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{words:?} {path} {text:?}: {error}");
                assert!(!output.stdout.is_empty());
            }
        }
    }
}

#[test]
fn what_another_subcommand_reads_is_refused_with_its_name() {
    let trace = millpond_core::trace::ops::Writer::new().finish();
    for (words, input, what, meant) in [
        (&["replay"][..], LITMUS.as_bytes(), "a litmus program", "millpond check"),
        (&["replay"], TABLE.as_bytes(), "a table of lifetimes", "millpond plan"),
        (&["check"], PLAIN.as_bytes(), "a recording of allocations", "millpond replay"),
        (&["check"], TABLE.as_bytes(), "a table of lifetimes", "millpond plan"),
        (&["plan"], LITMUS.as_bytes(), "a litmus program", "millpond check"),
        (&["plan"], PLAIN.as_bytes(), "a recording of allocations", "millpond replay"),
        (&["plan"], &trace, "an operation trace", "millpond check"),
        (&["view"], TABLE.as_bytes(), "a table of lifetimes", "millpond plan --svg"),
    ] {
        for input in [input.to_vec(), zipped(input)] {
            let output = run(&[words, &["-"]].concat(), &input);
            let error = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{words:?}: {error}");
            assert!(error.contains(what) && error.contains(&format!("`{meant}")), "{words:?}: {error}");
            assert!(error.contains(&format!("not for `millpond {}`", words[0])) && output.stdout.is_empty(), "{error}");
        }
    }
}

#[test]
fn broken_inputs_say_what_is_broken() {
    for (words, text) in READS {
        let behind = [zipped(text.as_bytes()), b"garbage".to_vec()].concat();
        let cut = zipped(text.as_bytes());
        for (input, part) in [
            (behind, "the gzip data is broken (something else follows it)"),
            (cut[..cut.len() - 6].to_vec(), "the gzip data ends in the middle"),
            (Vec::new(), ""),
        ] {
            let output = run(&[words, &["-"]].concat(), &input);
            let error = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{words:?}: {error}");
            assert!(error.starts_with("error: -: ") && error.contains(part), "{words:?} {text:?}: {error}");
        }
    }
    let utf_16: Vec<u8> = [0xff, 0xfe].into_iter().chain(PLAIN.bytes().flat_map(|byte| [byte, 0])).collect();
    let error = String::from_utf8(run(&["replay", "-"], &utf_16).stderr).unwrap();
    assert!(error.contains("text in UTF-16") && error.contains("iconv"), "{error}");
}

/// Packed files are checked in one place: no command takes a truncated file for an empty one, or a file that was packed
/// twice for text.
#[test]
fn gzipped_files_that_are_cut_or_packed_twice_are_called_so() {
    for (words, text) in READS {
        let whole = zipped(text.as_bytes());
        for (input, part) in [
            (whole[..2].to_vec(), "the gzip data ends in the middle"),
            (whole[..10].to_vec(), "the gzip data ends in the middle"),
            (zipped(&whole), "gzipped twice\n  help: run `gunzip` on the file once"),
            (zipped(&whole[..2]), "gzipped twice"),
            (zipped(b""), "the file is empty"),
            ([zipped(b""), whole.clone()].concat(), ""),
        ] {
            let output = run(&[words, &["-"]].concat(), &input);
            let error = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(if part.is_empty() { 0 } else { 2 }), "{words:?} {part}: {error}");
            assert!(error.contains(part), "{words:?} {part}: {error}");
        }
    }
}

/// A program that was stopped leaves a trace without its end: every reader says so.
#[test]
fn a_trace_without_its_end_is_called_so() {
    let mut writer = millpond_core::trace::ops::Writer::new();
    let program = millpond_litmus::Program::parse("stream s\na = alloc s 64\nb = alloc s 64\nfree s a\n").unwrap();
    let head = writer.seal();
    program.ops().iter().for_each(|op| writer.push(op, program.names()));
    let (first, trace) = (head.len(), [head, writer.seal()].concat());
    for words in [&["check"][..], &["view"], &["replay"]] {
        // Inside the file's head, after it, and inside the first frame.
        for (end, part) in [
            (first - 2, "the trace ends in the middle"),
            (first, "no operation is in it"),
            (first + 9, "the trace ends in the middle"),
        ] {
            let output = run(&[words, &["-"]].concat(), &trace[..end]);
            let error = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{words:?} {end}: {error}");
            assert!(error.contains(part), "{words:?} {end}: {error}");
        }
        let output = run(&[words, &["-"]].concat(), &trace);
        let said = [output.stderr, output.stdout].concat();
        assert!(String::from_utf8_lossy(&said).contains("the program was stopped"), "{words:?}");
    }
}

/// Text of no known format is never taken for one, whatever it begins with. A nearly right word is named.
#[test]
fn what_is_none_of_the_formats_is_called_none() {
    const FORMATS: &str = "none of the known formats";
    for (words, text, part) in [
        ("check", "# Title\n\nSome words about it.\n", "line 3: `Some words about it.` is not a statement"),
        ("check", "[package]\nname = \"it\"\n", "line 1: `[package]` is not a statement"),
        ("check", "", "the file is empty: there is nothing to check"),
        ("replay", "# Title\n\nSome words about it.\n", FORMATS),
        ("replay", "[package]\nname = \"it\"\n", FORMATS),
        ("view", "[package]\nname = \"it\"\n", FORMATS),
        ("plan", "# Title\n\nSome words about it.\n", "the first line names the columns"),
        ("replay", "{\"hello\": 1}\n", "JSON, and not Millpond's JSON lines"),
        ("view", "[{\"hello\": 1}]\n", "JSON, and not Millpond's JSON lines"),
        ("plan", "{\"hello\": 1}\n", "the first line names the columns"),
        ("check", "# nothing\n\nstream s\n\0", "line 4: a zero byte: neither a litmus program nor"),
        ("check", "{\"hello\": 1}\n", "JSON: neither a litmus program nor an operation trace"),
        ("check", "- nothing\n", "it is not an operation trace, and was read as a litmus program"),
        ("check", "streem s\n", "did you mean `stream`? Such a line reads `stream S [nonblocking"),
        (
            "check",
            "stream s\nx = aloc s 4096\n",
            "line 2: `x = aloc s 4096` is not a statement\n  help: did you mean `alloc`?",
        ),
        ("check", "stream s\nx = alloc s 64\nwrite x s\n", "`s` is a stream, not memory\n  help: is another"),
        ("check", "stream s   !! fre-before-use\n", "`fre-before-use`\n  help: did you mean `free-before-use`?"),
        ("check", "stream s   !! bad\n", "docs/litmus.md lists them"),
        ("check", "stream s\nx = alloc s\n", "or `A = alloc S 1024` or"),
    ] {
        let output = run(&[words, "-"], text.as_bytes());
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words}: {error}");
        assert!(error.contains(part), "{words} {text:?}: {error}");
    }
}

/// The error for bytes that are not text has a line. Options for a pool are refused where no pool is used.
#[test]
fn what_has_no_effect_is_refused() {
    let refused = |words: &[&str], text: &[u8], part: &str| {
        let output = run(words, text);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {error}");
        assert!(error.contains(part), "{words:?}: {error}");
    };
    refused(&["check", "-"], b"stream s\n# \xff\n", "line 2: byte 0xff is not UTF-8");
    refused(&["check", "-"], &vec![b' '; (1 << 20) + 1], "text of more than 1 MiB");
    refused(&["check", "-"], b"# words\n", "no statement is in it");
    for option in ["--gpu=1", "--device=host", "--slack=0.01", "--no-opportunistic"] {
        refused(&["view", option, "-"], LITMUS.as_bytes(), "no pool serves a litmus program");
    }
    for command in ["view", "replay"] {
        refused(&[command, "--gpu=1", "-"], PLAIN.as_bytes(), "does not say of which GPU");
    }
    for nothing in [&["check"][..], &["check", "--"]] {
        refused(nothing, b"", "name a file, or any CUDA program");
    }
    refused(&["replay", "--repeat", "-1", "-"], b"", "-1 is not in 1..=100000");
}

/// No subcommand overwrites its input.
#[test]
fn an_input_is_never_the_output() {
    for (words, text, option) in [
        (&["view"][..], LITMUS, "-o"),
        (&["view"], PLAIN, "-o"),
        (&["plan", "--quick"], TABLE, "-o"),
        (&["plan", "--quick"], TABLE, "--svg"),
    ] {
        let file = to("input");
        std::fs::write(&file, text).unwrap();
        let path = file.display().to_string();
        let output = run(&[words, &[&path, option, &path]].concat(), b"");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {error}");
        assert!(error.contains("it is read or written already: name another file"), "{error}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    }
}

#[test]
fn shells_and_readers_get_what_the_arguments_say() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = run(&["completions", shell], b"");
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.contains("keep-allocator") && text.contains("view"), "{shell}: {text}");
    }
    let page = |words: &[&str]| String::from_utf8(run(words, b"").stdout).unwrap();
    assert!(page(&["man"]).contains(".TH millpond 1") && page(&["man", "view"]).contains(".TH millpond-view 1"));
    for words in [&["man"][..], &["man", "view"]] {
        assert!(page(words).contains(concat!("\"millpond ", env!("CARGO_PKG_VERSION"), "\"")), "the foot of the page");
    }
    let wrong = run(&["man", "fry"], b"");
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("`fry` is not a subcommand"));
}
