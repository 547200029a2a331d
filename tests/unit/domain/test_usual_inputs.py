"""The inputs that people think of are found by following links, whatever nodes and inputs are called."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comfyui_agent.domain.binding import Places, Recipe, bind
from comfyui_agent.domain.prompts import NoSuchPlace
from comfyui_agent.domain.usual_inputs import usual_inputs

RECIPE = Recipe("wf", "wf.json")


def node(class_type: str, **inputs: Any) -> dict[str, Any]:
    return {"class_type": class_type, "inputs": inputs}


def sampler(**inputs: Any) -> dict[str, Any]:
    links = {"model": ["1", 0], "positive": ["2", 0], "negative": ["3", 0], "latent_image": ["4", 0]}
    values = {"seed": 1, "steps": 20, "cfg": 7.0, "sampler_name": "euler", "scheduler": "normal", "denoise": 1.0}
    return node("KSampler", **links | values | inputs)


PLAIN = {
    "1": node("CheckpointLoaderSimple", ckpt_name="a"),
    "2": node("CLIPTextEncode", text="a fox", clip=["1", 1]),
    "3": node("CLIPTextEncode", text="blurry", clip=["1", 1]),
    "4": node("EmptyLatentImage", width=512, height=768, batch_size=1),
    "5": sampler(),
}
FLUX = {
    "1": node("UNETLoader", unet_name="a", weight_dtype="default"),
    "2": node("LoraLoaderModelOnly", lora_name="b", model=["1", 0], strength_model=1.0),
    "3": node("CLIPTextEncodeFlux", clip=["9", 0], clip_l="a fox", t5xxl="a fox", guidance=3.5),
    "4": node("FluxGuidance", conditioning=["3", 0], guidance=3.5),
    "5": node("BasicGuider", model=["2", 0], conditioning=["4", 0]),
    "6": node("RandomNoise", noise_seed=1),
    "7": node("KSamplerSelect", sampler_name="euler"),
    "8": node("BasicScheduler", model=["2", 0], scheduler="simple", steps=20, denoise=1.0),
    "9": node("DualCLIPLoader", clip_name1="a", clip_name2="b"),
    "10": node("EmptySD3LatentImage", width=["12", 0], height=1024, batch_size=1),
    "11": node(
        "SamplerCustomAdvanced",
        noise=["6", 0],
        guider=["5", 0],
        sampler=["7", 0],
        sigmas=["8", 0],
        latent_image=["10", 0],
    ),
    "12": node("PrimitiveInt", value=1024),
}
FILM = {
    "1": node("UNETLoader", unet_name="a"),
    "2": node("CLIPTextEncode", text=["8", 0], clip=["9", 0]),
    "3": node("CLIPTextEncode", text="static", clip=["9", 0]),
    "4": node("WanImageToVideo", positive=["2", 0], negative=["3", 0], width=832, height=480, length=81, batch_size=1),
    "5": sampler(positive=["4", 0], negative=["4", 1], latent_image=["4", 2]),
    "6": node("LoadImage", image="a.png"),
    "7": node("CreateVideo", images=["5", 0], fps=16),
    "8": node("PrimitiveStringMultiline", value="a fox runs"),
}
SETTINGS = {name: (f"5.{name}",) for name in ("seed", "steps", "cfg", "scheduler", "denoise")} | {
    "sampler": ("5.sampler_name",)
}


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        pytest.param(
            PLAIN,
            SETTINGS
            | {"prompt": ("2.text",), "negative_prompt": ("3.text",), "checkpoint": ("1.ckpt_name",)}
            | {"width": ("4.width",), "height": ("4.height",), "batch": ("4.batch_size",)},
            id="a picture",
        ),
        pytest.param(
            FLUX,
            {
                "prompt": ("3.clip_l", "3.t5xxl"),
                "seed": ("6.noise_seed",),
                "steps": ("8.steps",),
                "sampler": ("7.sampler_name",),
                "scheduler": ("8.scheduler",),
                "denoise": ("8.denoise",),
                "width": ("12.value",),
                "height": ("10.height",),
                "batch": ("10.batch_size",),
                "checkpoint": ("1.unet_name",),
                "loras": ("2.lora_name",),
            },
            id="a sampler in parts, without a negative prompt",
        ),
        pytest.param(
            FILM,
            SETTINGS
            | {"prompt": ("8.value",), "negative_prompt": ("3.text",), "checkpoint": ("1.unet_name",)}
            | {"width": ("4.width",), "height": ("4.height",), "batch": ("4.batch_size",), "frames": ("4.length",)}
            | {"image": ("6.image",), "fps": ("7.fps",)},
            id="a film from a picture, with its prompt in a node of its own",
        ),
        pytest.param({"1": node("EmptyImage", width=1), "2": node("SaveImage", images=["1", 0])}, {}, id="no sampler"),
    ],
)
def test_the_usual_inputs_are_found(graph: dict[str, Any], expected: dict[str, tuple[str, ...]]) -> None:
    assert usual_inputs(graph) == expected


def test_a_title_of_its_own_tells_numbered_inputs_apart() -> None:
    def titled(second: str, third: str) -> Places:
        passes = {"9": sampler(latent_image=["5", 0]), "8": sampler(latent_image=["9", 0])}
        titles = {"9": {"_meta": {"title": second}}, "8": {"_meta": {"title": third}}}
        return Places({**PLAIN, **{each: passes[each] | titles[each] for each in passes}})

    places = titled("Upscale sampler (2x)", "KSampler")
    assert places.find("seed_upscale_sampler_2x") == places.find("Seed upscale-sampler 2x") == ["9.seed"]
    assert "seed_ksampler" not in places.titled, "a title that the class gives is none of its own"
    with pytest.raises(NoSuchPlace, match=r"fits several places: seed_2 \(.*, seed_3 \("):
        titled("Refine", "Refine").find("seed_refine")
    with pytest.raises(NoSuchPlace, match="did you mean seed_upscale_sampler_2x"):
        places.find("seed_upscale_sampler")


def test_a_second_pass_has_numbered_names_and_shares_its_prompts() -> None:
    second = sampler(latent_image=["6", 0], seed=2)
    graph = {**PLAIN, "1": PLAIN["1"], "6": node("LatentUpscaleBy", samples=["5", 0], scale_by=1.5), "0": second}
    found = usual_inputs(graph)
    assert (found["seed_1"], found["seed_2"]) == (("5.seed",), ("0.seed",)), "in the order of work, not of ids"
    assert (found["prompt"], found["width"]) == (("2.text",), ("4.width",))
    with pytest.raises(NoSuchPlace, match=r"'seed' fits several places: seed_1 \(5.seed \(KSampler\)\), seed_2"):
        Places(graph).find("seed")
    assert bind(Places(graph), RECIPE, {"seed_2": 9, "prompt": "a hare"}) == {"0.seed": 9, "2.text": "a hare"}


def test_a_zeroed_negative_is_no_negative_prompt() -> None:
    zeroed = {**PLAIN, "3": node("ConditioningZeroOut", conditioning=["2", 0])}
    assert "negative_prompt" not in usual_inputs(zeroed)


def test_combined_texts_are_several() -> None:
    combined = {**PLAIN, "6": node("ConditioningCombine", conditioning_1=["2", 0], conditioning_2=["7", 0])}
    combined |= {"7": node("CLIPTextEncode", text="at night", clip=["1", 1]), "5": sampler(positive=["6", 0])}
    found = usual_inputs(combined)
    assert (found["prompt_1"], found["prompt_2"]) == (("2.text",), ("7.text",))


def test_an_input_of_that_name_comes_first() -> None:
    graph = {**PLAIN, "6": node("Describe", prompt="a picture of")}
    assert Places(graph).find("prompt") == ["6.prompt"]


links = st.tuples(st.sampled_from("123456"), st.integers(0, 2)).map(list)
names = st.sampled_from(["model", "positive", "negative", "guider", "latent_image", "text", "seed", "sigmas", "value"])
nodes = st.builds(
    lambda kind, inputs: {"class_type": kind, "inputs": inputs},
    st.sampled_from(["KSampler", "LoadImage", "Other"]),
    st.dictionaries(names, links | st.integers() | st.text(max_size=3)),
)


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.sampled_from("123456"), nodes))
def test_whatever_is_linked_to_whatever_only_places_are_found(graph: dict[str, Any]) -> None:
    places = Places(graph)
    for found in usual_inputs(graph).values():
        assert all(not places.all[place].is_link for place in found)


def test_thousands_of_samplers_in_a_ring_take_no_time() -> None:
    graph = {str(number): sampler(latent_image=[str((number + 1) % 5000), 0]) for number in range(5000)}
    began = time.process_time()
    usual_inputs(graph)
    assert time.process_time() - began < 5
