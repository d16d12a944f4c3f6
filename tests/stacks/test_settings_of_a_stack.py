"""Settings from a stack's config: defaults, unknown keys, and what belongs to other projects."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.base import errors
from stacks import settings


def test_the_fleet_is_the_stacks_name_unless_its_config_says_otherwise() -> None:
    assert settings.read("lab", {}, {}).fleet == "lab"
    assert settings.read("lab", {"lockstep:fleet": "other"}, {}).fleet == "other"


def test_the_kubeconfig_comes_from_the_config_before_the_environment() -> None:
    environ = {"KUBECONFIG": "/from/environment"}
    assert settings.read("lab", {}, environ).kubeconfig == Path("/from/environment")
    assert settings.read("lab", {"lockstep:kubeconfig": "/from/config"}, environ).kubeconfig == Path("/from/config")


def test_without_a_kubeconfig_there_is_no_cluster() -> None:
    assert settings.read("lab", {}, {"KUBECONFIG": ""}).kubeconfig is None


def test_keys_of_other_projects_are_left_alone() -> None:
    assert settings.read("lab", {"kubernetes:context": "x"}, {}).fleet == "lab"


def test_an_unknown_key_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(errors.InputError) as caught:
        settings.read("lab", {"lockstep:flet": "x"}, {})
    assert caught.value.hint == "did you mean lockstep:fleet?"
    assert caught.value.place == "stacks/Pulumi.lab.yaml"


def test_a_wrong_value_is_refused_with_its_key() -> None:
    with pytest.raises(errors.InputError, match="lockstep:lab"):
        settings.read("lab", {"lockstep:lab": "perhaps"}, {})


def test_words_of_one_run_are_no_settings() -> None:
    for word in ("allow", "accept", "shrink", "plan", "facts"):
        with pytest.raises(errors.InputError, match=f"unknown setting lockstep:{word}"):
            settings.read("lab", {f"lockstep:{word}": "reboot"}, {})
