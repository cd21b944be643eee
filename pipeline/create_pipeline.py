"""The pipeline: its components, in the order in which they run."""

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ml_metadata.proto import metadata_store_pb2
from tfx import v1 as tfx
from tfx.dsl.components.base import executor_spec
from tfx.dsl.components.base.base_node import BaseNode

from cmimh_tf.config import CMIMHConfig
from cmimh_tf.features.registry import DEFAULT_IMAGE_FEATURES, DEFAULT_TEXT_FEATURES
from pipeline.components.evaluator import RetrievalEvaluator, Thresholds
from pipeline.components.example_gen import DEFAULT_COUNT, PairExampleGen
from pipeline.components.example_validator import StrictExampleValidatorExecutor
from pipeline.components.index_builder import IndexBuilder
from pipeline.components.pusher import AtomicPusherExecutor
from pipeline.components.saved_model_check import SavedModelCheck
from pipeline.examples import DATABASE, QUERY, SPLITS, TRAIN
from pipeline.network_features import feature_versions
from pipeline.transform import DEFAULT_PCA_UNITS, DEFAULT_VOCABULARY_SIZE


@dataclass(frozen=True)
class PipelineOptions:
    """The data, the model and the settings of a run.

    Attributes:
        source: the name of a data set, or a path; see `cmimh_tf.data.sources.open_records`.
        config: of the model and its training; its seed also splits the data.
        fingerprint: of the data, so that changed data are read again.
        num_queries, num_train: sizes of the splits; None for the defaults of `cmimh_tf.data.splits`.
        protocol: "all", or "paper" for at most 5,000 training pairs by default.
        pca_units: the maximum width of vectors; wider ones are projected. None for no limit.
        vocabulary_size: the number of caption words that `bag_of_words` uses.
        image_features, text_features: names of `cmimh_tf.features.registry`.
        features_cache: folder that keeps computed features if a run is interrupted; "" for none.
        thresholds: the conditions for a blessing.
        schema_file: a curated schema; None infers one.
        checkpoint_root: folder that keeps checkpoints if a run is interrupted; "" for none.
        tune_trials: number of settings of the loss weights to try before training; 0 skips the search.
        tuning_root: folder that keeps a search if a run is interrupted; "" for none.
        docker_check: adds TFX's InfraValidator, which runs TF Serving in Docker.
    """

    source: str
    config: CMIMHConfig
    fingerprint: str = ""
    num_queries: int | None = None
    num_train: int | None = None
    protocol: str = "all"
    pca_units: int | None = DEFAULT_PCA_UNITS
    vocabulary_size: int = DEFAULT_VOCABULARY_SIZE
    image_features: str = DEFAULT_IMAGE_FEATURES
    text_features: str = DEFAULT_TEXT_FEATURES
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
    index_directory: str | None = None,
    metadata_connection_config: metadata_store_pb2.ConnectionConfig | None = None,
    beam_pipeline_args: list[str] | None = None,
    enable_cache: bool = True,
) -> tfx.dsl.Pipeline:
    """Creates the pipeline, for any runner.

    Args:
        pipeline_name: the name in the metadata store.
        pipeline_root: folder for artifacts.
        serving_directory: folder to push blessed models to, in numbered subfolders.
        options: the data, the model and the settings.
        index_directory: local folder for search indexes, in subfolders numbered like the models; None builds none.
        metadata_connection_config: the metadata store; None if the runner provides one.
        beam_pipeline_args: flags for the components that use Beam.
        enable_cache: whether to reuse results of unchanged components.
    """
    config = options.config
    plain_config = json.loads(json.dumps(config.to_dict()))
    features = {"image_features": options.image_features, "text_features": options.text_features}

    # Reads, checks and splits the pairs, and computes features that need a network.
    example_gen = PairExampleGen(
        source=options.source,
        fingerprint=options.fingerprint,
        seed=config.seed,
        num_queries=options.num_queries or DEFAULT_COUNT,
        num_train=options.num_train or DEFAULT_COUNT,
        protocol=options.protocol,
        features_version=" ".join(feature_versions(**features)),
        features_cache=options.features_cache,
        **features,
    )
    examples = example_gen.outputs["examples"]

    # Computes statistics of all splits.
    statistics_gen = tfx.components.StatisticsGen(examples=examples)
    statistics = statistics_gen.outputs["statistics"]

    # Imports the curated schema, or infers one from the statistics.
    if options.schema_file:
        schema_gen = tfx.components.ImportSchemaGen(schema_file=options.schema_file)
        schema_gen.add_upstream_node(statistics_gen)
    else:
        schema_gen = tfx.components.SchemaGen(statistics=statistics, infer_feature_shape=True)
    schema = schema_gen.outputs["schema"]

    # Stops the run if the data do not match the schema.
    example_validator = tfx.components.ExampleValidator(statistics=statistics, schema=schema)
    example_validator.executor_spec = executor_spec.ExecutorClassSpec(StrictExampleValidatorExecutor)

    # Fits the preprocessing on the training pairs and applies it to all pairs.
    transform = tfx.components.Transform(
        examples=examples,
        schema=schema,
        preprocessing_fn="pipeline.transform.preprocessing_fn",
        splits_config=tfx.proto.SplitsConfig(analyze=[TRAIN], transform=list(SPLITS)),
        custom_config={
            "input_norm": config.network.input_norm,
            "pca_units": options.pca_units,
            "vocabulary_size": options.vocabulary_size,
            **features,
        },
        # Statistics would double the time, and for wide vectors the analyzer cache is larger than the data.
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
                tuner_fn="pipeline.trainer.tuner_fn",
                examples=transformed_examples,
                transform_graph=transform_graph,
                custom_config={
                    "config": plain_config,
                    "trials": options.tune_trials,
                    "tuning_root": options.tuning_root,
                    "title": pipeline_name,
                },
                train_args=tfx.proto.TrainArgs(splits=[TRAIN]),
                eval_args=tfx.proto.EvalArgs(splits=[DATABASE]),
            )
        )

    # Trains the model and exports it with the preprocessing.
    trainer = tfx.components.Trainer(
        run_fn="pipeline.trainer.run_fn",
        examples=transformed_examples,
        transform_graph=transform_graph,
        schema=schema,
        hyperparameters=tuners[0].outputs["best_hyperparameters"] if tuners else None,
        custom_config={"config": plain_config, "checkpoint_root": options.checkpoint_root, **features},
        train_args=tfx.proto.TrainArgs(splits=[TRAIN]),
        eval_args=tfx.proto.EvalArgs(splits=[QUERY]),
    )
    model, model_run = trainer.outputs["model"], trainer.outputs["model_run"]

    # Finds the latest blessed model of earlier runs.
    model_resolver = tfx.dsl.Resolver(
        strategy_class=tfx.dsl.experimental.LatestBlessedModelStrategy,
        model=tfx.dsl.Channel(type=tfx.types.standard_artifacts.Model),
        model_blessing=tfx.dsl.Channel(type=tfx.types.standard_artifacts.ModelBlessing),
    ).with_id("BlessedModelResolver")
    model_resolver.add_upstream_node(trainer)

    # Measures both models and blesses the new one if it meets the thresholds.
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

    # Checks that the exported model returns the trained model's codes.
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

    # Copies a blessed model to the folder that TF Serving watches.
    pusher = tfx.components.Pusher(
        model=model,
        model_blessing=evaluator.outputs["blessing"],
        infra_blessing=checks[-1].outputs["blessing"],
        push_destination=tfx.proto.PushDestination(
            filesystem=tfx.proto.PushDestination.Filesystem(base_directory=serving_directory)
        ),
        custom_executor_spec=executor_spec.ExecutorClassSpec(AtomicPusherExecutor),
    )

    # Hashes all pairs into a search index of the pushed version.
    index_builders: list[BaseNode] = []
    if index_directory is not None:
        index_builders.append(
            IndexBuilder(
                transformed_examples=transformed_examples,
                transform_graph=transform_graph,
                model_run=model_run,
                pushed_model=pusher.outputs["pushed_model"],
                source=options.source,
                index_directory=index_directory,
            )
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
            *index_builders,
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
    """TFX's own check, which starts TF Serving in Docker."""
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
