"""The type of a job says in which folder its result goes."""

from __future__ import annotations

import pytest

from comfyui_agent.domain.kinds import folder_of


def test_each_type_has_its_folder_in_any_case() -> None:
    for folder, types in [
        ("image", ["T2I", "I2I"]),
        ("video", ["T2V", "I2V"]),
        ("audio", ["AUDIO", "T2A"]),
        ("speech", ["SPEECH", "TTS", "T2S"]),
        ("3d", ["3D"]),
    ]:
        for name in types:
            assert folder_of(name) == folder_of(name.lower()) == folder


def test_a_type_that_does_not_exist_is_named_with_those_that_do() -> None:
    for name in ["", "T2X", "image", "../etc", "T2I "]:
        with pytest.raises(ValueError, match=r"does not exist: use one of T2I, I2I, T2V") as raised:
            folder_of(name)
        assert repr(name) in str(raised.value), name
