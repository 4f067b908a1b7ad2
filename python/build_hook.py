"""Builds the source distribution, with the Rust sources of the library in it, and the wheel with libmillpond.so in it.

The library is the one that the environment's MILLPOND_LIBRARY names, else what cargo builds: from `rust/` in a source
distribution, or from the repository that this folder is in. The wheel holds no Python extension, only that library, so
that it is good for every Python 3 on this kind of machine, with a C library no older than the symbols that it needs.
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
CRATES = ("core", "driver", "fakecuda", "millpond", "capi")


def library():
    """The path of the library, built where none is given."""
    given = os.environ.get("MILLPOND_LIBRARY")
    if given:
        return pathlib.Path(given)
    root = RUST if RUST.exists() else HERE.parent
    if not (root / "crates" / "capi" / "Cargo.toml").exists():
        raise SystemExit("libmillpond.so is not here: set MILLPOND_LIBRARY, or install from the repository")
    cargo = ["cargo", "build", "--release", "--package", "millpond-capi", "--message-format=json-render-diagnostics"]
    try:
        done = subprocess.run(cargo, cwd=root, stdout=subprocess.PIPE, check=True, text=True)
    except FileNotFoundError:
        raise SystemExit("cargo is not here, which builds libmillpond.so: install Rust, or set MILLPOND_LIBRARY") from None
    for line in done.stdout.splitlines():
        for name in json.loads(line).get("filenames") or []:
            if name.endswith("/libmillpond.so"):
                return pathlib.Path(name)
    raise SystemExit("cargo built no libmillpond.so")


def glibc(library):
    """The newest version of the GNU C library whose symbols a library needs: (2, 17) and so on."""
    from elftools.elf.elffile import ELFFile

    with open(library, "rb") as file:
        needed = ELFFile(file).get_section_by_name(".gnu.version_r")
        names = [name.name for _, versions in needed.iter_versions() for name in versions] if needed else []
    found = [re.fullmatch(r"GLIBC_([0-9]+)[.]([0-9]+)(?:[.][0-9]+)?", name) for name in names]
    return max((int(it[1]), int(it[2])) for it in found if it)


def platform_tag(library):
    """The platform of the wheel, as pip spells it: that of this Python, with the C library that is needed."""
    plain = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    if not plain.startswith("linux_"):
        return plain
    # Tags begin with the C library of 2010.
    major, minor = max(glibc(library), (2, 5))
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


def _retag(directory, wheel, platform):
    """Says in name and contents that the wheel is for this kind of machine: setuptools takes it for pure Python."""
    import base64
    import hashlib
    import zipfile

    old = pathlib.Path(directory) / wheel
    tag = f"py3-none-{platform}"
    new = old.with_name(wheel.replace("py3-none-any", tag))
    with zipfile.ZipFile(old) as source, zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as target:
        records = []
        for item in source.infolist():
            data = source.read(item)
            if item.filename.endswith(".dist-info/WHEEL"):
                text = data.decode().replace("Tag: py3-none-any", f"Tag: {tag}")
                data = text.replace("Root-Is-Purelib: true", "Root-Is-Purelib: false").encode()
            if item.filename.endswith(".dist-info/RECORD"):
                record = item
                continue
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            records.append(f"{item.filename},sha256={digest},{len(data)}")
            target.writestr(item, data)
        records.append(f"{record.filename},,")
        target.writestr(record, "\n".join(records) + "\n")
    old.unlink()
    return new.name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    placed = _place_library()
    try:
        platform = platform_tag(PLACE)
        wheel = _setuptools.build_wheel(wheel_directory, config_settings, metadata_directory)
    finally:
        # It is in the wheel; one that stayed here would be found, and be old, when the folder is used as it is.
        if placed:
            PLACE.unlink()
    return _retag(wheel_directory, wheel, platform)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    _place_library()
    return _setuptools.build_editable(wheel_directory, config_settings, metadata_directory)


def _place_sources():
    """Puts the Rust sources beside the package; whether they were put there just now."""
    root = HERE.parent
    if RUST.exists() or not (root / "crates" / "capi").exists():
        return False
    leave = shutil.ignore_patterns("tests", "examples", "docs", "LICENSE-*", "instances")
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
    return _setuptools.get_requires_for_build_wheel(config_settings)
