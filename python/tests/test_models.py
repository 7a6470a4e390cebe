# SPDX-License-Identifier: Apache-2.0
"""Language models and text encoders: the tiny ones of the tests, beside what transformers computed."""

import json
import math
import shutil
import signal

import numpy as np
import pytest
from conftest import ROOT

import vkformer as vkf

FAMILIES = sorted(p.name for p in (ROOT / "tests/decoders").iterdir() if (p / "expected.safetensors").exists())
GENERATE = ROOT / "samples/generate"
needs_text = pytest.mark.skipif(not vkf._vkformer.has_text, reason="built without tokenizers")


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_tokens(family):
    folder = ROOT / "tests/decoders" / family
    expected = vkf.Safetensors(folder / "expected.safetensors")
    prompt, want = expected["prompt"].numpy().ravel(), expected["greedy"].numpy().ravel()
    model = vkf.load_decoder(folder, max_tokens=len(prompt) + len(want), score=True, chunk=8)
    got = list(model.stream_ids(prompt, len(want), ignore_end=True))
    assert got == want.tolist()
    logits = model.score(expected["ids"].numpy().ravel().tolist())
    np.testing.assert_allclose(logits, expected["logits"].numpy(), atol=2e-3, rtol=1e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_fine_tuning_loses_what_torch_does(family, device):
    """tests/make_training_cases.py computed the losses with PyTorch."""
    folder = ROOT / "tests/decoders" / family
    expected = vkf.Safetensors(folder / "training.safetensors")
    texts = [expected[f"text.{i}"].numpy().tolist() for i in range(sum(name.startswith("text.") for name in expected))]
    checkpoint = vkf.Checkpoint(folder)
    tuner = vkf.FineTuner(device, checkpoint, vkf.read_decoder(checkpoint), max_batch=2, max_tokens=24, max_norm=1.0,
                          optimizer=vkf.AdamW(1e-3, weight_decay=0.1), schedule=vkf.Schedule("cosine", warmup=3, steps=20))
    losses, norms = expected["losses"].numpy(), expected["grad_norms"].numpy()
    for step in range(20 if family in ("llama", "gpt2") else 4):
        done = tuner.take_step([texts[2 * step % len(texts)], texts[(2 * step + 1) % len(texts)]])
        assert abs(done.loss - losses[step]) <= 1e-3 and abs(done.grad_norm - norms[step]) <= 1e-3 * norms[step], step


@pytest.fixture(scope="module")
def model():
    return vkf.load_decoder(GENERATE, max_tokens=64)


@needs_text
def test_stops_and_lengths_that_nothing_comes_of_are_refused(model):
    for call in (lambda: model.generate([5, 6, 7], stop="x"), lambda: list(model.stream([5, 6], stop=["x"]))):
        with pytest.raises(ValueError, match="stop is .*token ids"):
            call()
    for call in (lambda: model.generate("7 is", -1), lambda: model.generate([5, 6], max_tokens=-1), lambda: list(model.stream_ids("7 is", -2))):
        with pytest.raises(ValueError, match="max_tokens is -"):
            call()
    assert model.generate([5, 6], stop=()) and model.generate("7 is", max_tokens=0) == ""


def test_models_that_are_made_by_hand_lack_parts(device):
    checkpoint = vkf.Checkpoint(GENERATE)
    made = vkf.Decoder(device, checkpoint, vkf.DecoderPlan(device, checkpoint, vkf.read_decoder(checkpoint), max_tokens=8))
    with pytest.raises(AttributeError, match=r"Decoder: has no _turn; load_decoder\(\) makes one"):
        made.prompt([[1]])
    with pytest.raises(AttributeError, match="Decoder: has no nothing$"):
        vkf.load_decoder(GENERATE, max_tokens=8).nothing


@needs_text
def test_answers(model):
    for case in json.loads((GENERATE / "expected.json").read_text())[:6]:
        assert case["prompt"] + model.generate(case["prompt"]) == case["text"]
        assert model.encode(case["prompt"]) == case["prompt_ids"]
        assert model.generate(case["prompt_ids"]) == case["output_ids"]


@needs_text
def test_temperatures_that_are_none(model):
    for temperature in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="temperature"):
            model.generate("7 is", temperature=temperature)


@needs_text
def test_options_of_draws_are_checked_where_nothing_is_drawn(model):
    for options in ({"top_k": -5}, {"top_k": 0}, {"top_p": 9.0}, {"top_p": 0.0}):
        with pytest.raises(ValueError, match=next(iter(options))):
            model.generate("7 is", **options)


@needs_text
def test_texts_that_are_not_utf8_are_told(model):
    encoder = vkf.load_text_encoder(ROOT / "tests/text/bert")
    for name, call in (("prompt", lambda t: model.generate(t)), ("prompt", lambda t: list(model.stream(t))), ("question", model.chat),
                       ("texts", encoder.encode), ("texts", lambda t: encoder.encode(["a", t]))):
        with pytest.raises(vkf.ArgumentError, match=rf"{name}: 'a\\udc80' is no valid text"):
            call("a\udc80")


@needs_text
def test_prompts_of_wrong_types(model):
    for prompt in (b"42 is", bytearray(b"42"), memoryview(b"42")):
        for call in (model.generate, model.stream, model.encode, lambda p: list(model.stream_ids(p))):
            with pytest.raises(TypeError, match=f"prompt: is {type(prompt).__name__}; a str, or a sequence of token ids"):
                list(call(prompt))
    for prompt in (None, 3, 2.5, ["a"], [1.5], [[1]]):
        with pytest.raises((TypeError, ValueError)) as told:
            list(model.generate(prompt))
        assert "prompt" in str(told.value), prompt


@needs_text
def test_streams(model):
    pieces = list(model.stream("42 is"))
    assert "".join(pieces) == model.generate("42 is") == " forty-two." and len(pieces) > 2
    assert model.generate("42 is", stop="-") == " forty"
    assert model.generate("42 is", max_tokens=1) == " forty"
    assert model.generate("42 is", temperature=0.01, top_k=2) == " forty-two."
    drawn = [model.generate("7 is", temperature=5.0, seed=s) for s in range(4)]
    assert len(set(drawn)) > 1 and drawn[1] == model.generate("7 is", temperature=5.0, seed=1)
    told = vkf.load_decoder(GENERATE, max_tokens=64, candidates=50)
    assert drawn[1] == told.generate("7 is", temperature=5.0, seed=1)
    assert model.candidates(0) == told.candidates(0)  # each of the last text
    model.generate("7 is")
    with pytest.raises(ValueError, match="candidates"):  # which greedy texts do without
        model.candidates(0)


@needs_text
def test_the_rest_of_a_decoder(tmp_path):
    model = vkf.load_decoder(GENERATE, max_tokens=64, candidates=8)
    model.prompt([model.encode("42 is")])
    tokens, logits = model.candidates(0)
    assert tokens[0] == model.next()[0] and sorted(logits, reverse=True) == logits
    model.save_cache(tmp_path / "cache.safetensors")
    first = model.next()
    model.prompt([[1, 2, 3]])
    model.restore_cache(tmp_path / "cache.safetensors")
    assert model.next() == first and model.room() > 0
    assert model.memory().total > 0 and "Decoder llama" in repr(model)
    assert "dispatches" in model.step_program().explain()
    with pytest.raises(ValueError):
        model.prompt([[]])
    with pytest.raises(ValueError):
        model.prompt([[10**6]])
    with pytest.raises(ValueError):
        vkf.load_decoder(GENERATE, weights="int3")
    with pytest.raises(FileNotFoundError, match="adapter"):
        vkf.load_decoder(GENERATE, adapter=GENERATE)


def test_signals_interrupt():
    class Stopped(Exception):
        pass

    def stop(*_):
        raise Stopped

    model = vkf.load_decoder(GENERATE, max_tokens=64, chunk=1)
    before = signal.signal(signal.SIGALRM, stop)
    try:
        for seconds in (0.001, 0.004, 0.01):
            with pytest.raises(Stopped):
                signal.setitimer(signal.ITIMER_REAL, seconds)
                while True:
                    model.prompt([[1] * 60])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert model.generate([1, 25, 272]) == [296, 16, 2]


@needs_text
@pytest.mark.parametrize("weights", ["f16", "bf16", "int8", "int4"])
def test_packed_weights(weights):
    model = vkf.load_decoder(GENERATE, weights=weights, max_tokens=32)
    assert model.generate("3 is") == " three."


def test_progress(tmp_path):
    seen = []
    vkf.load_decoder(GENERATE, max_tokens=16, progress=lambda done, total: seen.append((done, total)))
    assert seen and seen[-1][0] == seen[-1][1]

    class Stop(Exception):
        pass

    def stop(done, total):
        raise Stop

    with pytest.raises(Stop):
        vkf.load_decoder(GENERATE, max_tokens=16, progress=stop)


@needs_text
def test_a_folder_without_tokenizer(tmp_path):
    for name in ("config.json", "model.safetensors", "generation_config.json"):
        shutil.copy(GENERATE / name, tmp_path)
    model = vkf.load_decoder(tmp_path, max_tokens=32)
    with pytest.raises(ValueError, match="no tokenizer"):
        model.generate("7 is")
    assert model.generate([1, 25, 272]) == [296, 16, 2]


@needs_text
@pytest.mark.parametrize("config", [{"tokenizer_class": "GemmaTokenizer", "add_bos_token": True},
                                    {"tokenizer_class": "GemmaTokenizer", "add_bos_token": False},
                                    {"tokenizer_class": "PreTrainedTokenizerFast"}])
def test_chat_begins_a_text_once(tmp_path, config):
    for file in (ROOT / "tests/decoders/llama").iterdir():
        shutil.copy(file, tmp_path)
    begin, end, turn, over = range(4)
    vocabulary = {"<bos>": begin, "<eos>": end, "<start_of_turn>": turn, "<end_of_turn>": over, "\n": 4}
    vocabulary |= {letter: len(vocabulary) + i for i, letter in enumerate("abcdefghijklmnopqrstuvwxyz ")}
    added = [{"id": i, "content": token, "special": True} for token, i in list(vocabulary.items())[:4]]
    around = {"type": "TemplateProcessing", "pair": [],
              "single": [{"SpecialToken": {"id": "<bos>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
              "special_tokens": {"<bos>": {"id": "<bos>", "ids": [begin], "tokens": ["<bos>"]}}}
    (tmp_path / "tokenizer.json").write_text(json.dumps({
        "added_tokens": added, "post_processor": around, "decoder": {"type": "Fuse"},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []}}))
    template = ("{{ bos_token }}{% for message in messages %}{{ '<start_of_turn>' + message['role'] + '\n' + "
                "message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
                "{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config | {"bos_token": "<bos>", "chat_template": template}))
    facts = json.loads((tmp_path / "config.json").read_text()) | {"bos_token_id": begin, "eos_token_id": end}
    (tmp_path / "config.json").write_text(json.dumps(facts))
    model = vkf.load_decoder(tmp_path, max_tokens=64)
    prompt = model.chat("hi")
    assert isinstance(prompt, str) and prompt.startswith("<bos><start_of_turn>user\nhi<end_of_turn>")
    ids = model.encode(prompt)
    assert ids[:2] == [begin, turn] and ids == model.tokenizer.encode(str(prompt), special=False)
    assert model.encode(prompt + "yes") == ids + model.tokenizer.encode("yes", special=False)
    assert model.generate(prompt, 4) == model.tokenizer.decode(model.generate(ids, 4))
    if config.get("add_bos_token"):
        assert model.encode(str(prompt)) == ids and model.encode("hi")[0] == begin


@needs_text
def test_text_encoder():
    folder = ROOT / "tests/text/bert"
    encoder = vkf.load_text_encoder(folder)
    vectors = encoder.encode(["a", "b", "a"])
    assert vectors.shape == (3, encoder.facts.hidden_size) and vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(vectors[0], vectors[2], atol=1e-6)
    np.testing.assert_allclose(encoder.encode("b"), vectors[1], atol=1e-5)
    with pytest.raises(ValueError):
        encoder.embed([[]])
    for texts in (b"a", [b"a"], None, 3, [2.5]):
        with pytest.raises(TypeError, match="texts: is"):
            encoder.encode(texts)


@needs_text
def test_texts_are_cut_where_sentence_transformers_cuts(tmp_path):
    folder = ROOT / "tests/text/bert"
    shutil.copytree(folder, tmp_path / "st")
    text, whole = "THE quick brown fox jumps over the lazy dog", vkf.load_text_encoder(folder)
    ids = whole.tokenizer.encode(text)
    for cut, lower in ((4, False), (len(ids) + 1, False), (6, True)):
        (tmp_path / "st/sentence_bert_config.json").write_text(json.dumps({"max_seq_length": cut, "do_lower_case": lower}))
        encoder = vkf.load_text_encoder(tmp_path / "st")
        assert (encoder.facts.cut_tokens, encoder.facts.lower_case) == (min(cut, encoder.facts.max_tokens), lower)
        want = whole.tokenizer.encode(text.lower() if lower else text)
        want = want if len(want) <= cut else [*want[:cut - 1], want[-1]]
        np.testing.assert_array_equal(encoder.encode(text), whole.embed([want])[0])


def changed(folder, name, change):
    """GENERATE, copied to `folder`, with `change` of the numbers of a weight."""
    shutil.copytree(GENERATE, folder)
    data = bytearray((folder / "model.safetensors").read_bytes())
    length = int.from_bytes(data[:8], "little")
    begin, end = json.loads(data[8:8 + length])[name]["data_offsets"]
    numbers = np.frombuffer(data, np.float32, (end - begin) // 4, 8 + length + begin)
    change(numbers)
    (folder / "model.safetensors").write_bytes(data)
    return folder


def test_logits_that_are_not_finite_are_told(tmp_path):
    def damage(numbers):
        numbers[0] = math.nan

    folder = changed(tmp_path / "model", "model.norm.weight", damage)
    for candidates in (0, 3):
        model = vkf.load_decoder(folder, max_tokens=16, candidates=candidates)
        for options in ({}, {"temperature": 0.8}):
            with pytest.raises(vkf.Error, match="Decoder: the logits of sequence 0 are not finite"):
                model.generate(ONE, 2, **options)
    sampler = vkf.Sampler(top_k=3)
    for logits in ([math.nan, 1.0, 0.0], [1.0, math.nan, 0.0]):
        with pytest.raises(vkf.Error, match="not finite"):
            sampler.choose([5, 6, 7], logits)


ONE, OTHER = [1, 25, 272], [1, 18, 272]


def test_what_goes_on_from_a_text_goes_on_from_the_last(tmp_path):
    drawn, greedy = {"temperature": 1e-3, "ignore_end": True}, {"ignore_end": True}
    model, fresh = (vkf.load_decoder(GENERATE, max_tokens=32) for _ in range(2))
    before = model.memory()
    list(model.stream_ids(OTHER, 2, **greedy))
    assert list(model.stream_ids(ONE, 3, **drawn)) == [296, 16, 2]
    both = model.memory()
    assert both.cache == 2 * before.cache and both.weights == before.weights and both.total > before.total
    fresh.prompt([[*ONE, 296, 16]])
    assert model.room() == fresh.room() == 27 and model.next() == fresh.next() == [2]
    model.save_cache(tmp_path / "cache.safetensors")
    restored = vkf.load_decoder(GENERATE, max_tokens=32)
    restored.restore_cache(tmp_path / "cache.safetensors")
    for one in (model, fresh, restored):
        one.step([2])
        one.append([7, 8])
    assert model.room() == fresh.room() == restored.room() == 24 and model.next() == fresh.next() == restored.next()
    list(model.stream_ids(OTHER, 1, **greedy))
    assert model.room() == 29 and model.next() == [353]
    list(model.stream_ids(ONE, 1, **drawn))
    model.prompt([OTHER])
    assert model.next() == [353] and model.room() == 29
    with pytest.raises(ValueError):
        model.prompt([[]])
    list(model.stream_ids(ONE, 1, **drawn, top_k=60))  # which makes programs anew
    assert model.next() == [296] and model.memory().cache == both.cache
    tokens, logits = model.candidates(0)
    assert tokens[0] == 296 and logits == sorted(logits, reverse=True)
    options, model._options = model._options, {**model._options, "chunk": 0}
    with pytest.raises(vkf.Error):
        list(model.stream_ids(OTHER, 1, **drawn, top_k=70))  # whose programs cannot be made
    model._options = options
    assert model.next() == [296] and model.candidates(0) == (tokens, logits)


@needs_text
def test_draws_among_more_than_are_found_are_refused():
    model = vkf.load_decoder(GENERATE, max_tokens=16, candidates=2)
    for top_k in (3, 50, 1000):
        with pytest.raises(vkf.ArgumentError, match=f"top_k = {top_k} is more than the 2 tokens"):
            model.generate(ONE, 1, temperature=1.0, top_k=top_k)
    both = {tuple(model.generate("9", 1, temperature=50.0, seed=seed)) for seed in range(20)}
    assert len(both) == 2 and {tuple(model.generate("9", 1, temperature=50.0, seed=seed, top_k=2)) for seed in range(20)} == both
    model.prompt([ONE])
    with pytest.raises(vkf.Error, match="top_k = 3 chooses among 3 tokens, and there are 2"):
        vkf.Sampler(top_k=3).choose(model)
    all_of_them = vkf.load_decoder(ROOT / "tests/decoders/llama", max_tokens=16, candidates=97)
    assert len(all_of_them.generate([5, 6, 7], 2, temperature=1.0, top_k=1000)) == 2


def test_more_candidates_than_can_be_found_are_refused():
    model = vkf.load_decoder(GENERATE, max_tokens=16)
    with pytest.raises(vkf.ArgumentError, match="top_k = 129: the likeliest 128"):
        model.generate([1, 25, 272], 2, temperature=1.0, top_k=129)
    all_of_them = vkf.load_decoder(ROOT / "tests/decoders/llama", max_tokens=16)
    assert len(all_of_them.generate([5, 6, 7], 2, temperature=1.0, top_k=1000)) == 2


@needs_text
def test_adapters(tmp_path, device):
    checkpoint = vkf.Checkpoint(GENERATE)
    tuner = vkf.FineTuner(device, checkpoint, vkf.read_decoder(checkpoint), max_batch=2, max_tokens=8,
                          lora=vkf.LoraOptions(rank=2, targets=["q_proj"]), optimizer=vkf.AdamW(1e-2))
    losses = [tuner.take_step([[1, 25, 272, 296], [1, 18, 272, 353]]).loss for _ in range(4)]
    assert losses[-1] < losses[0] and tuner.step() == 4
    tuner.save(tmp_path / "adapter")
    model = vkf.load_decoder(GENERATE, max_tokens=32, adapter=tmp_path / "adapter")
    tuned, likely = model.generate("7 is"), dict(temperature=0.01, top_k=2)
    assert isinstance(tuned, str) and model.generate("7 is", **likely) == tuned
    model.clear_adapter()
    assert model.generate("7 is") == model.generate("7 is", **likely) == " seven."
    model.set_adapter(vkf.Adapter(tmp_path / "adapter"))
    assert model.generate("7 is", **likely) == tuned


def test_a_plan_gives_the_sizes_of_its_programs(device):
    folder = ROOT / "tests/decoders/mistral"
    checkpoint = vkf.Checkpoint(folder)
    plan = vkf.DecoderPlan(device, checkpoint, vkf.read_decoder(checkpoint), max_tokens=90, chunk=8)
    for task, tokens in (("prompt", 8), ("step", 1)):
        sizes = plan.sizes(task, batch=1, start=20, tokens=tokens)
        assert set(sizes) == set(plan.graph(task).symbols)
        assert sizes["start"] == 20 and sizes.get("tokens", 1) == tokens
    with pytest.raises(vkf.Error, match="start 90, tokens 1: the plan is for .* 90 in all"):
        plan.sizes("step", 1, 90, 1)
