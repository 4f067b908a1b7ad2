//! The code that the examples share: a device, or the notice that there is none; the toolkit's libraries; a check.

// Each example uses its own part of this file.
#![allow(dead_code)]

use std::path::PathBuf;

use millpond_cudarc::Context;

/// The result of an example.
pub(crate) type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Returns the first CUDA device. If there is none, prints that: the example has nothing to show.
pub(crate) fn context() -> Option<Context> {
    match Context::open(0) {
        Ok(context) => {
            println!("device 0: {}", context.device().properties().name);
            Some(context)
        }
        Err(error) => {
            println!("nothing to show: there is no CUDA device here ({error})");
            None
        }
    }
}

/// Loads a library of the CUDA toolkit, so that cudarc finds it loaded when it loads it by its plain name. Searches the
/// paths of the system's loader, then `CUDA_HOME` and `CUDA_PATH`, then the usual places of the toolkit. Returns `true`
/// if the library was found: without it cudarc would panic.
pub(crate) fn load(library: &str) -> bool {
    let homes = ["CUDA_HOME", "CUDA_PATH"].iter().filter_map(std::env::var_os).map(PathBuf::from);
    let homes = homes.chain([PathBuf::from("/usr/local/cuda"), PathBuf::from("/usr/local/cuda-13.0")]);
    let folders = homes.flat_map(|home| [home.join("lib64"), home.join("targets/x86_64-linux/lib"), home.join("lib")]);
    let file = format!("lib{library}.so.13");
    let files = std::iter::once(PathBuf::from(&file)).chain(folders.map(|folder| folder.join(&file)));
    for path in files {
        // SAFETY: it is a library of the toolkit, which may be loaded at any time.
        if let Ok(loaded) = unsafe { libloading::Library::new(&path) } {
            println!("{library}: {}", path.display());
            // Never unloaded.
            std::mem::forget(loaded);
            return true;
        }
    }
    println!("nothing to show: {file} is not found here; say by CUDA_HOME or LD_LIBRARY_PATH where it is");
    false
}

/// Prints one line about one check.
pub(crate) fn report(what: &str, is_right: bool) -> Outcome {
    println!("{} {what}", if is_right { "ok   " } else { "WRONG" });
    if is_right { Ok(()) } else { Err(format!("not so: {what}").into()) }
}
