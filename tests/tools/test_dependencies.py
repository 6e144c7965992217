"""The lock file, the licences and the bill of materials name everything the package needs."""

import json
import re
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tools.dependencies import (
    BUILD,
    LICENCES,
    LOCK,
    PINS,
    ROOT,
    closure,
    extras,
    oldest,
    pins,
    runtime,
    sbom,
)

LOCKED = pins(LOCK)


@pytest.mark.parametrize("requirement", [*runtime(), *extras("dev"), *extras()], ids=str)
def test_the_lock_file_has_every_dependency_in_its_range(requirement: Requirement) -> None:
    if requirement.name != "fastgcn":
        locked = LOCKED[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(locked, prereleases=True)


def test_the_lock_file_is_what_setup_installs() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert f"-c {LOCK.name}" in makefile
    assert set(BUILD) <= set(LOCKED)
    assert pins(PINS).items() <= LOCKED.items()
    text = LOCK.read_text(encoding="utf-8")
    assert "+" not in re.sub("#.*", "", text), "a build's own version is not on every index"
    assert "://" not in text


def test_ranges_are_open_and_have_a_lower_end() -> None:
    for requirement in [*runtime(), *extras()]:
        assert [each.operator for each in requirement.specifier] == [">="], str(requirement)
    names = {line.partition("==")[0] for line in oldest().splitlines()}
    assert {canonicalize_name(each.name) for each in [*runtime(), *extras()]} <= names


def listed(page: Path) -> dict[str, list[str]]:
    rows = re.findall(r"^\| ([\w.-]+) \| (.+) \|$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {name: cells.split(" | ") for name, cells in rows if name != "package"}


def test_every_dependency_has_its_licence_listed() -> None:
    found = listed(LICENCES)
    missing = set(closure()) - set(found)
    assert not missing, f"make licences: {sorted(missing)}"
    assert {canonicalize_name(each.name) for each in runtime()} <= set(found)
    for name, (version, licence, _) in found.items():
        assert licence != "not declared", name
        assert LOCKED[name] == version, f"make licences: {name}"


def test_the_bill_of_materials_is_valid_and_whole() -> None:
    text = sbom()
    problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    assert problem is None, problem
    bom = json.loads(text)
    assert bom["bomFormat"] == "CycloneDX"
    assert bom["metadata"]["component"]["name"] == "fastgcn"
    assert {part["name"] for part in bom["components"]} == set(closure())
    (own,) = [each for each in bom["dependencies"] if each["ref"].startswith("pkg:pypi/fastgcn@")]
    direct = {re.findall("pypi/(.+)@", ref)[0] for ref in own["dependsOn"]}
    assert direct == {canonicalize_name(each.name) for each in runtime()}


def test_security_says_what_is_trusted() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    for word in ("Reporting", "trusted", "pickle", "torch.distributed", "loopback", "THIRD-PARTY"):
        assert word in text
