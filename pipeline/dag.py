"""The pipeline's components and how they hang together."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ml_metadata.proto import metadata_store_pb2
from tfx import v1 as tfx
from tfx.dsl.components.base import executor_spec
from tfx.dsl.components.base.base_node import BaseNode

from cmimh_tf.config import CMIMHConfig
from pipeline.block_features import default_features, feature_versions
from pipeline.components.atomic_pusher import AtomicPusherExecutor
from pipeline.components.pair_example_gen import DEFAULT_COUNT, PairExampleGen
from pipeline.components.retrieval_evaluator import RetrievalEvaluator
from pipeline.components.saved_model_check import SavedModelCheck
from pipeline.components.strict_example_validator import StrictExampleValidatorExecutor
from pipeline.features import DATABASE, QUERY, SPLITS, TRAIN
from pipeline.preprocessing import DEFAULT_PCA_UNITS, DEFAULT_VOCABULARY_SIZE
from pipeline.thresholds import Thresholds


@dataclass(frozen=True)
class PipelineOptions:
    """What a run is about.

    Attributes:
        source: the name of a data set, or a path; see `pipeline.sources.open_source`.
        fingerprint: of the data.
        config: of the model and its training; its seed also splits the data.
        num_queries, num_train: sizes of the splits; None for the rule's.
        pca_units: the widest that vectors may be; None for no limit.
        vocabulary_size: the most words of captions to know.
        image_features, text_features: names of `cmimh_tf.features.registry`; None for the source's defaults.
        features_cache: a folder where computed features outlive a killed run; "" for none.
        thresholds: when a model is blessed.
        schema_file: a curated schema; None infers one.
        checkpoint_root: a folder that outlives a killed run; "" for none.
        tune_trials: settings of the loss weights to try before training; 0 trains with those of `config`.
        tuning_root: a folder that outlives a killed search; "" for none.
        docker_check: also runs TFX's InfraValidator, with TF Serving in Docker.
    """

    source: str
    config: CMIMHConfig
    fingerprint: str = ""
    num_queries: int | None = None
    num_train: int | None = None
    pca_units: int | None = DEFAULT_PCA_UNITS
    vocabulary_size: int = DEFAULT_VOCABULARY_SIZE
    image_features: str | None = None
    text_features: str | None = None
    features_cache: str = ""
    thresholds: Thresholds = field(default_factory=Thresholds)
    schema_file: str | None = None
    checkpoint_root: str = ""
    tune_trials: int = 0
    tuning_root: str = ""
    docker_check: bool = False


def create_pipeline(
    pipeline_name: str,
    pipeline_root: str,
    serving_directory: str,
    options: PipelineOptions,
    *,
    metadata_connection_config: metadata_store_pb2.ConnectionConfig | None = None,
    beam_pipeline_args: list[str] | None = None,
    enable_cache: bool = True,
) -> tfx.dsl.Pipeline:
    """The pipeline, for any runner.

    Args:
        pipeline_name: under which its metadata are kept.
        pipeline_root: where artifacts go.
        serving_directory: where blessed models are pushed, one numbered folder each.
        options: what the run is about.
        metadata_connection_config: the metadata store; None where the runner has its own.
        beam_pipeline_args: runner and resources for the components that use Beam.
        enable_cache: whether unchanged components are taken from earlier runs.
    """
    config = options.config
    default_image, default_text = default_features(options.source)
    features = {
        "image_features": options.image_features or default_image,
        "text_features": options.text_features or default_text,
    }

    # Reads, checks and splits the pairs, and computes the features that take a network.
    example_gen = PairExampleGen(
        source=options.source,
        fingerprint=options.fingerprint,
        seed=config.seed,
        num_queries=options.num_queries or DEFAULT_COUNT,
        num_train=options.num_train or DEFAULT_COUNT,
        features_version=" ".join(feature_versions(**features)),
        features_cache=options.features_cache,
        **features,
    )
    examples = example_gen.outputs["examples"]

    # Statistics of all splits.
    statistics_gen = tfx.components.StatisticsGen(examples=examples)
    statistics = statistics_gen.outputs["statistics"]

    # The curated schema, or a first one from the statistics.
    if options.schema_file:
        schema_gen = tfx.components.ImportSchemaGen(schema_file=options.schema_file)
        schema_gen.add_upstream_node(statistics_gen)
    else:
        schema_gen = tfx.components.SchemaGen(statistics=statistics, infer_feature_shape=True)
    schema = schema_gen.outputs["schema"]

    # Stops at data that do not fit the schema.
    example_validator = tfx.components.ExampleValidator(statistics=statistics, schema=schema)
    example_validator.executor_spec = executor_spec.ExecutorClassSpec(StrictExampleValidatorExecutor)

    # Fits the preprocessing on the training pairs, and applies it to all.
    transform = tfx.components.Transform(
        examples=examples,
        schema=schema,
        preprocessing_fn="pipeline.preprocessing.preprocessing_fn",
        splits_config=tfx.proto.SplitsConfig(analyze=[TRAIN], transform=list(SPLITS)),
        custom_config={
            "input_norm": config.network.input_norm,
            "pca_units": options.pca_units,
            "vocabulary_size": options.vocabulary_size,
            **features,
        },
        # Its statistics double the time, and its analyzer cache is larger than the data at large widths.
        disable_statistics=True,
        disable_analyzer_cache=True,
    )
    transform.add_upstream_node(example_validator)
    transformed_examples = transform.outputs["transformed_examples"]
    transform_graph = transform.outputs["transform_graph"]

    # Searches for the loss weights, on the training pairs and the database.
    tuners: list[BaseNode] = []
    if options.tune_trials:
        tuners.append(
            tfx.components.Tuner(
                tuner_fn="pipeline.weight_search.tuner_fn",
                examples=transformed_examples,
                transform_graph=transform_graph,
                custom_config={
                    "config": _plain(config),
                    "trials": options.tune_trials,
                    "tuning_root": options.tuning_root,
                    "title": pipeline_name,
                },
                train_args=tfx.proto.TrainArgs(splits=[TRAIN]),
                eval_args=tfx.proto.EvalArgs(splits=[DATABASE]),
            )
        )

    # Trains and exports.
    trainer = tfx.components.Trainer(
        run_fn="pipeline.trainer.run_fn",
        examples=transformed_examples,
        transform_graph=transform_graph,
        schema=schema,
        hyperparameters=tuners[0].outputs["best_hyperparameters"] if tuners else None,
        custom_config={"config": _plain(config), "checkpoint_root": options.checkpoint_root, **features},
        train_args=tfx.proto.TrainArgs(splits=[TRAIN]),
        eval_args=tfx.proto.EvalArgs(splits=[QUERY]),
    )
    model, model_run = trainer.outputs["model"], trainer.outputs["model_run"]

    # The blessed model of earlier runs.
    model_resolver = tfx.dsl.Resolver(
        strategy_class=tfx.dsl.experimental.LatestBlessedModelStrategy,
        model=tfx.dsl.Channel(type=tfx.types.standard_artifacts.Model),
        model_blessing=tfx.dsl.Channel(type=tfx.types.standard_artifacts.ModelBlessing),
    ).with_id("BlessedModelResolver")
    model_resolver.add_upstream_node(trainer)

    # Measures both and blesses the new one or not.
    evaluator = RetrievalEvaluator(
        examples=examples,
        transformed_examples=transformed_examples,
        transform_graph=transform_graph,
        model=model,
        model_run=model_run,
        baseline_model=model_resolver.outputs["model"],
        title=pipeline_name,
        seed=config.seed,
        **dataclasses.asdict(options.thresholds),
    )

    # The exported model must hash as the trained one.
    saved_model_check = SavedModelCheck(
        examples=examples,
        transformed_examples=transformed_examples,
        transform_graph=transform_graph,
        model=model,
        model_run=model_run,
    )
    saved_model_check.add_upstream_node(evaluator)
    checks: list[BaseNode] = [saved_model_check]
    if options.docker_check:
        checks.append(_docker_check(model, examples).with_id("InfraValidator"))

    # Copies a blessed model to where TF Serving looks.
    pusher = tfx.components.Pusher(
        model=model,
        model_blessing=evaluator.outputs["blessing"],
        infra_blessing=checks[-1].outputs["blessing"],
        push_destination=tfx.proto.PushDestination(
            filesystem=tfx.proto.PushDestination.Filesystem(base_directory=serving_directory)
        ),
        custom_executor_spec=executor_spec.ExecutorClassSpec(AtomicPusherExecutor),
    )

    return tfx.dsl.Pipeline(
        pipeline_name=pipeline_name,
        pipeline_root=pipeline_root,
        components=[
            example_gen,
            statistics_gen,
            schema_gen,
            example_validator,
            transform,
            *tuners,
            trainer,
            model_resolver,
            evaluator,
            *checks,
            pusher,
        ],
        metadata_connection_config=metadata_connection_config,
        beam_pipeline_args=beam_pipeline_args,
        enable_cache=enable_cache,
    )


def sqlite_metadata(path: Path) -> metadata_store_pb2.ConnectionConfig:
    """ML Metadata in one SQLite file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return tfx.orchestration.metadata.sqlite_metadata_connection_config(str(path))


def _docker_check(model: Any, examples: Any) -> BaseNode:
    """TFX's own check, in TF Serving's container: needs Docker."""
    return tfx.components.InfraValidator(
        model=model,
        examples=examples,
        serving_spec=tfx.proto.ServingSpec(
            tensorflow_serving=tfx.proto.TensorFlowServing(tags=["latest"]), local_docker=tfx.proto.LocalDockerConfig()
        ),
        request_spec=tfx.proto.RequestSpec(
            tensorflow_serving=tfx.proto.TensorFlowServingRequestSpec(signature_names=["serving_default"])
        ),
    )


def _plain(config: CMIMHConfig) -> dict[str, Any]:
    """JSON-ready: tuples as lists."""
    return {
        name: {key: list(item) if isinstance(item, tuple) else item for key, item in value.items()}
        if isinstance(value, dict)
        else value
        for name, value in config.to_dict().items()
    }
