//! The Python package over host devices, by its own tests. Tests that need PyTorch, CuPy or a GPU print that they are
//! skipped.

mod common;

use std::path::Path;
use std::process::Command;

use common::library_folder;

#[test]
fn the_python_package_passes_its_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python");
    let mut python = Command::new("python3");
    python.args(["-B", "-m", "unittest", "discover", "-v", "-s", "tests"]).current_dir(root);
    python.env("MILLPOND_LIBRARY", library_folder().join("libmillpond.so"));
    let output = python.output().expect("python3 is there");
    let said = String::from_utf8_lossy(&output.stderr);
    println!("{said}");
    assert!(output.status.success() && said.contains("test_a_block_comes_back"), "{said}");
}
