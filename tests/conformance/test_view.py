"""Reading saved, uploaded and temporary files back over HTTP."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from support.graphs import fresh_prefix, picture, saved_with
from support.pictures import form, opened, png
from support.wire import Wire


async def uploaded(wire: Wire, content: bytes, filename: str = "picture.png", **fields: str) -> str:
    """The name a fresh upload was given, with its extension."""
    fresh = f"{fresh_prefix()}_{filename}"
    answer = await wire.post("/upload/image", data=form(content, fresh, **fields))
    name: str = answer.body["name"]
    return name


@pytest.fixture
async def saved(wire: Wire) -> str:
    """The name of a picture in the output folder."""
    entry = await wire.run(picture(width=20, height=10, color=0x336699))
    name: str = entry["outputs"]["2"]["images"][0]["filename"]
    return name


async def test_a_saved_picture_is_served_as_it_lies_on_the_disk(wire: Wire, saved: str) -> None:
    answer = await wire.get(f"/view?filename={saved}")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "image/png")
    assert answer.headers["Content-Disposition"] == f'filename="{saved}"'
    assert int(answer.headers["Content-Length"]) == len(answer.body)
    image = opened(answer.body)
    assert (image.format, image.mode, image.size) == ("PNG", "RGB", (20, 10))
    assert image.getpixel((0, 0)) == (0x33, 0x66, 0x99)


async def test_every_folder_type_can_be_named(wire: Wire) -> None:
    content = png()
    name = await uploaded(wire, content)
    assert (await wire.get(f"/view?filename={name}&type=input")).body == content
    assert (await wire.get(f"/view?filename={name}")).status == 404
    entry = await wire.run(saved_with("PreviewImage"))
    temporary = entry["outputs"]["2"]["images"][0]["filename"]
    assert (await wire.get(f"/view?filename={temporary}&type=temp")).status == 200


async def test_a_name_may_carry_its_folder_type(wire: Wire) -> None:
    content = png()
    name = await uploaded(wire, content)
    answer = await wire.get(f"/view?filename={quote(name + ' [input]')}&type=output")
    assert (answer.status, answer.body) == (200, content)


async def test_folders_in_the_name_are_dropped(wire: Wire, saved: str) -> None:
    assert (await wire.get(f"/view?filename=some/where/{saved}")).status == 200


async def test_a_subfolder_is_looked_into(wire: Wire) -> None:
    folder = fresh_prefix("folder")
    entry = await wire.run(picture(f"{folder}/inner/name"))
    assert entry["outputs"]["2"]["images"] == [
        {"filename": "name_00001_.png", "subfolder": f"{folder}/inner", "type": "output"}
    ]
    assert (await wire.get(f"/view?filename=name_00001_.png&subfolder={folder}/inner")).status == 200
    assert (await wire.get(f"/view?filename=name_00001_.png&subfolder={folder}")).status == 404


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("", 404),
        ("filename=no-such-file.png", 404),
        ("filename=", 400),
        ("filename=/etc/hostname", 400),
        ("filename=../secret.png", 400),
        ("filename=a..b.png", 400),
        ("filename=x.png&type=elsewhere", 400),
        ("filename=x.png&subfolder=..", 403),
        ("filename=x.png&subfolder=/etc", 403),
        ("filename=x.png&subfolder=missing", 404),
    ],
)
async def test_what_cannot_be_served_says_why(wire: Wire, query: str, status: int) -> None:
    answer = await wire.get(f"/view?{query}")
    assert (answer.status, answer.body) == (status, b"")


@pytest.mark.parametrize(
    ("query", "image_format"),
    [
        ("preview=webp", "WEBP"),
        ("preview=webp;50", "WEBP"),
        ("preview=jpeg;30", "JPEG"),
        ("preview=png", "WEBP"),
        ("preview=", "WEBP"),
        ("preview=jpeg&channel=a", "WEBP"),
        ("channel=rgb", "PNG"),
    ],
)
async def test_a_picture_is_encoded_anew_on_request(wire: Wire, saved: str, query: str, image_format: str) -> None:
    answer = await wire.get(f"/view?filename={saved}&{query}")
    assert (answer.status, answer.headers["Content-Type"]) == (200, f"image/{image_format.lower()}")
    assert answer.headers["Content-Disposition"] == f'filename="{saved}"'
    assert (opened(answer.body).format, opened(answer.body).size) == (image_format, (20, 10))
    assert "ETag" not in answer.headers


async def test_colour_and_alpha_can_be_taken_apart(wire: Wire) -> None:
    name = await uploaded(wire, png((10, 20, 30, 77)))
    address = f"/view?filename={name}&type=input"
    rgb = opened((await wire.get(f"{address}&channel=rgb")).body)
    alpha = opened((await wire.get(f"{address}&channel=a")).body)
    assert (rgb.mode, rgb.getpixel((0, 0))) == ("RGB", (10, 20, 30))
    assert (alpha.mode, alpha.getpixel((0, 0))) == ("RGBA", (0, 0, 0, 77))


async def test_an_opaque_picture_has_full_alpha(wire: Wire, saved: str) -> None:
    alpha = opened((await wire.get(f"/view?filename={saved}&channel=a")).body)
    assert (alpha.mode, alpha.getpixel((0, 0))) == ("RGBA", (0, 0, 0, 255))


async def test_an_unknown_channel_serves_the_file(wire: Wire, saved: str) -> None:
    plain = await wire.get(f"/view?filename={saved}")
    assert (await wire.get(f"/view?filename={saved}&channel=rgba")).body == plain.body


async def test_a_preview_of_what_is_no_picture_fails_the_request(wire: Wire) -> None:
    name = await uploaded(wire, b"plain text", "note.txt")
    assert (await wire.get(f"/view?filename={name}&type=input&preview=webp")).status == 500


async def test_part_of_a_file_can_be_asked_for(wire: Wire, saved: str) -> None:
    whole = (await wire.get(f"/view?filename={saved}")).body
    part = await wire.get(f"/view?filename={saved}", headers={"Range": "bytes=8-15"})
    assert (part.status, part.body) == (206, whole[8:16])
    assert part.headers["Content-Range"] == f"bytes 8-15/{len(whole)}"
    beyond = await wire.get(f"/view?filename={saved}", headers={"Range": f"bytes={len(whole)}-"})
    assert beyond.status == 416


async def test_an_unchanged_file_need_not_be_sent_again(wire: Wire, saved: str) -> None:
    first = await wire.get(f"/view?filename={saved}")
    assert first.headers["Accept-Ranges"] == "bytes"
    assert "Last-Modified" in first.headers
    again = await wire.get(f"/view?filename={saved}", headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status, again.body) == (304, b"")


async def test_a_head_request_tells_the_length_without_the_file(wire: Wire, saved: str) -> None:
    whole = await wire.get(f"/view?filename={saved}")
    head = await wire.request("HEAD", f"/view?filename={saved}")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["Content-Length"] == str(len(whole.body))
    assert (await wire.request("HEAD", "/view?filename=no-such-file.png")).status == 404


@pytest.mark.parametrize(
    ("filename", "content_type"),
    [
        ("page.html", "application/octet-stream"),
        ("style.css", "application/octet-stream"),
        ("data.json", "application/json"),
        ("unknown.xyzzy", "application/octet-stream"),
        ("picture.webp", "image/webp"),
        ("clip.mp4", "video/mp4"),
    ],
)
@pytest.mark.of_the_wire
async def test_the_content_type_follows_the_name_except_for_pages_and_styles(
    wire: Wire, filename: str, content_type: str
) -> None:
    name = await uploaded(wire, b"{}", filename)
    answer = await wire.get(f"/view?filename={name}&type=input")
    assert (answer.status, answer.headers["Content-Type"]) == (200, content_type)
    assert answer.headers.get("X-Content-Type-Options") == ("nosniff" if wire.since("0.28") else None)


@pytest.mark.parametrize(
    ("filename", "content_type"),
    [
        ("script.js", "application/javascript; charset=utf-8"),
        ("picture.svg", "image/svg+xml"),
        ("page.html", "application/octet-stream"),
        ("page.mht", "message/rfc822"),
    ],
)
@pytest.mark.of_the_wire
async def test_what_a_browser_may_run_is_shown_until_0_28_and_then_downloaded(
    wire: Wire, filename: str, content_type: str
) -> None:
    name = await uploaded(wire, b"<svg/>", filename)
    headers = (await wire.get(f"/view?filename={name}&type=input")).headers
    found = [headers.get(key) for key in ("Content-Type", "Content-Disposition", "Cache-Control", "Vary")]
    if wire.since("0.28"):
        attachment = f'attachment; filename="{name}"'
        assert found == ["application/octet-stream", attachment, "no-store", "Sec-Fetch-Dest"]
    else:
        assert found == [content_type, f'filename="{name}"', None, None]


@pytest.mark.since("0.30")
async def test_a_drawing_is_shown_where_a_browser_wants_a_picture(wire: Wire) -> None:
    name = await uploaded(wire, b"<svg/>", "drawing.svg")
    headers = {"Sec-Fetch-Dest": "image"}
    answer = await wire.get(f"/view?filename={name}&type=input", headers=headers)
    assert answer.headers["Content-Type"] == "image/svg+xml"
    assert answer.headers["Content-Disposition"] == f'filename="{name}"'
