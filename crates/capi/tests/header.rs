//! The checked-in header equals the one that the source gives. `MILLPOND_WRITE_HEADER=1 cargo test -p millpond-capi
//! --test header` writes it.

use std::path::Path;

#[test]
fn the_header_is_current() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = root.join("include/millpond.h");
    let mut fresh = Vec::new();
    cbindgen::generate(root).expect("the source parses").write(&mut fresh);
    let fresh = String::from_utf8(fresh).expect("it is text");
    if std::env::var_os("MILLPOND_WRITE_HEADER").is_some() {
        std::fs::write(&path, &fresh).expect("the header can be written");
    }
    let kept = std::fs::read_to_string(&path).expect("the header is there");
    assert!(kept == fresh, "millpond.h is not current: run with MILLPOND_WRITE_HEADER=1 and look at the change");
}
