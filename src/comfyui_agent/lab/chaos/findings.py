"""What a scenario finds while it runs, and the verdict on it."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from pydantic import PrivateAttr

from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import TextEnum
from comfyui_agent.lab.measurement.machine import utc_text
from comfyui_agent.lab.reports.chaos import Check, ScenarioResult, Stage

if TYPE_CHECKING:
    from comfyui_agent.lab.chaos.sandbox import Sandbox


class ScenarioOutcome(TextEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class Skipped(Exception):
    """A scenario cannot be run here: why, and what it needs."""


class Findings(ScenarioResult):
    """The result of a scenario while it grows."""

    _fault_at: float | None = PrivateAttr(None)

    def check(self, what: str, expected: str, seen: object, passed: bool) -> None:
        self.checks.append(Check(what=what, expected=expected, seen=str(seen), passed=passed))

    def begin(self, moment: float, what: str) -> None:
        self._fault_at = moment
        self.stage("fault", moment, what)

    def stage(self, name: str, moment: float | None, what: str) -> None:
        """Note when something happened. Nothing is noted if it never did."""
        if moment is None:
            return
        seconds = moment - (self._fault_at if self._fault_at is not None else moment)
        self.stages.append(Stage(stage=name, seconds=round(seconds, 3), ts=utc_text(moment), what=what))

    async def check_all_end(self, sandbox: Sandbox, *, so_far: bool = True) -> bool:
        """Wait for the end of every page, and check that they did end; `so_far` says whether earlier ones did."""
        has_ended = so_far and await sandbox.until_all_ended()
        counts = await sandbox.counts()
        left = counts.total - counts.done - counts.failed
        seen = f"{left} of {counts.total} did not" + ("" if sandbox.is_agent_alive else "; the agent is gone")
        self.check("every page", "ends", "they do" if has_ended else seen, has_ended)
        return has_ended

    async def check_others_done(self, sandbox: Sandbox, apart: Collection[int] = ()) -> None:
        """All pages are done, except those whose job ids are in `apart`."""
        others = [job for job in await sandbox.jobs() if job.id not in apart]
        done = sum(job.status is JobStatus.DONE for job in others)
        what = "the other pages" if apart else "the pages"
        self.check(what, f"all {len(others)} done", f"{done} done", done == len(others))

    async def check_pages_get_done(self, sandbox: Sandbox) -> None:
        """Wait for the first page that is done: the agent works before anything is broken."""
        began = await sandbox.until_one_is_done()
        self.check("before the fault", "pages get done", "they do" if began else "nothing is done", began)

    def recovered(self, moment: float | None, since: float | None = None) -> None:
        """Work went on at this moment. It is counted from the fault, or from `since`."""
        since = self._fault_at if since is None else since
        if moment is not None and since is not None:
            self.recovery_sec = round(max(0.0, moment - since), 3)


def judge(findings: Findings, most_recovery: float) -> tuple[ScenarioOutcome, str]:
    """Passed if every check did and recovery was within the limit; else the first check that did not pass."""
    failed = [check for check in findings.checks if not check.passed]
    if failed:
        more = f", and {len(failed) - 1} more" if len(failed) > 1 else ""
        return ScenarioOutcome.FAILED, f"{failed[0].what}: expected {failed[0].expected}, saw {failed[0].seen}{more}"
    if not findings.checks:
        return ScenarioOutcome.FAILED, "nothing was checked"
    recovery = findings.recovery_sec
    if recovery is not None and recovery > most_recovery:
        return ScenarioOutcome.FAILED, f"it took {recovery:.1f} s to recover; the target is {most_recovery:g} s"
    back = f", back after {recovery:.1f} s" if recovery is not None else ""
    return ScenarioOutcome.PASSED, f"all {len(findings.checks)} checks passed{back}"
