"""The `cmimh` command: every command of the project as a subcommand, such as `cmimh train`."""

import importlib
import sys

_COMMANDS = {
    "train": ("cmimh_tf.train", "learn codes from paired features"),
    "evaluate": ("cmimh_tf.evaluate", "measure retrieval by the codes of a trained model"),
    "hash": ("cmimh_tf.hash", "write the codes of images and texts"),
    "index": ("cmimh_tf.index", "make and change an index of codes"),
    "search": ("cmimh_tf.search.__main__", "find pictures and texts in an index"),
    "data": ("cmimh_tf.data.__main__", "check or prepare data before training"),
    "features": ("cmimh_tf.features.__main__", "compute features of pictures and captions"),
    "spark": ("cmimh_tf.spark.__main__", "compute features and codes on Apache Spark"),
    "baselines": ("cmimh_tf.baselines.__main__", "measure other hashing methods"),
    "experiments": ("cmimh_tf.experiments.__main__", "repeat the tables and figures of the paper"),
    "tune": ("tuner.search", "search for loss weights"),
    "pipeline": ("pipeline.run_local", "run the TFX pipeline from data to a served model"),
    "push": ("serving.push", "export a trained model for a server"),
    "serve": ("serving.server.__main__", "serve models over REST and gRPC"),
    "client": ("serving.client", "hash through a server"),
    "serve-search": ("serving.search.__main__", "serve an index over HTTP, with a page"),
}


def main() -> None:
    """Runs the subcommand that the first argument names."""
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("-h", "--help"):
        print("usage: cmimh COMMAND [options]\n\nCross-modal hashing: short binary codes for pictures and texts.\n")
        print("\n".join(f"  {command:<12} {help_text}" for command, (_, help_text) in _COMMANDS.items()))
        print(
            "\n`cmimh COMMAND --help` explains a command. `python -m MODULE` runs the same: `python -m cmimh_tf.train`."
        )
        return
    if name not in _COMMANDS:
        sys.exit(f"error: unknown command {name!r}. Commands: {', '.join(_COMMANDS)}.")
    sys.argv = [f"cmimh {name}", *sys.argv[2:]]
    importlib.import_module(_COMMANDS[name][0]).main()


if __name__ == "__main__":
    main()
