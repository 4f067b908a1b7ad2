//! The files of a check: JSON, SARIF, text, and rules for findings that are not wanted.

use serde_json::Value;

use super::*;

/// Checks a program with options. Returns the output, and the files that were asked for in a folder of its own.
fn check_with(options: &[&str], way: &str, words: &[&str]) -> (Output, PathBuf) {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let folder = PLACE.join(format!("reports-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
    fs::create_dir_all(&folder).unwrap();
    let mut command = command();
    command.current_dir(&folder).arg("check").args(options).arg("--").arg(PLACE.join(way)).args(words);
    (command.output().unwrap(), folder)
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn json_has_the_findings_with_both_lines() {
    let (output, folder) = check_with(&["--json", "found.json"], "linked", &["2"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "done\n", "standard output is the program's");
    assert_eq!(kinds(&output), ["free-before-use"], "findings are printed, too");
    let it = json(&folder.join("found.json"));
    assert_eq!((&it["status"], &it["signal"]), (&Value::from(0), &Value::Null));
    assert_eq!(it["program"][1], "2");
    assert_eq!((it["violations"].as_u64(), it["suppressed"].as_u64()), (Some(1), Some(0)));
    let found = &it["findings"][0];
    assert_eq!((found["kind"].as_str(), found["count"].as_u64()), (Some("free-before-use"), Some(1)));
    let place = |side: &Value| {
        let file = side["file"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
        format!("{file}:{}", side["line"])
    };
    assert_eq!(place(&found["later"]), place_of("/* wrong 2 */"));
    assert_eq!(place(&found["earlier"]), place_of("/* a launch */"));
    assert_eq!(found["later"]["function"], "freed_while_used");
    assert_eq!(found["earlier"]["kernel"], "touch_kernel", "the kernel of the earlier side");
    assert_eq!(found["allocation"]["bytes"], 4096);
    assert!(found["help"].as_str().unwrap().contains("make stream"), "{found}");
    let note = found["notes"][0].as_str().unwrap();
    assert!(note.contains(", allocated at ") && note.ends_with(" (alloc)"), "{note}");
    let calls = format!("in the driver API: `cuEventRecord(event, stream_2)` after {}", place_of("/* a launch */"));
    assert!(found["calls"].as_str().unwrap().replace(&found_folder(found), "").starts_with(&calls), "{found}");
    assert_eq!((it["coverage"]["processes"].as_u64(), it["coverage"]["launches"].as_u64()), (Some(1), Some(1)));
    let said = text(&output.stderr);
    assert!(said.contains("(launch), kernel touch_kernel"), "{said}");
    let created = said.lines().filter(|line| line.contains("= note: stream ") && line.contains(", created at "));
    assert_eq!(created.count(), 2, "{said}");
}

/// Returns the folder of the file that a finding names first.
fn found_folder(found: &Value) -> String {
    let file = found["earlier"]["file"].as_str().unwrap();
    file[..file.rfind('/').map_or(0, |at| at + 1)].to_owned()
}

/// Several processes are one file, and the same mistake at the same places is one entry.
#[test]
fn processes_are_one_file() {
    let (output, folder) = check_with(&["--json", "a.json", "--sarif", "a.sarif"], "linked", &["many"]);
    assert_eq!(output.status.code(), Some(1));
    let it = json(&folder.join("a.json"));
    assert_eq!((it["violations"].as_u64(), it["findings"].as_array().map(Vec::len)), (Some(1000), Some(1)));
    assert_eq!(it["findings"][0]["count"], 1000);
    assert_eq!(json(&folder.join("a.sarif"))["runs"][0]["results"][0]["occurrenceCount"], 1000);
    let script = format!("{0} 2; {0} 3", PLACE.join("linked").display());
    let mut command = command();
    command.current_dir(&folder).args(["check", "--json", "b.json", "--", "sh", "-c", &script]);
    assert_eq!(command.output().unwrap().status.code(), Some(1));
    let it = json(&folder.join("b.json"));
    let kinds: Vec<&Value> = it["findings"].as_array().unwrap().iter().map(|found| &found["kind"]).collect();
    assert_eq!(kinds, ["free-before-alloc", "free-before-use"]);
    assert_eq!(it["coverage"]["processes"], 2);
}

#[test]
fn a_program_without_a_finding_has_files_without_one() {
    let (output, folder) = check_with(&["--json", "a.json", "--sarif", "a.sarif"], "linked", &["9"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(json(&folder.join("a.json"))["findings"], Value::Array(Vec::new()));
    let log = json(&folder.join("a.sarif"));
    assert_eq!(log["runs"][0]["results"], Value::Array(Vec::new()));
    sarif::validate(&log);
}

/// The program's own status and signal are in the files, and are passed on.
#[test]
fn the_status_of_the_program_is_in_the_files() {
    let (output, folder) = check_with(&["--json", "a.json", "--sarif", "a.sarif"], "linked", &["2", "42"]);
    assert_eq!(output.status.code(), Some(42));
    assert_eq!(json(&folder.join("a.json"))["status"], 42);
    let log = json(&folder.join("a.sarif"));
    let invocation = &log["runs"][0]["invocations"][0];
    assert_eq!((&invocation["exitCode"], &invocation["executionSuccessful"]), (&42.into(), &false.into()));
    sarif::validate(&log);
    let (output, folder) = check_with(&["--json", "a.json", "--sarif", "a.sarif"], "linked", &["crash"]);
    assert_eq!(output.status.signal(), Some(11));
    assert_eq!(
        (&json(&folder.join("a.json"))["signal"], &json(&folder.join("a.json"))["status"]),
        (&11.into(), &Value::Null)
    );
    sarif::validate(&json(&folder.join("a.sarif")));
}

#[test]
fn sarif_has_results_on_the_programs_lines() {
    for program in ["2", "5", "8", "watchdog"] {
        let (output, folder) = check_with(&["--sarif", "a.sarif"], "by-runtime", &[program]);
        assert_eq!(output.status.code(), Some(1), "{program}: {}", text(&output.stderr));
        let log = json(&folder.join("a.sarif"));
        sarif::validate(&log);
        let run = &log["runs"][0];
        let result = &run["results"][0];
        let rule = result["ruleIndex"].as_u64().unwrap() as usize;
        assert_eq!(run["tool"]["driver"]["rules"][rule]["id"], result["ruleId"]);
        let place = &result["locations"][0]["physicalLocation"];
        assert!(place["region"]["startLine"].as_u64().unwrap() > 1);
        let uri = place["artifactLocation"]["uri"].as_str().unwrap();
        assert!(["program.c", "helpers.h"].iter().any(|file| uri.ends_with(file)), "{uri}");
    }
    let (_, folder) = check_with(&["--sarif", "a.sarif"], "linked", &["2"]);
    let result = json(&folder.join("a.sarif"))["runs"][0]["results"][0].clone();
    let line = |place: &Value| {
        let place = &place["physicalLocation"];
        let file = place["artifactLocation"]["uri"].as_str().unwrap().rsplit('/').next().unwrap();
        format!("{file}:{}", place["region"]["startLine"])
    };
    assert_eq!(line(&result["locations"][0]), place_of("/* wrong 2 */"));
    assert_eq!(line(&result["relatedLocations"][0]), place_of("/* a launch */"));
    assert!(result["relatedLocations"][0]["message"]["text"].as_str().unwrap().ends_with("kernel touch_kernel"));
    assert!(result["message"]["text"].as_str().unwrap().contains("cuStreamWaitEvent("), "{result}");
    // Without debug data there is a function, and no file.
    let (_, folder) = check_with(&["--sarif", "a.sarif"], "bare", &["2"]);
    let log = json(&folder.join("a.sarif"));
    sarif::validate(&log);
    let place = &log["runs"][0]["results"][0]["locations"][0];
    assert!(place["physicalLocation"].is_null() && place["logicalLocations"][0]["fullyQualifiedName"].is_string());
}

#[test]
fn the_text_goes_to_a_file() {
    let (output, folder) = check_with(&["-o", "findings.txt"], "linked", &["2"]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(1), String::new()));
    let said = fs::read_to_string(folder.join("findings.txt")).unwrap();
    assert!(
        said.starts_with("millpond: error[free-before-use]: ") && said.contains("1 violation at 1 place"),
        "{said}"
    );
    let (_, folder) = check_with(&["-o", "findings.txt"], "linked", &["9"]);
    let said = fs::read_to_string(folder.join("findings.txt")).unwrap();
    assert!(said.starts_with("millpond: no violation in 1 process"), "{said}");
}

#[test]
fn what_a_rule_matches_is_left_out() {
    let rules = |text: &str| {
        let path = PLACE.join(format!("rules-{:x}.txt", text.len()));
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let file = rules("# known\nkind=free-before-use function=freed_while_used\nfile=nowhere.c\n");
    let (output, folder) = check_with(&["--suppressions", &file, "--json", "a.json"], "linked", &["2"]);
    let said = text(&output.stderr);
    assert_eq!((kinds(&output), output.status.code()), (vec![], Some(0)), "{said}");
    assert!(said.contains("no violation in 1 process"), "{said}");
    assert!(said.contains(&format!("suppressed 1 violation: {file}:2")), "{said}");
    assert!(said.contains(&format!("suppressed nothing: {file}:3: file=nowhere.c")), "{said}");
    let it = json(&folder.join("a.json"));
    assert_eq!((it["suppressed"].as_u64(), it["violations"].as_u64()), (Some(1), Some(0)));
    let (output, _) = check_with(&["--suppressions", &file], "linked", &["2", "42"]);
    assert_eq!(output.status.code(), Some(42));
    let other = rules("kernel=touch_*\nkind=leak");
    for (program, status) in [("2", 0), ("3", 1)] {
        let (output, _) = check_with(&["--suppressions", &other], "linked", &[program]);
        assert_eq!(output.status.code(), Some(status), "{program}: {}", text(&output.stderr));
    }
    let (output, _) = check_with(&["--suppressions", &rules("function=no_*\n\n\n")], "linked", &["many"]);
    assert!(text(&output.stderr).contains("1000 violations at 1 place"), "{}", text(&output.stderr));
}

/// Code without symbols is named by its place in the module, which is the same in each process.
#[test]
fn places_without_symbols_are_the_same_in_each_run() {
    let script = format!("for n in 1 2 3; do {} 2; done", PLACE.join("bare").display());
    let folder = PLACE.join("same-places");
    fs::create_dir_all(&folder).unwrap();
    let mut command = command();
    command.current_dir(&folder).args(["check", "--json", "a.json", "--", "sh", "-c", &script]);
    let output = command.output().unwrap();
    let it = json(&folder.join("a.json"));
    let findings = it["findings"].as_array().unwrap();
    assert_eq!((findings.len(), &findings[0]["count"]), (1, &Value::from(3)), "{}", text(&output.stderr));
    let places = findings[0].to_string();
    assert!(places.contains("\"+0x") && places.contains(" (bare)\""), "an offset in the module: {places}");
}

/// The printed rules, and no others, suppress what was found.
#[test]
fn printed_rules_suppress_what_was_found() {
    for program in ["1", "2", "3", "6", "8", "double-free"] {
        let (output, folder) = check_with(&["--print-suppressions"], "linked", &[program]);
        let said = text(&output.stderr);
        let (_, rules) = said.split_once("millpond: rules for --suppressions:\n").expect("rules");
        let rules: Vec<&str> = rules.lines().take_while(|line| line.starts_with("kind=")).collect();
        assert!(!rules.is_empty(), "{said}");
        fs::write(folder.join("rules.txt"), rules.join("\n")).unwrap();
        let file = folder.join("rules.txt").to_str().unwrap().to_owned();
        let (output, _) = check_with(&["--suppressions", &file, "--print-suppressions"], "linked", &[program]);
        let said = text(&output.stderr);
        assert_eq!((kinds(&output), output.status.code()), (vec![], Some(0)), "{program}: {said}");
        assert!(!said.contains("suppressed nothing") && !said.contains("rules for"), "{said}");
    }
}

#[test]
fn files_that_cannot_be_used_are_refused_before_the_program_runs() {
    let refused = |options: &[&str], expected: &str| {
        let (output, _) = check_with(options, "linked", &["2"]);
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), String::new()), "{options:?}: {said}");
        assert!(said.contains(expected), "{options:?}: {said}");
    };
    refused(&["--json", "no/such/folder/a.json"], "no/such/folder/a.json: cannot be written");
    refused(&["--json"], "--json needs a file here: standard output is the program's");
    refused(&["--sarif", "/"], "a directory: a report is written to a file");
    refused(&["--sarif", PLACE.join("linked").to_str().unwrap()], "it is the program");
    refused(&["-o", "a", "--json", "./a"], "it is read or written already");
    refused(&["-o", "a", "--json", "../reports-0/../reports-0/a", "--sarif", "../reports-0/a"], "written already");
    refused(&["--suppressions", "none.txt"], "none.txt: cannot be read");
    let wrong = PLACE.join("wrong-rules.txt");
    fs::write(&wrong, "kind=free-before-use\nfil=a.c\n").unwrap();
    let wrong = wrong.to_str().unwrap();
    refused(&["--suppressions", wrong], &format!("{wrong}:2: there is no field `fil`"));
    refused(&["--suppressions", wrong, "-o", wrong], "there is no field");
    assert_eq!(fs::read_to_string(wrong).unwrap(), "kind=free-before-use\nfil=a.c\n", "it is not written to");
}
