"""Kinds of jobs: what `job_type` says about the result, and the folder where it goes."""

from __future__ import annotations

FOLDERS = {
    "T2I": "image",
    "I2I": "image",
    "T2V": "video",
    "I2V": "video",
    "AUDIO": "audio",
    "T2A": "audio",
    "SPEECH": "speech",
    "TTS": "speech",
    "T2S": "speech",
    "3D": "3d",
}


def folder_of(job_type: str) -> str:
    """The folder below `jobs/finished`; ValueError for a type that does not exist."""
    try:
        return FOLDERS[job_type.upper()]
    except KeyError:
        raise ValueError(f"job_type {job_type!r} does not exist: use one of {', '.join(FOLDERS)}") from None
