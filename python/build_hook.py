"""Builds the source distribution, with the Rust sources in it, and the wheel: the package with libmillpond.so, and the
command `millpond`, which carries the library that it preloads into programs.

All are built by cargo: from `rust/` in a source distribution, or from the repository that this folder is in. Where the
environment's MILLPOND_LIBRARY names a library, that is taken, with the command that MILLPOND_COMMAND names, if it names
one. MILLPOND_GLIBC=2.17 builds for that version of the GNU C library and later ones, by the linker of `ziglang`; without
it the wheel is for as old ones as the symbols of this machine's C library allow. The wheel holds no Python extension, so
that it is good for every Python 3.
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
#: The crates that the library is built of, and `fakecuda`, which their manifests name for tests.
CRATES = ("core", "driver", "fakecuda", "millpond", "capi", "litmus", "interpose", "cli")


def _cargo(root, packages, **variables):
    """Builds packages; the paths of what came of them, by their names."""
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
    """The folder with the Rust sources."""
    root = RUST if RUST.exists() else HERE.parent
    if not (root / "crates" / "capi" / "Cargo.toml").exists():
        raise SystemExit("libmillpond.so is not here: set MILLPOND_LIBRARY, or install from the repository")
    return root


def library():
    """The path of the library, built where none is given."""
    given = os.environ.get("MILLPOND_LIBRARY")
    return pathlib.Path(given) if given else _cargo(_root(), ["millpond-capi"])["libmillpond.so"]


def command():
    """The path of the command, built where no library is given; None where one is given and no command."""
    if os.environ.get("MILLPOND_LIBRARY"):
        given = os.environ.get("MILLPOND_COMMAND")
        return pathlib.Path(given) if given else None
    root = _root()
    preload = _cargo(root, ["millpond-interpose"])["libmillpond_cuda.so"]
    return _cargo(root, ["millpond-cli"], MILLPOND_PRELOAD=str(preload))["millpond"]


def glibc(library):
    """The newest version of the GNU C library whose symbols a library needs: (2, 17) and so on."""
    from elftools.elf.elffile import ELFFile

    with open(library, "rb") as file:
        needed = ELFFile(file).get_section_by_name(".gnu.version_r")
        names = [name.name for _, versions in needed.iter_versions() for name in versions] if needed else []
    found = [re.fullmatch(r"GLIBC_([0-9]+)[.]([0-9]+)(?:[.][0-9]+)?", name) for name in names]
    return max((int(it[1]), int(it[2])) for it in found if it)


def platform_tag(files):
    """The platform of the wheel, as pip spells it: that of this Python, with the C library that the files need."""
    plain = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    if not plain.startswith("linux_"):
        return plain
    # Tags begin with the C library of 2010.
    major, minor = max([(2, 5), *map(glibc, files)])
    return plain.replace("linux_", f"manylinux_{major}_{minor}_", 1)


def _strip(library):
    """Takes debug data and local names out, where binutils are here: they are most of the file."""
    strip = shutil.which("strip")
    if strip:
        subprocess.run([strip, "--strip-unneeded", str(library)], check=True)


def _place_library():
    """Puts the library into the package; whether it was put there just now."""
    found = library()
    if found.resolve() == PLACE:
        return False
    shutil.copyfile(found, PLACE)
    _strip(PLACE)
    return True


def _finish(directory, wheel, platform, command):
    """Puts the command into the wheel, and says in name and contents that it is for this kind of machine: setuptools takes
    it for pure Python."""
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
        # It is in the wheel; one that stayed here would be found, and be old, when the folder is used as it is.
        if placed:
            PLACE.unlink()
    return _finish(wheel_directory, wheel, platform, found)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    _place_library()
    return _setuptools.build_editable(wheel_directory, config_settings, metadata_directory)


def _place_sources():
    """Puts the Rust sources beside the package; whether they were put there just now."""
    root = HERE.parent
    if RUST.exists() or not (root / "crates" / "capi").exists():
        return False
    leave = shutil.ignore_patterns("corpus", "tests", "examples", "docs", "LICENSE-*", "instances")
    for crate in CRATES:
        shutil.copytree(root / "crates" / crate, RUST / "crates" / crate, ignore=leave)
    manifest = (root / "Cargo.toml").read_text(encoding="utf-8")
    # Paths of crates that are not here would be looked for.
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
