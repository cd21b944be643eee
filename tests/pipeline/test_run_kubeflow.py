"""The same pipeline compiles for Kubeflow Pipelines v2."""

import argparse
import json

import pytest

from pipeline.run_kubeflow import compile_pipeline

pytest.importorskip("kfp.pipeline_spec", reason="kfp-pipeline-spec contradicts TFX on Python 3.10")


@pytest.mark.filterwarnings("ignore")
def test_specification_has_all_components(tmp_path):
    output = tmp_path / "cmimh.json"
    compile_pipeline(
        argparse.Namespace(
            data="emoji",
            root="gs://bucket/root",
            serving=None,
            image="registry/cmimh:1",
            name="cmimh",
            output=output,
            beam=["runner=DataflowRunner"],
            preset="smoke",
            bits=None,
            epochs=None,
            seed=0,
            set=[],
        )
    )
    specification = json.loads(output.read_text())["pipelineSpec"]
    tasks = set(specification["root"]["dag"]["tasks"])
    assert {"PairExampleGen", "StatisticsGen", "SchemaGen", "ExampleValidator", "Transform", "Trainer",
            "RetrievalEvaluator", "SavedModelCheck", "Pusher"} <= tasks  # fmt: skip
    containers = [executor["container"] for executor in specification["deploymentSpec"]["executors"].values()
                  if "container" in executor]  # fmt: skip
    assert {container["image"] for container in containers} == {"registry/cmimh:1"}
    assert any("--runner=DataflowRunner" in argument for container in containers for argument in container["args"])
