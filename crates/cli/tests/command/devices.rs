//! `millpond devices` on a machine without CUDA, and with a fake one.

use std::process::Command;

use serde_json::Value;

/// Returns the command's output. Its status is success with any devices.
fn devices(words: &[&str], settings: &[(&str, &str)]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millpond"));
    let output =
        command.arg("devices").args(words).envs(settings.iter().copied()).output().expect("the command starts");
    assert!(output.status.success() && output.stderr.is_empty());
    String::from_utf8(output.stdout).expect("the output is text")
}

fn json(settings: &[(&str, &str)]) -> Value {
    serde_json::from_str(&devices(&["--json"], settings)).expect("the output is JSON")
}

fn fake() -> String {
    fakecuda::library().display().to_string()
}

#[test]
fn without_cuda_it_says_what_is_missing() {
    let nowhere = [("MILLPOND_LIBCUDA", "/nowhere/libcuda.so.1")];
    let text = devices(&[], &nowhere);
    assert!(text.starts_with("host  64.00 GiB by default"), "{text}");
    assert!(text.contains("threads as streams: needs no GPU"), "{text}");
    assert!(text.contains("cuda  not here: the driver library is missing (/nowhere/libcuda.so.1: "), "{text}");
    assert!(text.contains("  help: without CUDA, `check FILE`, `view`, `replay` and `plan` work"), "{text}");
    let report = json(&nowhere);
    assert_eq!(report["built_in"][0]["name"], "host");
    assert!(report["cuda"]["library"].is_null() && report["cuda"]["devices"].as_array().unwrap().is_empty());
    assert!(report["cuda"]["missing"].as_str().unwrap().contains("install the NVIDIA driver"));
}

#[test]
fn devices_are_listed_with_what_they_lack() {
    let library = fake();
    let settings = [
        ("MILLPOND_LIBCUDA", &*library),
        ("FAKECUDA_DEVICES", "2"),
        ("FAKECUDA_BYTES", "8589934592"),
        ("FAKECUDA_IPC_EVENTS", "0"),
    ];
    let report = json(&settings);
    let devices_found = report["cuda"]["devices"].as_array().unwrap();
    assert_eq!((devices_found.len(), &report["cuda"]["version"]), (2, &"13.0".into()));
    assert_eq!(devices_found[1]["name"], "fakecuda 1");
    assert_eq!(devices_found[1]["total_bytes"], 8_u64 << 30);
    assert_eq!(devices_found[1]["missing"].as_array().unwrap().len(), 1);
    let text = devices(&[], &settings);
    assert!(!text.contains("without CUDA"), "nothing is missing: {text}");
    assert!(text.contains("cuda 1  fakecuda 1, 8.00 GiB, capability 9.0; without events between processes"), "{text}");
}

#[test]
fn a_driver_without_devices_says_so() {
    let none = [("MILLPOND_LIBCUDA", &*fake()), ("FAKECUDA_DEVICES", "0")];
    assert_eq!(json(&none)["cuda"]["missing"], "no device is visible");
    let broken = [("MILLPOND_LIBCUDA", &*fake()), ("FAKECUDA_FAIL", "cuInit@0=100")];
    let report = json(&broken);
    assert!(report["cuda"]["missing"].as_str().unwrap().contains("CUDA_ERROR_NO_DEVICE (100)"), "{report}");
    assert_eq!(report["cuda"]["version"], "13.0");
}
