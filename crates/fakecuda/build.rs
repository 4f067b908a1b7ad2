//! As the real library does, it finds its own functions in itself, whatever is preloaded.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
}
