"""The versions of models in memory: finds them on disk, loads and warms them up, drains and unloads them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from serving.errors import ServingError, from_exception, invalid_argument
from serving.server.config_files import ModelConfig, read_model_configs
from serving.server.servable import Servable
from serving.server.settings import Settings

logger = logging.getLogger(__name__)

_KEPT_ENDED_VERSIONS = 16
_DRAIN_POLL_SECONDS = 0.01
_MAX_VERSION = 2**63 - 1


@dataclass
class VersionStatus:
    """The status of one version.

    Attributes:
        state: START, LOADING, AVAILABLE, UNLOADING or END.
        error_code, error_message: the error of a version that could not be loaded; otherwise "OK" and empty.
        files: the files of a version that could not be loaded; it is loaded again when they change.
    """

    state: str = "START"
    error_code: str = "OK"
    error_message: str = ""
    files: frozenset[tuple[str, int, int]] = frozenset()


class Lease:
    """Keeps a servable in memory until the end of the block. A class, because a generator takes three times as long."""

    __slots__ = ("_lock", "_servable")

    def __init__(self, servable: Servable, lock: threading.Lock):
        self._servable, self._lock = servable, lock

    def __enter__(self) -> Servable:
        return self._servable

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._servable.uses -= 1


class ModelStore:
    """The served models. `poll` runs in its own thread; the other methods may run in any thread.

    Args:
        settings: the models, and the time between two polls.
        load: creates a `Servable`; replaced in tests.
    """

    def __init__(self, settings: Settings, load: Callable[[str, int, Path], Servable] | None = None):
        self._settings = settings
        self._load = load or partial(Servable, num_threads=settings.threads_per_batch)
        self._lock = threading.Lock()
        self._serving: dict[str, dict[int, Servable]] = {}
        self._statuses: dict[str, dict[int, VersionStatus]] = {}
        self._configs = self._read_configs()
        self._config_text = self._read_config_text()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Loads the versions on disk, then polls in the background until `stop`."""
        self.poll()
        self._thread = threading.Thread(target=self._poll_until_stopped, name="model-store", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends polling and frees all models. No request may be running."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            servables = [servable for versions in self._serving.values() for servable in versions.values()]
            self._serving = {}
        for servable in servables:
            servable.close()

    def acquire(self, name: str, version: int | None = None, label: str | None = None) -> Lease:
        """Use as `with store.acquire(name) as servable`: the version stays in memory inside the block.

        Args:
            name: of the model.
            version: None means the greatest available version.
            label: of the version; at most one of `version` and `label` is given.

        Raises:
            ServingError: NOT_FOUND if there is no such model or version, INVALID_ARGUMENT if there is no such label,
                UNAVAILABLE if the version is being loaded.
        """
        with self._lock:
            versions = self._serving.get(name)
            if label is not None:
                version = self._version_of_label(name, label)
            if versions and version is None:
                version = max(versions)
            servable = versions.get(version) if versions and version is not None else None
            if servable is None:
                if self._is_loading(name, version):
                    raise ServingError("UNAVAILABLE", f"Model {name} is being loaded.")
                request = f"Latest({name})" if version is None else f"Specific({name}, {version})"
                raise ServingError("NOT_FOUND", f"Servable not found for request: {request}")
            servable.uses += 1
        return Lease(servable, self._lock)

    def statuses(self, name: str, version: int | None = None, label: str | None = None) -> dict[int, VersionStatus]:
        """The statuses of a model's versions, the greatest version first, as in TF Serving.

        Raises:
            ServingError: NOT_FOUND or INVALID_ARGUMENT, as `acquire`.
        """
        with self._lock:
            if label is not None:
                version = self._version_of_label(name, label)
            known = dict(self._statuses.get(name, {}))
        if version is not None:
            if version not in known:
                raise ServingError("NOT_FOUND", f"Could not find version {version} of model {name}")
            return {version: known[version]}
        if not known:
            raise ServingError("NOT_FOUND", f"Could not find any versions of model {name}")
        return {number: known[number] for number in sorted(known, reverse=True)}

    def is_configured(self, name: str) -> bool:
        """Whether the configuration has a model of this name, loaded or not."""
        return name in self._configs

    def is_ready(self) -> bool:
        """Whether every model has an available version."""
        with self._lock:
            return all(self._serving.get(name) for name in self._configs)

    def poll(self) -> None:
        """Loads new versions from disk, then unloads those that are no longer configured."""
        self._reload_config()
        for config in list(self._configs.values()):
            wanted = config.choose(list(_versions_on_disk(config.base_path)))
            for version in wanted:
                if not self._stop.is_set():
                    self._load_version(config, version)
            # Old versions stay until a new one is available.
            if any(version in self._serving.get(config.name, {}) for version in wanted):
                self._unload(config.name, keep=wanted)
        for name in set(self._serving) - set(self._configs):
            self._unload(name, keep=[])

    def _poll_until_stopped(self) -> None:
        while not self._stop.wait(self._settings.poll_seconds):
            try:
                self.poll()
            except Exception:
                logger.exception("looking for new versions failed; the loaded versions keep serving")

    def _load_version(self, config: ModelConfig, version: int) -> None:
        if version in self._serving.get(config.name, {}):
            return
        folder = _versions_on_disk(config.base_path).get(version)
        files = _files(folder) if folder is not None else frozenset()
        before = self._statuses.get(config.name, {}).get(version)
        if folder is None or (before is not None and before.error_code != "OK" and before.files == files):
            return
        self._set_status(config.name, version, VersionStatus("LOADING"))
        started = time.perf_counter()
        try:
            servable = self._load(config.name, version, folder)
        except Exception as error:
            problem = from_exception(error)
            self._set_status(config.name, version, VersionStatus("END", problem.code, problem.message, files))
            logger.error("version could not be loaded", extra=_fields(config.name, version, error=problem.message))
            return
        with self._lock:
            self._serving = {**self._serving, config.name: {**self._serving.get(config.name, {}), version: servable}}
        self._set_status(config.name, version, VersionStatus("AVAILABLE"))
        seconds = round(time.perf_counter() - started, 3)
        logger.info("version is serving", extra=_fields(config.name, version, seconds=seconds))

    def _unload(self, name: str, keep: list[int]) -> None:
        for version in sorted(set(self._serving.get(name, {})) - set(keep)):
            with self._lock:
                versions = dict(self._serving[name])
                servable = versions.pop(version)
                self._serving = {**self._serving, name: versions}
            self._set_status(name, version, VersionStatus("UNLOADING"))
            self._drain(servable)
            servable.close()
            self._set_status(name, version, VersionStatus("END"))
            logger.info("version was unloaded", extra=_fields(name, version))
        with self._lock:
            ended = [number for number, status in self._statuses.get(name, {}).items() if status.state == "END"]
            for number in sorted(ended)[:-_KEPT_ENDED_VERSIONS]:
                del self._statuses[name][number]

    def _drain(self, servable: Servable) -> None:
        # Requests have a time limit, so this ends.
        deadline = time.monotonic() + self._settings.request_timeout + 5
        while servable.uses and time.monotonic() < deadline:
            time.sleep(_DRAIN_POLL_SECONDS)

    def _is_loading(self, name: str, version: int | None) -> bool:
        """Whether the version, or any version if it is None, is being loaded."""
        known = self._statuses.get(name, {})
        statuses = known.values() if version is None else [known[version]] if version in known else []
        return any(status.state in ("START", "LOADING") for status in statuses)

    def _set_status(self, name: str, version: int, status: VersionStatus) -> None:
        with self._lock:
            self._statuses.setdefault(name, {})[version] = status

    def _version_of_label(self, name: str, label: str) -> int:
        config = self._configs.get(name)
        if config is None or label not in config.labels:
            raise invalid_argument(f"Unrecognized servable version label: {label}")
        return config.labels[label]

    def _read_configs(self) -> dict[str, ModelConfig]:
        settings = self._settings
        if settings.model_config_file is not None:
            return {config.name: config for config in read_model_configs(settings.model_config_file)}
        assert settings.model_base is not None
        return {settings.model_name: ModelConfig(settings.model_name, settings.model_base)}

    def _read_config_text(self) -> str | None:
        path = self._settings.model_config_file
        return None if path is None else path.read_text(encoding="utf-8")

    def _reload_config(self) -> None:
        try:
            text = self._read_config_text()
            if text == self._config_text:
                return
            configs = self._read_configs()
        except (ValueError, OSError) as error:
            logger.error(
                "the configuration file cannot be read; the previous configuration stays", extra={"error": str(error)}
            )
            return
        with self._lock:
            self._configs, self._config_text = configs, text
        logger.info("the configuration file was read again", extra={"models": sorted(configs)})


def _versions_on_disk(base_path: Path) -> dict[int, Path]:
    """Version folders by number. Other names are ignored, and so are leading zeros."""
    try:
        folders = [entry for entry in base_path.iterdir() if entry.name.isascii() and entry.name.isdecimal()]
    except OSError:
        return {}
    numbered = {int(entry.name): entry for entry in folders if entry.is_dir()}
    return {number: entry for number, entry in numbered.items() if number <= _MAX_VERSION}


def _files(folder: Path) -> frozenset[tuple[str, int, int]]:
    found = set()
    for path in folder.rglob("*"):
        try:
            status = path.stat()
        except OSError:
            continue
        found.add((str(path), status.st_size, status.st_mtime_ns))
    return frozenset(found)


def _fields(name: str, version: int, **more: object) -> dict[str, object]:
    return {"model": name, "version": version, **more}
