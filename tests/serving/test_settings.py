import subprocess
import sys
from pathlib import Path

import pytest

from serving.server.settings import Settings, parse_flags

ROOT = Path(__file__).resolve().parents[2]
BATCHING = str(ROOT / "serving" / "batching.config")


def test_flags(tmp_path, monkeypatch):
    monkeypatch.delenv("CMIMH_SERVING_TOKEN", raising=False)
    (tmp_path / "token").write_text(" secret\n")
    base = ["--model-base", str(tmp_path)]
    assert parse_flags(base) == Settings(model_base=tmp_path)
    settings = parse_flags(
        [*base, "--token-file", str(tmp_path / "token"), "--grpc-port", "-1", "--batching-parameters-file", BATCHING]
    )
    assert (settings.token, settings.grpc_port, settings.host) == ("secret", None, "127.0.0.1")
    assert settings.num_batch_threads == 2
    monkeypatch.setenv("CMIMH_SERVING_TOKEN", "other")
    assert parse_flags(base).token == "other"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "`model_base` or `model_config_file` must be given"),
        (["--model-base", "."], None),
        (["--model-base", "missing"], "The folder of the model's versions must exist. Received: missing."),
        (["--model-config-file", "missing.config"], "No such file or directory: 'missing.config'"),
        (["--model-base", ".", "--tls-key", "key"], "No such file or directory: 'key'"),
        (["--model-base", ".", "--tls-key", "/dev/null"], "`tls_certificate` and `tls_key` must be given together"),
        (["--model-base", ".", "--token-file", "/dev/null"], "`token` must not be empty"),
        (["--model-base", ".", "--max-batch-size", "0"], "`max_batch_size` must be at least 1"),
        (["--model-base", ".", "--max-connections", "0"], "`max_connections` must be at least 1"),
        (["--model-base", ".", "--batch-timeout", "-1"], "`batch_timeout` must be at least 0"),
        (["--model-base", ".", "--request-timeout", "0"], "`request_timeout` must be positive"),
        (["--model-base", ".", "--poll-seconds", "nan"], "`poll_seconds` must be positive"),
        (["--model-base", ".", "--rest-port", "65536"], "`rest_port` must be at most 65535"),
        (["--model-base", ".", "--rest-port", "0", "--grpc-port", "0"], None),
        (["--model-base", ".", "--rest-port", "-1", "--grpc-port", "-1"], None),
        (
            ["--model-base", ".", "--rest-port", "18791", "--grpc-port", "18791"],
            "`rest_port` and `grpc_port` must differ. Received: rest_port=18791, grpc_port=18791.",
        ),
        (
            ["--model-base", ".", "--tls-key", "/dev/null", "--tls-certificate", "/dev/null"],
            "`tls_certificate` and `tls_key` must be PEM files of a certificate and its key, without a password. "
            "Received: tls_certificate=/dev/null, tls_key=/dev/null",
        ),
    ],
)
def test_wrong_flags(tmp_path, monkeypatch, capsys, flags, message):
    monkeypatch.chdir(tmp_path)
    if message is None:
        parse_flags(flags)
        return
    with pytest.raises(SystemExit) as ended:
        parse_flags(flags)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_a_model_of_the_configuration_file_without_a_folder(tmp_path, capsys):
    config = tmp_path / "models.config"
    config.write_text("model_config_list { config { name: 'a' base_path: 'gone' } }")
    with pytest.raises(SystemExit):
        parse_flags(["--model-config-file", str(config)])
    assert f"must exist. Received: {tmp_path / 'gone'}." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("module", "flags", "message"),
    [
        ("serving.server.__main__", ["--model-base", "missing"], "Received: missing."),
        ("serving.server.__main__", ["--model-config-file", "missing"], "'missing'"),
        ("serving.server.__main__", ["--max-row", "many"], "invalid int value: 'many'"),
        ("serving.push", ["--model", "missing", "--model-base", "x"], "Received: missing."),
        ("serving.client", ["image", "missing.jpg"], "'missing.jpg'"),
        ("serving.client", ["vectors", "a.npz"], "one .npz and --out"),
    ],
)
def test_a_mistake_is_reported_before_anything_heavy_is_imported(module, flags, message):
    code = (
        f"import sys; sys.argv[1:] = {flags!r}; import importlib\n"
        f"try: importlib.import_module({module!r}).main()\n"
        "finally: print([name for name in ('tensorflow', 'granian', 'grpc') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout) == (2, "[]\n")
    assert message in done.stderr
