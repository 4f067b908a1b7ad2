"""Builds the source distribution, which has the Rust sources, and the wheel: the package with libmillpond.so, and the
command `millpond`, which contains the library that it preloads into programs.

Cargo builds them, from `rust/` in a source distribution, or from the repository that contains this folder. If the
environment's MILLPOND_LIBRARY names a library, that one is used, with the command that MILLPOND_COMMAND names, if any.
MILLPOND_GLIBC=2.17 builds for that version of the GNU C library and later ones, with the linker of `ziglang`.
Without it the wheel requires the newest version among the symbols of this machine's C library that the build uses. The
wheel has no Python extension, so it works with every Python 3.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sysconfig

from setuptools import build_meta as _setuptools

HERE = pathlib.Path(__file__).resolve().parent
PLACE = HERE / "millpond" / "libmillpond.so"
#: The sources in a source distribution.
RUST = HERE / "rust"
#: The crates of the library, and `fakecuda`, which their manifests name for tests.
CRATES = ("core", "driver", "fakecuda", "millpond", "capi", "litmus", "interpose", "cli")


def _cargo(root, packages, **variables):
    """Builds packages. Returns the paths of the built files, by their names."""
    version = os.environ.get("MILLPOND_GLIBC")
    cargo = ["cargo", "zigbuild" if version else "build", "--release", "--message-format=json-render-diagnostics"]
    cargo += [f"--package={package}" for package in packages]
    if version:
        cargo += ["--target", f"x86_64-unknown-linux-gnu.{version}"]
    print(f"building {' and '.join(packages)}: this takes minutes", flush=True)
    try:
        done = subprocess.run(cargo, cwd=root, env={**os.environ, **variables}, stdout=subprocess.PIPE, check=True, text=True)
    except FileNotFoundError:
        raise SystemExit("cargo is not here, which builds libmillpond.so: install Rust, or set MILLPOND_LIBRARY") from None
    paths = {}
    for line in done.stdout.splitlines():
        for path in json.loads(line).get("filenames") or []:
            paths[os.path.basename(path)] = pathlib.Path(path)
    return paths


def _root():
    """Returns the folder with the Rust sources."""
    root = RUST if RUST.exists() else HERE.parent
    if not (root / "crates" / "capi" / "Cargo.toml").exists():
        raise SystemExit("libmillpond.so is not here: set MILLPOND_LIBRARY, or install from the repository")
    return root


def library():
    """Returns the path of the library, and builds it if none is given."""
    given = os.environ.get("MILLPOND_LIBRARY")
    return pathlib.Path(given) if given else _cargo(_root(), ["millpond-capi"])["libmillpond.so"]


def command():
    """Returns the path of the command, and builds it if no library is given. None if only a library is given."""
    if os.environ.get("MILLPOND_LIBRARY"):
        given = os.environ.get("MILLPOND_COMMAND")
        return pathlib.Path(given) if given else None
    root = _root()
    preload = _cargo(root, ["millpond-interpose"])["libmillpond_cuda.so"]
    return _cargo(root, ["millpond-cli"], MILLPOND_PRELOAD=str(preload))["millpond"]


def glibc(library):
    """Returns the newest version of the GNU C library whose symbols a library needs, as (2, 17)."""
    from elftools.elf.elffile import ELFFile

    with open(library, "rb") as file:
        needed = ELFFile(file).get_section_by_name(".gnu.version_r")
        names = [name.name for _, versions in needed.iter_versions() for name in versions] if needed else []
    found = [re.fullmatch(r"GLIBC_([0-9]+)[.]([0-9]+)(?:[.][0-9]+)?", name) for name in names]
    return max((int(it[1]), int(it[2])) for it in found if it)


def platform_tag(files):
    """Returns the wheel's platform tag: the platform of this Python, with the C library that the files need."""
    plain = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    if not plain.startswith("linux_"):
        return plain
    # The first tag is for the C library of 2010.
    major, minor = max([(2, 5), *map(glibc, files)])
    return plain.replace("linux_", f"manylinux_{major}_{minor}_", 1)


def _strip(library):
    """Removes debug data and local names, which are most of the file, if binutils are installed."""
    strip = shutil.which("strip")
    if strip:
        subprocess.run([strip, "--strip-unneeded", str(library)], check=True)


def _place_library():
    """Copies the library into the package. Returns True if it was not there already."""
    found = library()
    if found.resolve() == PLACE:
        return False
    shutil.copyfile(found, PLACE)
    _strip(PLACE)
    return True


def _finish(directory, wheel, platform, command):
    """Adds the command to the wheel, and the platform to its name and metadata: setuptools takes it for pure Python."""
    import base64
    import hashlib
    import zipfile

    old = pathlib.Path(directory) / wheel
    tag = f"py3-none-{platform}"
    new = old.with_name(wheel.replace("py3-none-any", tag))
    with zipfile.ZipFile(old) as source, zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as target:
        records = []

        def put(item, data):
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            records.append(f"{item.filename},sha256={digest},{len(data)}")
            target.writestr(item, data, zipfile.ZIP_DEFLATED)

        for item in source.infolist():
            data = source.read(item)
            if item.filename.endswith(".dist-info/WHEEL"):
                text = data.decode().replace("Tag: py3-none-any", f"Tag: {tag}")
                data = text.replace("Root-Is-Purelib: true", "Root-Is-Purelib: false").encode()
            if item.filename.endswith(".dist-info/RECORD"):
                record = item
                continue
            put(item, data)
        if command:
            name, version = wheel.split("-")[:2]
            item = zipfile.ZipInfo(f"{name}-{version}.data/scripts/millpond")
            item.external_attr = 0o100755 << 16
            put(item, command.read_bytes())
        records.append(f"{record.filename},,")
        target.writestr(record, "\n".join(records) + "\n")
    old.unlink()
    return new.name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    placed = _place_library()
    try:
        found = command()
        platform = platform_tag([PLACE, *([found] if found else [])])
        wheel = _setuptools.build_wheel(wheel_directory, config_settings, metadata_directory)
    finally:
        # It is in the wheel. A copy that stays here would be loaded, out of date, when the folder is used directly.
        if placed:
            PLACE.unlink()
    return _finish(wheel_directory, wheel, platform, found)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    _place_library()
    return _setuptools.build_editable(wheel_directory, config_settings, metadata_directory)


def _place_sources():
    """Copies the Rust sources beside the package. Returns True if they were not there already."""
    root = HERE.parent
    if RUST.exists() or not (root / "crates" / "capi").exists():
        return False
    leave = shutil.ignore_patterns("corpus", "tests", "examples", "docs", "LICENSE-*", "instances")
    for crate in CRATES:
        shutil.copytree(root / "crates" / crate, RUST / "crates" / crate, ignore=leave)
    manifest = (root / "Cargo.toml").read_text(encoding="utf-8")
    # Cargo would look for crates that are not copied.
    own = [line for line in manifest.splitlines() if "crates/" not in line or any(f"crates/{it}\"" in line for it in CRATES)]
    text = "\n".join(own).replace("[workspace]", '[workspace]\nmembers = ["crates/*"]', 1)
    (RUST / "Cargo.toml").write_text(text + "\n", encoding="utf-8")
    shutil.copyfile(root / "Cargo.lock", RUST / "Cargo.lock")
    return True


def build_sdist(sdist_directory, config_settings=None):
    placed = _place_sources()
    try:
        return _setuptools.build_sdist(sdist_directory, config_settings)
    finally:
        if placed:
            shutil.rmtree(RUST)


get_requires_for_build_sdist = _setuptools.get_requires_for_build_sdist
get_requires_for_build_editable = _setuptools.get_requires_for_build_editable
prepare_metadata_for_build_wheel = _setuptools.prepare_metadata_for_build_wheel
prepare_metadata_for_build_editable = _setuptools.prepare_metadata_for_build_editable


def get_requires_for_build_wheel(config_settings=None):
    linker = ["cargo-zigbuild>=0.20", "ziglang"] if os.environ.get("MILLPOND_GLIBC") else []
    return [*_setuptools.get_requires_for_build_wheel(config_settings), *linker]
