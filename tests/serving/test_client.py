import datetime
import http.server
import json
import threading

import numpy as np
import pytest
import tensorflow as tf

from serving.client import HashingClient, main
from serving.server.settings import Settings
from serving.transports import ServerError


@pytest.fixture(params=["http", "grpc"])
def url(request, server):
    return f"{request.param}://127.0.0.1:{server.rest_port if request.param == 'http' else server.grpc_port}"


def test_codes_are_equal_over_rest_over_grpc_and_in_process(exported, url, tmp_path):
    rows, texts = exported.image_rows(1000, seed=7), exported.text_rows(1000, seed=8)
    captions = ["a red cat", "dogs", "", "\N{BIRD} on a tree"]
    pictures = [np.random.default_rng(seed).integers(0, 256, (30, 20, 3), np.uint8) for seed in range(3)]
    paths = [tmp_path / f"{number}.png" for number in range(3)]
    for path, picture in zip(paths, pictures, strict=True):
        path.write_bytes(tf.io.encode_png(picture).numpy())
    with HashingClient(url, timeout=99, batch_rows=30) as client:
        np.testing.assert_array_equal(client.hash_images(rows), exported.model.hash_images(rows))
        np.testing.assert_array_equal(client.hash_texts(texts), exported.model.hash_texts(texts))
        np.testing.assert_array_equal(client.hash_captions(captions), exported.caption_codes(captions))
        np.testing.assert_array_equal(client.hash_image_files(paths), exported.picture_codes(pictures))
        codes, probs = client.predict("hash_caption", [caption.encode() for caption in captions])
        np.testing.assert_array_equal(codes, exported.caption_codes(captions))
        np.testing.assert_array_equal(np.unpackbits(codes, axis=1, bitorder="little"), probs >= 0.5)


def test_long_rows_are_sent_in_requests_that_the_server_takes(exported, url):
    captions = ["a red cat" + " " * 6_000_000] * 3
    with HashingClient(url, timeout=99) as client:
        codes = client.hash_captions(captions)
    np.testing.assert_array_equal(codes, exported.caption_codes(["a red cat"] * 3))


class Recorder:
    """A transport that notes the sizes of what it is given."""

    def __init__(self):
        self.requests = []

    def predict(self, signature, rows):
        self.requests.append([len(row) for row in rows])
        return [bytes([len(row) % 251]) for row in rows]

    def close(self):
        pass


def test_a_request_ends_by_rows_and_by_bytes():
    client, mega = HashingClient(batch_rows=3), 1 << 20
    client._transport = Recorder()
    sizes = [1, 2, 3, 4, 4 * mega, 4 * mega - 4, 1, 9 * mega, 5, 6]
    codes = client.hash_captions(["a" * size for size in sizes])
    assert client._transport.requests == [[1, 2, 3], [4, 4 * mega, 4 * mega - 4], [1], [9 * mega], [5, 6]]
    assert codes.tolist() == [[size % 251] for size in sizes]


def test_a_row_that_is_too_large_is_not_sent_again(url):
    attempts = []
    with HashingClient(url, timeout=99, backoff=0.01) as client:
        predict = client._transport.predict
        client._transport.predict = lambda *request: attempts.append(request) or predict(*request)
        with pytest.raises(ServerError, match=r"at most 16777216 bytes|larger than max") as caught:
            client.hash_captions(["a" * 17_000_000])
    assert caught.value.status in (413, "RESOURCE_EXHAUSTED")
    assert len(attempts) == 1


def test_what_the_server_refuses_is_raised_at_once(url):
    with HashingClient(url, timeout=99) as client, pytest.raises(ServerError, match="Received: 8 bytes"):
        client.hash_images(np.zeros((1, 2), np.float32))
    with HashingClient(url, model="other", timeout=99) as client, pytest.raises(ServerError, match=r"Latest\(other\)"):
        client.hash_captions(["a"])
    with (
        HashingClient(url, version=9, timeout=99) as client,
        pytest.raises(ServerError, match=r"Specific\(cmimh, 9\)"),
    ):
        client.hash_captions(["a"])
    with HashingClient(url, label="x/y", timeout=99) as client, pytest.raises(ServerError, match="label: x/y"):
        client.hash_captions(["a"])


def test_the_command(exported, url, tmp_path, capsys):
    main(["text", "a red cat", "a dog", "--url", url, "--timeout", "120"])
    codes = exported.caption_codes(["a red cat", "a dog"])
    assert capsys.readouterr().out == f"{codes[0].tobytes().hex()}\ta red cat\n{codes[1].tobytes().hex()}\ta dog\n"
    picture = np.random.default_rng(0).integers(0, 256, (30, 20, 3), np.uint8)
    (tmp_path / "photo.png").write_bytes(tf.io.encode_png(picture).numpy())
    main(["image", str(tmp_path / "photo.png"), "--url", url, "--timeout", "120"])
    code = exported.picture_codes([picture])[0].tobytes().hex()
    assert capsys.readouterr().out == f"{code}\t{tmp_path / 'photo.png'}\n"
    np.savez(tmp_path / "features.npz", image=exported.image_rows(3), text=exported.text_rows(3))
    main(["vectors", str(tmp_path / "features.npz"), "--out", str(tmp_path / "codes.npz"), "--url", url])
    with np.load(tmp_path / "codes.npz") as codes:
        np.testing.assert_array_equal(codes["image_codes"], exported.model.hash_images(exported.image_rows(3)))
    with pytest.raises(SystemExit) as caught:
        main(["image", str(tmp_path / "missing.jpg"), "--url", url])
    assert caught.value.code == 2
    assert "missing.jpg" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"image": np.array([[1], None], object)}, "`image` must be an array of numbers. Received: Python objects."),
        ({"text": np.array(["a", "b"])}, "`text` must be an array of numbers. Received: dtype=<U1."),
        ({"other": np.zeros(3)}, " must hold `image` or `text`. Received: neither."),
        (None, " must be an .npz file. Received: another kind of file."),
    ],
)
def test_files_without_vectors_are_named(tmp_path, capsys, arrays, message):
    path = tmp_path / "features.npz"
    if arrays is None:
        with path.open("wb") as file:
            np.save(file, np.zeros(3))
    else:
        np.savez(path, **arrays)
    with pytest.raises(SystemExit) as caught:
        main(["vectors", str(path), "--out", str(tmp_path / "codes.npz"), "--url", "http://127.0.0.1:9"])
    errors = capsys.readouterr().err
    assert caught.value.code == 2
    assert errors.startswith(f"error: {path}")
    assert message in errors
    assert errors.count("\n") == 1


def test_the_input_is_not_replaced_by_its_codes(exported, server, tmp_path, capsys):
    path, link = tmp_path / "features.npz", tmp_path / "link.npz"
    np.savez(path, image=exported.image_rows(3))
    link.symlink_to(path)
    before = path.read_bytes()
    for out in (path, link):
        with pytest.raises(SystemExit) as caught:
            main(["vectors", str(path), "--out", str(out), "--url", f"http://127.0.0.1:{server.rest_port}"])
        assert caught.value.code == 2
        assert capsys.readouterr().err == f"error: `out` must not be the input. Received: {out}.\n"
    assert path.read_bytes() == before


class Flaky(http.server.BaseHTTPRequestHandler):
    """Busy twice, then answers."""

    statuses = (429, 503, 200)

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        status = self.statuses[min(self.server.count, len(self.statuses) - 1)]
        self.server.count += 1
        content = {"predictions": [{"code_bytes": {"b64": "AQI="}}]} if status == 200 else {"error": "busy"}
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def flaky():
    with http.server.HTTPServer(("127.0.0.1", 0), Flaky) as server:
        server.count = 0
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join(60)


def test_busy_servers_are_asked_again(flaky):
    url = f"http://127.0.0.1:{flaky.server_port}"
    with HashingClient(url, backoff=0.01) as client:
        assert client.hash_captions(["a"]).tolist() == [[1, 2]]
    assert flaky.count == 3
    flaky.count = 0
    with HashingClient(url, backoff=0.01, retries=1) as client, pytest.raises(ServerError, match="503: busy"):
        client.hash_captions(["a"])
    assert flaky.count == 2


def test_a_server_out_of_reach_is_asked_again_and_then_named():
    client = HashingClient("http://127.0.0.1:9", backoff=0.01, retries=1)
    with client, pytest.raises(ServerError, match="cannot be reached"):
        client.hash_captions(["a"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"url": "ftp://x"}, "`url` must name one of http, https, grpc, grpcs and a host"),
        ({"version": 1, "label": "a"}, "`version` or `label` must be None"),
        ({"timeout": 0}, "`timeout` must be positive"),
        ({"retries": -1}, "`retries` must be at least 0. Received: retries=-1."),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        HashingClient(**arguments)


def test_a_certificate_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="No such file or directory: 'nofile'"):
        HashingClient("https://127.0.0.1:9", certificate="nofile")
    (tmp_path / "note").write_text("no PEM")
    with pytest.raises(ValueError, match=r"`certificate` must be a PEM file\. Received: .*note\."):
        HashingClient("https://127.0.0.1:9", certificate=tmp_path / "note")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A self-signed certificate for 127.0.0.1."""
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
    )
    folder = tmp_path_factory.mktemp("tls")
    pem = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    (folder / "certificate.pem").write_bytes(pem)
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return folder


def test_tls_and_token(exported, certificate, serve):
    settings = Settings(
        model_base=exported.base, rest_port=0, grpc_port=0, shutdown_timeout=5, token="secret",
        tls_certificate=certificate / "certificate.pem", tls_key=certificate / "key.pem",
    )  # fmt: skip
    expected = exported.caption_codes(["a cat"])
    with serve(settings) as addresses:
        for scheme, port in (("https", addresses.rest_port), ("grpcs", addresses.grpc_port)):
            url, pem = f"{scheme}://127.0.0.1:{port}", certificate / "certificate.pem"
            with HashingClient(url, token="secret", certificate=pem, timeout=99) as client:
                np.testing.assert_array_equal(client.hash_captions(["a cat"]), expected)
            client = HashingClient(url, token="wrong", certificate=pem, timeout=99)
            with client, pytest.raises(ServerError, match="bearer token") as caught:
                client.hash_captions(["a cat"])
            assert caught.value.status in (401, "UNAUTHENTICATED")
