//! The install script in a folder of its own: what is there can be compiled against by way of pkg-config, shared and
//! static.

mod common;

use std::path::Path;
use std::process::Command;

use common::{library_folder, run};

fn pkg_config(prefix: &Path, arguments: &[&str]) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")).args(arguments).arg("millpond");
    run(&mut command, "pkg-config").split_whitespace().map(str::to_owned).collect()
}

#[test]
fn an_installed_library_is_found_by_pkg_config() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (prefix, target) = (folder.join("prefix"), library_folder().parent().expect("a profile is in a folder"));
    let mut install = Command::new(root.join("install"));
    install.arg("--prefix").arg(&prefix).args(["--profile", "dev"]).arg("--target-dir").arg(target);
    run(&mut install, "install");
    assert_eq!(pkg_config(&prefix, &["--modversion"]), [env!("CARGO_PKG_VERSION")]);

    let example = root.join("examples/mixed_frees.c");
    let compile = |name: &str, libraries: &[String]| {
        let target = folder.join(name);
        let mut compiler = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
        compiler.arg(&example).args(pkg_config(&prefix, &["--cflags"])).args(libraries).arg("-o").arg(&target);
        run(&mut compiler, "the C compiler");
        target
    };
    let shared = compile("shared", &pkg_config(&prefix, &["--libs"]));
    let mut program = Command::new(shared);
    assert!(run(program.env("LD_LIBRARY_PATH", prefix.join("lib")), "shared").contains("freed at once"));

    let mut libraries = vec![prefix.join("lib/libmillpond.a").display().to_string()];
    let private = pkg_config(&prefix, &["--libs", "--static"]);
    libraries.extend(private.into_iter().filter(|it| it != "-lmillpond"));
    assert!(run(&mut Command::new(compile("static", &libraries)), "static").contains("freed at once"));
}
