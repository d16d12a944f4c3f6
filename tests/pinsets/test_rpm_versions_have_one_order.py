"""Versions of RPM packages: their order, beside rpm's own."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinsets import rpmversions

ORDER = [
    "1.0~rc1",
    "1.0",
    "1.0^git1",
    "1.0a",
    "1.0.1",
    "1.9",
    "1.10",
    "2.0-1.el9",
    "2.0-1.1.el9",
    "2.0-10.el9",
    "1:0.1",
]


def test_rpm_versions_have_one_order() -> None:
    for one, other in itertools.combinations(ORDER, 2):
        assert rpmversions.compare(one, other) < 0, (one, other)
        assert rpmversions.compare(other, one) > 0, (other, one)
    assert rpmversions.compare("0:1.0-1", "1.0-1") == 0
    assert rpmversions.compare("1.0", "1.0-5") == 0, "a release counts only where both have one"
    assert rpmversions.compare("1.01", "1.1") == 0


def test_numbers_of_any_length_have_an_order() -> None:
    long = "9" * 10_000
    assert rpmversions.compare(f"1.{long}", f"1.0{long}") == 0
    assert rpmversions.compare(f"1.{long}", f"1.1{long}") < 0
    assert rpmversions.compare(f"{long}:1", "1") != 0, "no epoch is that long: it is a version"


@pytest.mark.skipif(shutil.which("rpm") is None, reason="rpm is not installed")
def test_the_order_is_that_of_rpm() -> None:
    versions = [text for text in ORDER if ":" not in text]
    lua = "".join(f'print(rpm.vercmp("{one}", "{other}"), ""); ' for one, other in itertools.combinations(versions, 2))
    done = subprocess.run(["rpm", "--eval", f"%{{lua:{lua}}}"], capture_output=True, text=True, check=True)
    assert set(re.findall(r"-?1|0", done.stdout)) == {"-1"}, done.stdout


EVR = st.from_regex(r"\A([0-9]:)?[0-9a-z.~^]{1,8}(-[0-9a-z.~^]{1,6})?\Z")


@given(EVR, EVR, EVR)
def test_the_order_is_total_where_all_have_a_release(one: str, other: str, third: str) -> None:
    whole = [text if "-" in text else f"{text}-1" for text in (one, other, third)]
    assert rpmversions.compare(whole[0], whole[1]) == -rpmversions.compare(whole[1], whole[0])
    first, second, last = sorted(whole, key=rpmversions.sort_key)
    assert rpmversions.compare(first, second) <= 0
    assert rpmversions.compare(second, last) <= 0
    assert rpmversions.compare(first, last) <= 0
