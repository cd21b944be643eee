"""Thumbnails never leave the folder of pictures, and the cache stays within its limit."""

import io
import os

import pytest
from PIL import Image

from serving.errors import ServingError
from serving.search.pictures import Pictures, check_picture
from tests.search_service.conftest import run_search
from tests.search_service.fake_index import FakeIndex, Item, draw


@pytest.fixture
def root(tmp_path):
    (tmp_path / "secret.png").write_bytes(draw("red", "bar"))
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "a.png").write_bytes(draw("blue", "ring"))
    (root / "sub" / "b.png").write_bytes(draw("green", "bar"))
    (root / "text.png").write_bytes(b"not a picture")
    (root / "link-inside.png").symlink_to("sub/b.png")
    (root / "link-outside.png").symlink_to(tmp_path / "secret.png")
    (root / "folder-outside").symlink_to(tmp_path)
    (root / "loop.png").symlink_to("loop.png")
    os.mkfifo(root / "pipe.png")
    (tmp_path / "root-2").mkdir()
    (tmp_path / "root-2" / "c.png").write_bytes(draw("red", "bar"))
    return root


@pytest.fixture
def store(root):
    return Pictures(root, max_pixels=10**6, cache_bytes=10**6)


@pytest.mark.parametrize("stored", ["a.png", "sub/b.png", "./sub/../a.png", "link-inside.png"])
def test_files_inside(store, root, stored):
    for path in (stored, str(root / stored)):
        with Image.open(io.BytesIO(store.thumbnail(path, 64).data)) as picture:
            assert max(picture.size) == 64


@pytest.mark.parametrize(
    "stored",
    [
        "", ".", "sub", "nothing.png", "../secret.png", "sub/../../secret.png", "../root-2/c.png", "/etc/passwd",
        "link-outside.png", "folder-outside/secret.png", "loop.png", "pipe.png", "a.png\0", "x" * 5000,
        "file:///etc/passwd", "http://127.0.0.1/a.png", "text.png", "/dev/zero", "/proc/self/environ",
    ],
)  # fmt: skip
def test_everything_else_is_not_found(store, stored):
    with pytest.raises(ServingError) as caught:
        store.thumbnail(stored, 64)
    assert caught.value.code == "NOT_FOUND"
    assert "secret" not in caught.value.message
    assert "root" not in caught.value.message


def test_absolute_paths_outside_and_a_root_behind_a_link(root, tmp_path):
    (tmp_path / "alias").symlink_to(root)
    store = Pictures(tmp_path / "alias", 10**6, 10**6)
    assert store.thumbnail("a.png", 64).data
    assert store.thumbnail(str(root / "a.png"), 64).data
    with pytest.raises(ServingError):
        store.thumbnail(str(tmp_path / "secret.png"), 64)


def test_thumbnails_are_cached_until_the_file_changes(store, root):
    first = store.thumbnail("a.png", 64)
    assert store.thumbnail("a.png", 64) is first
    assert store.thumbnail("a.png", 128).etag != first.etag
    (root / "a.png").write_bytes(draw("red", "square", 50))
    assert store.thumbnail("a.png", 64).etag != first.etag


def test_the_cache_is_bounded(root):
    store = Pictures(root, 10**6, cache_bytes=5000)
    for number in range(30):
        (root / f"{number}.png").write_bytes(draw("red", "circle", 40 + number))
        store.thumbnail(f"{number}.png", 64)
        assert 0 < store.cached_bytes <= 5000
    tiny = Pictures(root, 10**6, cache_bytes=0)
    assert tiny.thumbnail("a.png", 64).data
    assert tiny.cached_bytes == 0


def test_pictures_with_too_many_pixels(root):
    Image.new("1", (3000, 1000)).save(root / "large.png")
    with pytest.raises(ServingError, match="3000 x 1000 pixels"):
        Pictures(root, 10**6, 10**6).thumbnail("large.png", 64)
    with pytest.raises(ServingError, match=r"`image` must be a picture .* Received: one of 3000 x 1000 pixels"):
        check_picture((root / "large.png").read_bytes(), "image", 10**6)


def test_formats(root):
    picture = Image.open(io.BytesIO(draw("teal", "ring"))).convert("RGBA")
    picture.putalpha(100)
    for kind in ("WEBP", "TIFF", "PNG", "GIF"):
        encoded = io.BytesIO()
        picture.save(encoded, kind)
        (root / f"x.{kind}").write_bytes(encoded.getvalue())
        assert Pictures(root, 10**6, 10**6).thumbnail(f"x.{kind}", 64).content_type == "image/webp"
        hashed = check_picture(encoded.getvalue(), "image", 10**6)
        assert Image.open(io.BytesIO(hashed)).format == (kind if kind in ("PNG", "GIF") else "PNG")
    for data in (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", b"<svg xmlns='http://www.w3.org/2000/svg'/>"):
        with pytest.raises(ServingError):
            check_picture(data, "image", 10**6)


def test_rotated_photographs_are_shown_upright(root):
    photograph = Image.new("RGB", (80, 40), "white")
    exif = photograph.getexif()
    exif[0x0112] = 6
    photograph.save(root / "rotated.jpg", exif=exif)
    shown = Image.open(io.BytesIO(Pictures(root, 10**6, 10**6).thumbnail("rotated.jpg", 64).data))
    assert shown.size == (32, 64)


def test_over_http(root, tmp_path):
    index = FakeIndex(root)
    outside = {"evil-1": "../secret.png", "evil-2": "/etc/passwd", "../../../etc/passwd": "a.png", "none": None}
    for id, stored in outside.items():
        index._items[id] = Item(id, "x", stored, {}, {"image": b"\0" * 4})
    with run_search(lambda *_: index, tmp_path, picture_root=root) as running:
        first = running.client.get("/v1/items/1/picture")
        assert first.headers["content-type"] == "image/webp"
        assert "max-age" in first.headers["cache-control"]
        again = running.client.get("/v1/items/1/picture", headers={"if-none-match": f'"x", W/{first.headers["etag"]}'})
        assert again.status_code == 304
        assert again.content == b""
        sizes = {
            size: Image.open(io.BytesIO(running.client.get(f"/v1/items/1/picture?size={size}").content)).size
            for size in (1, 64, 65)
        }
        assert sizes == {1: (64, 64), 64: (64, 64), 65: (96, 96)}
        assert running.client.get("/v1/items/1/picture?size=5000").status_code == 400
        for id in ("evil-1", "evil-2", "none"):
            assert running.client.get(f"/v1/items/{id}/picture").status_code == 404
        # An id is looked up in the index, and is never part of a path.
        assert running.client.get("/v1/items/..%2F..%2F..%2Fetc%2Fpasswd/picture").status_code == 200
        assert running.client.get("/v1/items/..%2Fsecret.png/picture").status_code == 404
