"""What the package depends on: the lock file, the oldest versions, the licences, the SBOM.

`python -m tools.dependencies lock | oldest | licences | sbom FILE`. The Makefile has a target for
each. All start from `pyproject.toml`, which has open ranges.
"""

import argparse
import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
LOCK, LICENCES = ROOT / "requirements-dev.lock", ROOT / "THIRD-PARTY.md"
PINS, VERSION = ROOT / "constraints.txt", ROOT / "src" / "fastgcn" / "_version.py"

# Extras that `make setup` does not install, because they are large: the lock file lacks them.
LARGE = ("export", "mlflow", "wandb")

# What builds the package; the lock file has it too.
BUILD = ("hatchling", "editables")

_LOCK_HEAD = """\
# The versions that `make setup` installs; `make lock` writes this file.
# It is a constraints file: a platform takes from it what it needs.
# It has no hashes: builds of torch differ between indexes (CPU, CUDA) under one version, and wheels
# differ between platforms.
"""
_LICENCES_HEAD = """\
# Third-party software

What `pip install fastgcn` installs beside the package, with the licences that the packages declare.
None of it is part of the wheel. `make licences` writes this page.

On Linux, a build of torch for GPUs also installs Triton (MIT) and NVIDIA's CUDA libraries
(`nvidia-*`, under NVIDIA's own terms).

| package | version | licence | needed by |
|---|---|---|---|
"""


def project() -> dict[str, Any]:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found: dict[str, Any] = tomllib.loads(text)["project"]
    return found


def runtime() -> list[Requirement]:
    """The direct dependencies of the package."""
    return list(map(Requirement, project()["dependencies"]))


def extras(*names: str) -> list[Requirement]:
    """The dependencies of these extras; if none is named, of those for users, but for `LARGE`."""
    groups: dict[str, list[str]] = project()["optional-dependencies"]
    chosen = names or [name for name in groups if name not in ("dev", "fuzz", *LARGE)]
    return [Requirement(text) for name in chosen for text in groups[name]]


def pins(path: Path = PINS) -> dict[str, str]:
    """Versions by name, from a file of lines NAME==VERSION."""
    lines = path.read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in pairs}


def lock() -> str:
    """The lock file: what pip would install now, in versions that fit together."""
    command = [
        sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet",
        "--disable-pip-version-check", "--report", "-", "--constraint", str(PINS),
        f"{ROOT}[dev,docs,fuzz]", *BUILD,
    ]  # fmt: skip
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, str] = {
        canonicalize_name(each["metadata"]["name"]): Version(each["metadata"]["version"]).public
        for each in json.loads(done.stdout)["install"]
    }
    found.pop("fastgcn")
    return _LOCK_HEAD + "".join(f"{name}=={found[name]}\n" for name in sorted(found))


def oldest() -> str:
    """Constraints: the oldest version that each range allows; for pinned packages, the pin."""
    found = pins()
    for requirement in [*runtime(), *extras()]:
        name = canonicalize_name(requirement.name)
        (bound,) = [each.version for each in requirement.specifier if each.operator == ">="]
        found.setdefault(name, bound)
    return "".join(f"{name}=={found[name]}\n" for name in sorted(found))


def closure() -> dict[str, tuple[Distribution, list[str]]]:
    """All that the package needs at run time: the installed packages, and who needs each.

    NVIDIA's packages and Triton, which only builds of torch for GPUs need, are left out.
    """
    found: dict[str, tuple[Distribution, list[str]]] = {}
    waiting = [("fastgcn", requirement) for requirement in runtime()]
    while waiting:
        parent, requirement = waiting.pop(0)
        name = canonicalize_name(requirement.name)
        applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if not applies or name == "triton" or name.startswith(("nvidia-", "cuda-")):
            continue
        if name in found:
            found[name][1].append(parent)
            continue
        try:
            installed = distribution(name)
        except PackageNotFoundError:
            sys.exit(f"{name}, which {parent} needs, is not installed: make setup")
        found[name] = (installed, [parent])
        waiting += [(name, Requirement(text)) for text in installed.requires or ()]
    return dict(sorted(found.items()))


def licence(installed: Distribution) -> str:
    """What a package declares: an SPDX expression, a short text, or its classifiers."""
    about: Any = installed.metadata  # a message, which has `get`
    declared: str = about.get("License-Expression") or about.get("License") or ""
    if declared and "\n" not in declared and len(declared) < 60 and declared != "UNKNOWN":
        return declared
    classifiers = [text for text in about.get_all("Classifier", []) if text.startswith("License")]
    named = [text.split(" :: ")[-1] for text in classifiers]
    return ", ".join(name for name in named if name != "OSI Approved") or first_line(declared)


def first_line(text: str) -> str:
    return text.strip().splitlines()[0].strip() if text.strip() else "not declared"


def licences() -> str:
    """A page of all packages that are needed at run time, with their licences."""
    rows = [
        f"| {name} | {Version(installed.version).public} | {licence(installed)} | "
        f"{', '.join(dict.fromkeys(parents))} |\n"
        for name, (installed, parents) in closure().items()
    ]
    return _LICENCES_HEAD + "".join(rows)


def sbom() -> str:
    """A software bill of materials of the package in CycloneDX's JSON, of what is installed."""
    from cyclonedx.contrib.license.factories import LicenseFactory
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.output import make_outputter
    from cyclonedx.schema import OutputFormat, SchemaVersion
    from packageurl import PackageURL

    make_licence = LicenseFactory().make_from_string

    def component(name: str, version: str, terms: str, kind: ComponentType) -> Component:
        url = PackageURL("pypi", name=name, version=version)
        return Component(
            name=name, version=version, type=kind, purl=url, bom_ref=str(url),
            licenses=[make_licence(terms)],
        )  # fmt: skip

    version = re.findall(r'"(.+)"', VERSION.read_text(encoding="utf-8"))[0]
    whole = component("fastgcn", version, project()["license"], ComponentType.APPLICATION)
    found = closure()
    parts = {
        name: component(
            name, Version(installed.version).public, licence(installed), ComponentType.LIBRARY
        )
        for name, (installed, _) in found.items()
    }
    bom = Bom(components=parts.values())
    bom.metadata.component = whole
    for parent, each in [("fastgcn", whole), *parts.items()]:
        needed = [parts[name] for name, (_, parents) in found.items() if parent in parents]
        bom.register_dependency(each, needed)
    writer = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6)
    return writer.output_as_string(indent=2) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["lock", "oldest", "licences", "sbom"])
    parser.add_argument("file", type=Path, nargs="?", help="where to write; stdout if left out")
    given = parser.parse_args()
    makers = {"lock": lock, "oldest": oldest, "licences": licences, "sbom": sbom}
    usual = {"lock": LOCK, "licences": LICENCES}
    text, file = makers[given.what](), given.file or usual.get(given.what)
    if file is None:
        sys.stdout.write(text)
    else:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
