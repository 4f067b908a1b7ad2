//! `millpond plan` from arguments to files, output and status.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use millpond_cli::{Status, plan, run};
use millpond_plan::{Plan, verify};
use serde_json::Value;

/// Makes a folder for one test.
fn folder(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("plan").join(test);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn bundled(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files/instances").join(name).display().to_string()
}

/// Runs the command. Returns status, output and errors.
fn millpond(words: &[&str]) -> (Status, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let words = ["millpond", "plan"].iter().chain(words).map(OsString::from);
    let status = run(words, &|_| unreachable!("nothing is served"), &mut out, &mut err).unwrap();
    let text = |bytes: Vec<u8>| anstream::adapter::strip_bytes(&bytes).into_vec();
    (status, String::from_utf8(text(out)).unwrap(), String::from_utf8(text(err)).unwrap())
}

/// Checks a table of offsets against the table it was made from; returns the highest byte used.
fn check(table: &str, offsets: &str) -> u64 {
    let instance = plan::read(table.as_bytes()).unwrap();
    let mut lines = offsets.lines();
    assert_eq!(lines.next(), Some("id,lower,upper,size,offset"));
    let offsets: Vec<u64> = lines.map(|line| line.rsplit(',').next().unwrap().parse().unwrap()).collect();
    let ends = instance.rows.iter().zip(&offsets).map(|(row, offset)| row.buffer.bytes + offset);
    let capacity = ends.max().unwrap();
    assert_eq!(verify(&instance.problem, &Plan { offsets, capacity }), Ok(()));
    capacity
}

#[test]
fn a_bundled_instance_is_placed_within_its_capacity() {
    let folder = folder("bundled");
    let (table, offsets, svg) = (bundled("quilt.1048576.csv"), folder.join("offsets.csv"), folder.join("plan.svg"));
    let (to, picture) = (offsets.display().to_string(), svg.display().to_string());
    let (status, out, err) = millpond(&[&table, "--capacity", "1MiB", "-o", &to, "--svg", &picture]);
    assert_eq!((status, err.as_str()), (Status::Fine, ""), "{out}");
    assert!(out.contains("120 buffers") && out.contains("within the 1048576 B (1.00 MiB) asked for"), "{out}");
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    assert_eq!(check(&read(Path::new(&table)), &read(&offsets)), 1 << 20);
    assert_eq!(read(&svg).matches("<rect class=\"b\"").count(), 120);

    // The output can be read again, with a note about its column `offset`.
    let (status, _, err) = millpond(&[&to, "--quick"]);
    assert_eq!(status, Status::Fine);
    assert!(err.contains("note: ") && err.contains("`offset` is passed over"), "{err}");
}

#[test]
fn without_a_file_the_offsets_go_out_and_the_report_does_not() {
    let table = bundled("patch.12288.csv");
    let (status, out, err) = millpond(&[&table]);
    assert_eq!(status, Status::Fine);
    assert_eq!(check(&std::fs::read_to_string(&table).unwrap(), &out), 12288);
    assert!(err.contains("no plan needs less"), "{err}");
}

/// A name with commas and quotes is kept, and the plan can be planned again.
#[test]
fn quoted_names_come_out_as_they_went_in() {
    let table = "id,lower,upper,size\n\"layer 1, \"\"weights\"\"\",0,2,16\nb,1,3,16\n";
    let planned = |table: &str| {
        let file = folder("quoted").join("table.csv");
        std::fs::write(&file, table).unwrap();
        let (status, out, err) = millpond(&["--quick", &file.display().to_string()]);
        assert_eq!(status, Status::Fine, "{err}");
        out
    };
    let first = planned(table);
    assert!(first.contains("\n\"layer 1, \"\"weights\"\"\",0,2,16,") && first.contains("\nb,1,3,16,"), "{first}");
    assert_eq!(planned(&first), first);
}

#[test]
fn the_table_and_the_picture_are_two_files() {
    let both = std::env::temp_dir().join(format!("millpond-both-{}", std::process::id()));
    let both = both.to_str().unwrap();
    let (status, _, err) = millpond(&[&bundled("patch.12288.csv"), "-o", both, "--svg", both]);
    assert!(status == Status::BadInput && err.contains("read or written already"), "{err}");
    assert!(std::fs::read_to_string(both).unwrap().starts_with("id,lower"));
    std::fs::remove_file(both).unwrap();
}

#[test]
fn a_capacity_out_of_reach_is_told_with_what_is_possible() {
    let table = bundled("patch.12288.csv");
    let (status, out, _) = millpond(&[&table, "--capacity", "12287", "--json"]);
    assert_eq!(status, Status::Found);
    let it: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&it["capacity_bytes"], &it["bound_bytes"]), (&12288.into(), &12288.into()));
    assert_eq!((&it["asked_bytes"], &it["proven"], &it["gap_bytes"]), (&12287.into(), &true.into(), &0.into()));
    assert_eq!(it["offsets"].as_array().unwrap().len(), 25);
    let (_, _, err) = millpond(&[&table, "--capacity", "12287"]);
    assert!(err.contains("12287 B (12.00 KiB) is impossible"), "{err}");

    // First fit alone does not find the best plan.
    let (status, _, err) = millpond(&[&table, "--capacity", "12288", "--quick"]);
    assert_eq!(status, Status::Found);
    assert!(err.contains("12288 B (12.00 KiB) not reached") && err.contains("% of the bound"), "{err}");
}

#[test]
fn time_is_kept() {
    // Sizes with no common unit in many overlapping lifetimes: far too many plans to try them all, and none meets the
    // bound.
    let rows =
        (0..400).map(|i| format!("{i},{},{},{}\n", i * 3 % 601, i * 3 % 601 + 40 + i % 83, 1000 + i * 7919 % 4001));
    let table = folder("time").join("ladder.csv");
    std::fs::write(&table, ["id,lower,upper,size\n".to_owned()].into_iter().chain(rows).collect::<String>()).unwrap();
    let began = std::time::Instant::now();
    let (status, out, err) = millpond(&[&table.display().to_string(), "--seconds", "0.3"]);
    assert_eq!(status, Status::Fine, "{err}");
    assert!(began.elapsed().as_secs_f64() < 10.0);
    check(&std::fs::read_to_string(&table).unwrap(), &out);
}

#[test]
fn bad_input_is_named_by_file_line_and_column() {
    let table = folder("bad").join("bad.csv");
    let name = table.display().to_string();
    std::fs::write(&table, "id,lower,upper,size\na,0,9,4\nb,5,5,4\n").unwrap();
    let (status, out, err) = millpond(&[&name]);
    assert_eq!((status, out.as_str()), (Status::BadInput, ""));
    assert!(err.starts_with(&format!("error: {name}: line 3: column `upper`: 5 is not above `lower`, 5")), "{err}");

    for (words, part) in [
        (vec!["no/such/file"], "no/such/file: cannot be opened"),
        (vec![name.as_str(), "--capacity", "some"], "64MiB"),
        (vec![name.as_str(), "--seconds=-1"], "seconds such as 10"),
        (vec!["-o", "-"], "it is not a file that can be written here"),
        (vec![], "<FILE>"),
    ] {
        let (status, out, err) = millpond(&words);
        assert_eq!((status, out.as_str()), (Status::BadInput, ""), "{err}");
        assert!(err.contains(part), "{err}");
    }
    let (status, _, err) = millpond(&[&bundled("patch.12288.csv"), "-o", "no/such/folder/x.csv"]);
    assert_eq!(status, Status::BadInput);
    assert!(err.starts_with("error: no/such/folder/x.csv: cannot be written: "), "{err}");
}

/// First fit alone takes most of a minute here.
#[test]
fn the_time_to_search_holds_for_what_comes_before_the_search_too() {
    let count = 60_000_u64;
    let mut state = 3_u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    };
    let mut table = String::from("id,lower,upper,size\n");
    for id in 0..count {
        let lower = random(count);
        table += &format!("{id},{lower},{},{}\n", lower + 1 + random(count / 10), 64 * (1 + random(1000)));
    }
    let folder = folder("many");
    let (file, out) = (folder.join("many.csv"), folder.join("many.out.csv"));
    std::fs::write(&file, table).unwrap();
    let began = std::time::Instant::now();
    let path = |path: &Path| path.display().to_string();
    let (status, _, error) = millpond(&[&path(&file), "--seconds", "1", "-o", &path(&out)]);
    assert_eq!(status, Status::Fine, "{error}");
    assert!(began.elapsed().as_secs() < 15, "it took {:?}", began.elapsed());
    assert_eq!(std::fs::read_to_string(&out).unwrap().lines().count() as u64, count + 1);
}
