//! Says in one line where Millpond does not run, before the compiler says it in hundreds.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let system = std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    if system != "linux" {
        println!(
            "cargo::error=Millpond runs on Linux only, not on {system}: its devices are made of memfd, mmap and \
             membarrier. WSL 2 and virtual machines have them"
        );
    }
}
