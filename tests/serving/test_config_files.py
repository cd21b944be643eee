import re
from pathlib import Path

import pytest
import yaml

from pipeline.root import PipelineRoot
from serving.server.config_files import (
    ModelConfig,
    read_batching_parameters,
    read_model_configs,
    read_monitoring_config,
)
from serving.server.rest import METRICS_PATH
from serving.server.settings import Settings

SERVING = Path(__file__).resolve().parents[2] / "serving"


def test_models_config():
    (config,) = read_model_configs(SERVING / "models.config")
    assert config == ModelConfig("cmimh", Path("/models/cmimh"), "latest", 2, (), {"stable": 1, "canary": 2})
    assert config.choose([3, 1, 2]) == [2, 3]


def test_batching_config():
    settings = read_batching_parameters(SERVING / "batching.config")
    assert settings == {
        "max_batch_size": 64, "batch_timeout": 0.0, "max_enqueued_rows": 1024, "num_batch_threads": 2,
    }  # fmt: skip
    Settings(model_base=Path("x"), **settings)


def test_monitoring_config():
    config = read_monitoring_config(SERVING / "monitoring.config")
    assert config.prometheus_config.enable
    assert config.prometheus_config.path == METRICS_PATH


def test_the_manifests_mount_what_their_flags_name():
    compose = yaml.safe_load((SERVING / "docker-compose.yml").read_text())["services"]["cmimh"]
    # Without the environment's value of a variable, as compose then has it.
    volumes = [re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", volume) for volume in compose["volumes"]]
    mounts = dict(volume.split(":")[:2][::-1] for volume in volumes)
    for flag in compose["command"]:
        path = re.fullmatch(r"--\w+_file=(/config/[\w.]+)", flag)
        if path:
            assert (SERVING / mounts[path.group(1)]).is_file()
    assert any(volume.startswith("${MODEL_BASE:-") for volume in compose["volumes"])
    pushed = PipelineRoot(SERVING.parent / "runs" / "pipeline" / "emoji").serving
    assert (SERVING / mounts["/models/cmimh"]).resolve() == pushed
    assert all(port.startswith("127.0.0.1:") for port in compose["ports"])

    deployment, service = yaml.safe_load_all((SERVING / "kubernetes.yaml").read_text())
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert {"startupProbe", "readinessProbe", "livenessProbe"} <= set(container)
    assert container["image"] == compose["image"]
    ports = {port["name"] for port in container["ports"]}
    assert {port["targetPort"] for port in service["spec"]["ports"]} == ports
    volumes = {volume["name"] for volume in deployment["spec"]["template"]["spec"]["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    assert service["spec"]["selector"] == deployment["spec"]["template"]["metadata"]["labels"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model_config_list {", "must be a ModelServerConfig in text format"),
        ("", "must hold at least one config"),
        ("model_config_list { config { name: 'a' } }", "`name` and `base_path` must be given"),
        ("model_config_list { config { name: 'a' base_path: 'b' model_platform: 'caffe' } }", "must be 'tensorflow'"),
        (
            "model_config_list { config { name: 'a' base_path: 'b' model_version_policy { specific {} } } }",
            "`specific` must name at least one of the `versions` of a",
        ),
        (
            "model_config_list { config { name: 'a' base_path: 'b' } config { name: 'a' base_path: 'c' } }",
            "each `name` must occur once",
        ),
    ],
)
def test_a_models_config_that_is_wrong_is_named(tmp_path, text, message):
    path = tmp_path / "models.config"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"models.config.*{re.escape(message)}"):
        read_model_configs(path)


def test_unknown_batching_parameter(tmp_path):
    path = tmp_path / "batching.config"
    path.write_text("max_batch_sizes { value: 3 }")
    with pytest.raises(ValueError, match="must be a BatchingParameters in text format"):
        read_batching_parameters(path)
