"""Loaders and text encoders."""

from __future__ import annotations

from dataclasses import replace

from comfyui_agent.sim.engine.node_run import Behaviour, NodeRun, Result
from comfyui_agent.sim.engine.values import Conditioning, Model
from comfyui_agent.sim.prompt_queue import Json


def checkpoint(run: NodeRun, inputs: Json) -> Result:
    kinds = [str(kind).lower() for kind in run.definition.output]
    return Result(tuple(Model(kind, inputs["ckpt_name"]) for kind in kinds))


def weights(run: NodeRun, inputs: Json) -> Result:
    """A loader of one file, which its first input names."""
    name = str(next(iter(inputs.values()), ""))
    return Result((Model(str(run.definition.output[0]).lower(), name),))


def lora(_: NodeRun, inputs: Json) -> Result:
    addition = (f"{inputs['lora_name']}*{inputs['strength_model']}",)
    changed = (replace(inputs[kind], additions=inputs[kind].additions + addition) for kind in ("model", "clip"))
    return Result(tuple(changed))


def encode_text(_: NodeRun, inputs: Json) -> Result:
    return Result((Conditioning(inputs["text"]),))


def combine(_: NodeRun, inputs: Json) -> Result:
    return Result((Conditioning(f"{inputs['conditioning_1'].text} {inputs['conditioning_2'].text}"),))


BEHAVIOURS: dict[str, Behaviour] = {
    "CheckpointLoaderSimple": checkpoint,
    "ImageOnlyCheckpointLoader": checkpoint,
    "VAELoader": weights,
    "UNETLoader": weights,
    "CLIPLoader": weights,
    "ControlNetLoader": weights,
    "UpscaleModelLoader": weights,
    "LoraLoader": lora,
    "CLIPTextEncode": encode_text,
    "ConditioningCombine": combine,
}
