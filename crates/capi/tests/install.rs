//! The install script in a folder of its own: the result can be compiled against with pkg-config and with CMake, shared
//! and static, in C and in C++.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use common::{library_folder, run};

fn pkg_config(prefix: &Path, arguments: &[&str]) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")).args(arguments).arg("millpond");
    run(&mut command, "pkg-config").split_whitespace().map(str::to_owned).collect()
}

/// Returns the folder where the library is installed, once for all tests.
fn installed() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("prefix");
        let target = library_folder().parent().expect("a profile is in a folder");
        let mut install = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("install"));
        install.arg("--prefix").arg(&prefix).args(["--profile", "dev"]).arg("--target-dir").arg(target);
        run(&mut install, "install");
        prefix
    })
}

const LISTS: &str = r#"
cmake_minimum_required(VERSION 3.16)
project(uses_millpond LANGUAGES C CXX)
find_package(millpond 0.1 REQUIRED)
add_executable(shared ${EXAMPLE})
target_link_libraries(shared millpond::millpond)
add_executable(static ${EXAMPLE})
target_link_libraries(static millpond::static)
add_executable(cxx beside.cpp)
target_link_libraries(cxx millpond::millpond dl)
find_package(millpond 0.2 QUIET)
if(millpond_FOUND)
    message(FATAL_ERROR "0.1 was taken for 0.2")
endif()
"#;

/// C++ together with the system's own header for loading libraries, with the version at compile time.
const BESIDE: &str = r#"
#include <dlfcn.h>
#include <millpond.h>
#include <cstdio>
#if MILLPOND_VERSION_MAJOR != 0 || MILLPOND_VERSION_MINOR < 1
#error "an unknown version"
#endif
int main() {
    std::printf("%d.%d.%d %s %d\n", MILLPOND_VERSION_MAJOR, MILLPOND_VERSION_MINOR, MILLPOND_VERSION_PATCH,
                millpond_version(), dlsym(RTLD_DEFAULT, "millpond_version") != nullptr);
}
"#;

#[test]
fn an_installed_library_is_found_by_cmake() {
    if Command::new("cmake").arg("--version").output().is_err() {
        eprintln!("skipped: cmake is not installed");
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cmake");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("CMakeLists.txt"), LISTS).expect("it can be written");
    std::fs::write(folder.join("beside.cpp"), BESIDE).expect("it can be written");
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/mixed_frees.c");
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(&folder).arg("-B").arg(folder.join("build"));
    configure.arg(format!("-DCMAKE_PREFIX_PATH={}", installed().display()));
    configure.arg(format!("-DEXAMPLE={}", example.display()));
    run(&mut configure, "cmake");
    run(Command::new("cmake").arg("--build").arg(folder.join("build")), "cmake --build");
    for program in ["shared", "static"] {
        assert!(run(&mut Command::new(folder.join("build").join(program)), program).contains("freed at once"));
    }
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(run(&mut Command::new(folder.join("build/cxx")), "cxx"), format!("{version} {version} 1\n"));
}

/// Valgrind simulates the processor and gives the program other facts about the system than it has itself.
#[test]
fn an_example_runs_under_valgrind() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("skipped: valgrind is not installed");
        return;
    }
    let (prefix, program) = (installed(), Path::new(env!("CARGO_TARGET_TMPDIR")).join("valgrind"));
    let mut compiler = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    compiler.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/mixed_frees.c")).arg("-o").arg(&program);
    compiler.args(pkg_config(prefix, &["--cflags", "--libs"]));
    run(&mut compiler, "the C compiler");
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--error-exitcode=9", "-q"]).arg(program).env("LD_LIBRARY_PATH", prefix.join("lib"));
    assert!(run(&mut valgrind, "valgrind").contains("freed at once"));
}

#[test]
fn an_installed_library_is_found_by_pkg_config() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (folder, prefix) = (Path::new(env!("CARGO_TARGET_TMPDIR")), installed());
    assert_eq!(pkg_config(prefix, &["--modversion"]), [env!("CARGO_PKG_VERSION")]);

    let example = root.join("examples/mixed_frees.c");
    let compile = |name: &str, libraries: &[String]| {
        let target = folder.join(name);
        let mut compiler = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
        compiler.arg(&example).args(pkg_config(prefix, &["--cflags"])).args(libraries).arg("-o").arg(&target);
        run(&mut compiler, "the C compiler");
        target
    };
    let shared = compile("shared", &pkg_config(prefix, &["--libs"]));
    let mut program = Command::new(shared);
    assert!(run(program.env("LD_LIBRARY_PATH", prefix.join("lib")), "shared").contains("freed at once"));

    let mut libraries = vec![prefix.join("lib/libmillpond.a").display().to_string()];
    let private = pkg_config(prefix, &["--libs", "--static"]);
    libraries.extend(private.into_iter().filter(|it| it != "-lmillpond"));
    assert!(run(&mut Command::new(compile("static", &libraries)), "static").contains("freed at once"));
}
