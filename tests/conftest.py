"""What the whole suite shares."""

import hypothesis

# The same examples in every run, and no limits of time: a busy machine changes no verdict.
hypothesis.settings.register_profile(
    "suite",
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("suite")


def pytest_sessionfinish(session, exitstatus):
    """Stores how the run ended, for `.ci/run`: make reports its own status only."""
    config = session.config
    if not hasattr(config, "workerinput") and getattr(config, "cache", None) is not None:
        config.cache.set("cmimh/exit_status", int(exitstatus))
