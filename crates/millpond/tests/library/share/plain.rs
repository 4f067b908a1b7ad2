//! Memory as files, for programs without Millpond: a C program that uses only the driver API imports it and compares.
//! Over `fakecuda`, and with `MILLPOND_TEST_DEVICE=cuda` on a GPU.

use std::fs::{self, File};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use millpond::error::ShareError;
use millpond::share::MemoryFile;
use millpond::{Buffer, Error};
use rustix::cmsg_space;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, sendmsg, socketpair,
};

use super::{Side, copy_in, device, import, kind, pattern};

const LEN: usize = 1_200_000;
/// As in the program.
const FILES_MAX: usize = 64;

fn files(buffer: &Buffer<u32>) -> Result<Vec<MemoryFile>, Error> {
    // SAFETY: the tests write nothing while others read.
    unsafe { buffer.export_files() }
}

/// Returns the C program, compiled once by the system's compiler. Warnings are errors.
fn program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let (source, program) = (folder.join("plain.c"), folder.join("plain"));
        fs::write(&source, include_str!("plain.c")).expect("the source can be written");
        let mut compile = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
        compile.args(["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).arg(&source).arg("-ldl");
        let output = compile.output().expect("there is a C compiler");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        program
    })
}

/// Returns the library of the device here, for the program to load.
fn library() -> PathBuf {
    match kind() {
        "cuda" => std::env::var_os("MILLPOND_LIBCUDA").map_or_else(|| "libcuda.so.1".into(), PathBuf::from),
        _ => fakecuda::library(),
    }
}

/// Returns the program's output for these files, if they should hold the pattern of this seed.
fn said(files: &[MemoryFile], seed: u32) -> Output {
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a socket");
    let mut numbers = vec![0u64; 2 + 3 * FILES_MAX];
    (numbers[0], numbers[1]) = (files.len() as u64, u64::from(seed));
    for (at, file) in files.iter().enumerate() {
        numbers[2 + 3 * at..5 + 3 * at].copy_from_slice(&[file.chunk_bytes, file.offset, file.bytes]);
    }
    let packet: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
    let fds: Vec<_> = files.iter().map(|it| it.file.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FILES_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    let mut command = Command::new(program());
    command.arg(library()).arg("0").stdin(Stdio::from(theirs)).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("it starts");
    sendmsg(&ours, &[IoSlice::new(&packet)], &mut control, SendFlags::NOSIGNAL).expect("it is sent");
    child.wait_with_output().expect("it ends")
}

#[track_caller]
fn assert_said(output: &Output, status: i32, text: &str) {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(status), "{out}{err}");
    assert!(out.contains(text), "{out}{err}");
}

#[test]
fn a_plain_cuda_program_reads_what_is_exported() {
    let side = Side::of(device(kind()));
    // Not at the beginning of a chunk.
    let before = side.stream.alloc::<u32>(&side.pool, 3000).unwrap();
    let buffer = side.stream.alloc::<u32>(&side.pool, LEN).unwrap();
    copy_in(&side.stream, &before, 8).unwrap();
    copy_in(&side.stream, &buffer, 9).unwrap();
    side.stream.synchronize().unwrap();
    let exported = files(&buffer).unwrap();
    assert_eq!(exported.iter().map(|file| file.bytes).sum::<u64>(), 4 * LEN as u64);
    assert!(exported.iter().all(|file| file.offset + file.bytes <= file.chunk_bytes));
    assert_said(&said(&exported, 9), 0, "right: 4800000 B");
    assert_said(&said(&files(&before).unwrap(), 8), 0, "right: 12000 B");

    // With one wrong element, the last, it reports which one.
    let mut content: Vec<u32> = (0..LEN).map(|i| pattern(9, i)).collect();
    content[LEN - 1] ^= 1;
    side.stream.copy_from_host(buffer.write(), &content).unwrap();
    side.stream.synchronize().unwrap();
    assert_said(&said(&exported, 9), 3, &format!("wrong at {}: ", LEN - 1));
    assert_said(&said(&exported, 10), 3, "wrong at 0: ");

    // The files hold the memory: it exists without our buffer.
    side.stream.free(buffer).unwrap();
    side.stream.free(before).unwrap();
    side.device.synchronize().unwrap();
    side.assert_empty();
    assert_said(&said(&exported, 9), 3, &format!("wrong at {}: ", LEN - 1));
}

/// Files in the wrong order, or fewer than the buffer has, are not the buffer.
#[test]
fn a_plain_program_notices_files_that_are_mixed_up() {
    let side = Side::of(device(kind()));
    let buffer = side.stream.alloc::<u32>(&side.pool, 2 * LEN).unwrap();
    copy_in(&side.stream, &buffer, 9).unwrap();
    side.stream.synchronize().unwrap();
    let mut exported = files(&buffer).unwrap();
    if exported.len() < 2 {
        println!("skipped: the buffer lies on one chunk");
        return;
    }
    exported.swap(0, 1);
    let output = said(&exported, 9);
    assert!(matches!(output.status.code(), Some(2 | 3)), "{output:?}");
}

#[test]
fn files_of_a_host_device_hold_its_memory() {
    let side = Side::new();
    let (first, second) = (side.filled(3000, 1), side.filled(LEN, 2));
    for (buffer, seed) in [(&first, 1), (&second, 2)] {
        let mut content: Vec<u8> = Vec::new();
        for MemoryFile { file, offset, bytes, chunk_bytes, .. } in files(buffer).unwrap() {
            let file = File::from(file);
            assert_eq!(file.metadata().unwrap().len(), chunk_bytes);
            let mut part = vec![0; bytes as usize];
            file.read_exact_at(&mut part, offset).unwrap();
            content.append(&mut part);
        }
        let wanted = (0..buffer.len()).flat_map(|i| pattern(seed, i).to_ne_bytes());
        assert!(content.into_iter().eq(wanted));
    }
}

#[test]
fn what_has_no_files_is_refused() {
    let (there, here) = (Side::new(), Side::new());
    let refused = |buffer: &Buffer<u32>| match files(buffer) {
        Err(Error::Share(error)) => *error,
        other => panic!("{other:?}"),
    };
    let plain = there.stream.alloc::<u32>(&there.device.default_pool(), 10).unwrap();
    assert!(matches!(refused(&plain), ShareError::NotShareable { .. }));
    let empty = there.stream.alloc::<u32>(&there.pool, 0).unwrap();
    assert!(matches!(refused(&empty), ShareError::NotExportable { .. }));
    let buffer = there.filled(1000, 1);
    let imported = import(&here.device, &buffer.export().unwrap()).unwrap();
    assert!(matches!(refused(&imported), ShareError::Imported { .. }));
    // Exporting files holds nothing: the buffer is its owner's as before.
    let held: Vec<OwnedFd> = files(&buffer).unwrap().into_iter().map(|it| it.file).collect();
    drop(imported);
    here.device.synchronize().unwrap();
    there.stream.free(buffer).unwrap();
    there.assert_empty();
    drop(held);
}
