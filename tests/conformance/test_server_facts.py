"""What the server says about itself."""

from __future__ import annotations

import pytest

from support.graphs import checkpoint_name
from support.wire import Wire


async def test_system_stats_describe_machine_versions_and_devices(wire: Wire) -> None:
    answer = await wire.get("/system_stats")
    assert (answer.status, answer.body.keys() - {"e3_simulator"}) == (200, {"system", "devices"})
    system = answer.body["system"]
    newer = {"comfy_package_versions": "0.22", "deploy_environment": "0.25"}
    assert system.keys() == {
        *(key for key, first in newer.items() if wire.since(first)),
        "os",
        "ram_total",
        "ram_free",
        "comfyui_version",
        "required_frontend_version",
        "installed_templates_version",
        "required_templates_version",
        "python_version",
        "pytorch_version",
        "embedded_python",
        "argv",
    }
    assert isinstance(system["argv"], list)
    assert isinstance(system["ram_total"], int)
    assert system["embedded_python"] in (True, False)
    for device in answer.body["devices"]:
        assert device.keys() == {
            "name",
            "type",
            "index",
            "vram_total",
            "vram_free",
            "torch_vram_total",
            "torch_vram_free",
        }
        assert isinstance(device["vram_free"], int)


async def test_features_are_the_flags_of_the_server(wire: Wire) -> None:
    answer = await wire.get("/features")
    assert answer.status == 200
    newer = {"node_replacements": "0.14", "assets": "0.17", "supports_model_type_tags": "0.28"}
    newer_keys = {key for key, first in newer.items() if wire.since(first)}
    assert answer.body.keys() == {"supports_preview_metadata", "max_upload_size", "extension", *newer_keys}
    assert answer.body.get("assets", False) is False
    assert answer.body["supports_preview_metadata"] is True
    assert answer.body["max_upload_size"] == 100 * 1024 * 1024


async def test_model_folders_and_their_files_are_listed(wire: Wire) -> None:
    folders = (await wire.get("/models")).body
    assert {"checkpoints", "loras", "vae", "embeddings", "controlnet", "upscale_models"} <= set(folders)
    assert await checkpoint_name(wire) in (await wire.get("/models/checkpoints")).body
    assert (await wire.get("/models/loras")).status == 200
    assert ("background_removal" in folders) is wire.since("0.21")


async def test_an_unknown_model_folder_is_not_found(wire: Wire) -> None:
    answer = await wire.get("/models/no-such-folder")
    assert (answer.status, answer.body) == (404, b"")


async def test_embeddings_are_a_list_of_names(wire: Wire) -> None:
    answer = await wire.get("/embeddings")
    assert answer.status == 200
    assert all(isinstance(name, str) for name in answer.body)


@pytest.mark.parametrize(
    "path",
    [
        "/prompt",
        "/queue",
        "/history",
        "/history/no-such-prompt",
        "/system_stats",
        "/features",
        "/embeddings",
        "/models",
        "/models/checkpoints",
        "/object_info",
        "/object_info/SaveImage",
    ],
)
async def test_every_route_answers_under_api_too(wire: Wire, path: str) -> None:
    plain, twin = await wire.get(path), await wire.get(f"/api{path}")
    assert (plain.status, twin.status) == (200, 200)
    assert plain.headers["Content-Type"] == twin.headers["Content-Type"] == "application/json; charset=utf-8"
    if path != "/system_stats":
        assert plain.body == twin.body


async def test_answers_are_not_compressed_unless_the_server_was_told_to(wire: Wire) -> None:
    answer = await wire.get("/object_info/SaveImage", headers={"Accept-Encoding": "gzip"})
    assert "Content-Encoding" not in answer.headers


@pytest.mark.parametrize("body", [{}, {"unload_models": True}, {"free_memory": True, "unload_models": False}])
async def test_freeing_is_always_accepted(wire: Wire, body: dict[str, bool]) -> None:
    answer = await wire.post("/free", body)
    assert (answer.status, answer.body) == (200, b"")
