"""How fast it goes and how long it will take, as people say it."""

from __future__ import annotations

from comfyui_agent.domain.pace import duration_of, rate_of


def test_a_rate_is_said_in_the_unit_that_reads_best() -> None:
    for per_minute, text in [
        (120.0, "2.0 images/s"),
        (7407.36, "123.5 images/s"),
        (119.4, "119.4 images/min"),
        (1.0, "1.0 images/min"),
        (0.06, "0.1 images/min"),
    ]:
        assert rate_of(per_minute) == text, (per_minute, text)


def test_a_duration_is_said_as_people_say_it() -> None:
    for seconds, text in [
        (0, "1 s"),
        (0.2, "1 s"),
        (40, "40 s"),
        (89.4, "89 s"),
        (90, "2 min"),
        (12 * 60, "12 min"),
        (89 * 60, "89 min"),
        (90 * 60, "1 h 30 min"),
        (3 * 3600 + 20 * 60, "3 h 20 min"),
        (119.6 * 60, "2 h 0 min"),
        (47 * 3600 + 59 * 60, "47 h 59 min"),
        (48 * 3600, "2 d 0 h"),
        (52 * 3600, "2 d 4 h"),
        (400 * 86400, "400 d 0 h"),
    ]:
        assert duration_of(seconds) == text, (seconds, text)
