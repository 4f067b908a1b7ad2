"""Builds the wheel with libmillpond.so in it.

The library is the one that the environment's MILLPOND_LIBRARY names, else what cargo builds from the repository that
this folder is in. The wheel holds no Python extension, only that library, so that it is good for every Python 3 on
this kind of machine.
"""

import os
import pathlib
import shutil
import subprocess
import sysconfig

from setuptools import build_meta as _setuptools

HERE = pathlib.Path(__file__).resolve().parent
PLACE = HERE / "millpond" / "libmillpond.so"


def library():
    """The path of the library, built where none is given."""
    given = os.environ.get("MILLPOND_LIBRARY")
    if given:
        return pathlib.Path(given)
    manifest = HERE.parent / "crates" / "capi" / "Cargo.toml"
    if not manifest.exists():
        raise SystemExit("libmillpond.so is not here: set MILLPOND_LIBRARY, or install from the repository")
    cargo = ["cargo", "build", "--release", "--package", "millpond-capi", "--message-format=json-render-diagnostics"]
    done = subprocess.run(cargo, cwd=manifest.parent, stdout=subprocess.PIPE, check=True, text=True)
    import json

    for line in done.stdout.splitlines():
        for name in json.loads(line).get("filenames") or []:
            if name.endswith("/libmillpond.so"):
                return pathlib.Path(name)
    raise SystemExit("cargo built no libmillpond.so")


def platform_tag():
    """The platform of the wheel: that of this Python, as pip spells it."""
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")


def _place_library():
    """Puts the library into the package; whether it was put there just now."""
    found = library()
    if found.resolve() == PLACE:
        return False
    shutil.copyfile(found, PLACE)
    return True


def _retag(directory, wheel):
    """Says in name and contents that the wheel is for this kind of machine: setuptools takes it for pure Python."""
    import zipfile
    import base64
    import hashlib

    old = pathlib.Path(directory) / wheel
    tag = f"py3-none-{platform_tag()}"
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
        wheel = _setuptools.build_wheel(wheel_directory, config_settings, metadata_directory)
    finally:
        # It is in the wheel; one that stayed here would be found, and be old, when the folder is used as it is.
        if placed:
            PLACE.unlink()
    return _retag(wheel_directory, wheel)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    _place_library()
    return _setuptools.build_editable(wheel_directory, config_settings, metadata_directory)


build_sdist = _setuptools.build_sdist
get_requires_for_build_sdist = _setuptools.get_requires_for_build_sdist
get_requires_for_build_editable = _setuptools.get_requires_for_build_editable
prepare_metadata_for_build_wheel = _setuptools.prepare_metadata_for_build_wheel
prepare_metadata_for_build_editable = _setuptools.prepare_metadata_for_build_editable


def get_requires_for_build_wheel(config_settings=None):
    return _setuptools.get_requires_for_build_wheel(config_settings)
