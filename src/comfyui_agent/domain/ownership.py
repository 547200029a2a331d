"""Who may change which jobs, batches and books."""

from __future__ import annotations

from dataclasses import dataclass

from comfyui_agent.domain.tokens import Role, Token


@dataclass(frozen=True)
class Rights:
    """What a caller may change: everything, what one token made, or nothing."""

    everything: bool = False
    token_id: int | None = None

    def cover(self, created_by: int | None) -> bool:
        """Whether a job, batch or book may be changed. `created_by` is None for files and the command line."""
        return self.everything or (self.token_id is not None and created_by == self.token_id)


ALL = Rights(everything=True)


def rights_of(role: Role, token: Token | None) -> Rights:
    """Admins and shared tokens change everything, users what their token made."""
    if not role.includes(Role.USER):
        return Rights()
    if role is Role.ADMIN or (token is not None and token.is_shared):
        return ALL
    return Rights(token_id=token.id if token is not None else None)
