# SPDX-License-Identifier: Apache-2.0
"""Python covers C++: every public function is here under its name, under the one that stands here,
or stands here with the reason why Python has no use for it."""

import inspect
import re

from conftest import ROOT
from declarations import public_declarations

import vkformer as vkf

# Classes of which Python has no object, and why.
CLASSES = {
    "Error": "an exception of that name", "MappedFile": "Python has files of its own",
    "Required": "a keyword without a default", "Status": "an exception", "ValueInfo": "for whoever writes ops",
    "Recompute": "a block of `with`", "Scope": "a block of `with`", "Value": "Graph makes them",
}
# C++'s name to Python's; a sentence is a reason.
TWINS = {
    "Adapter::Adapter": "Adapter", "Decoder": "DecoderCore", "TextEncoder": "TextEncoderCore", "Trainer": "TrainerCore", "DeviceTensor": "Tensor",
    "DeviceTensor::DeviceTensor": "Device.make_tensor", "DeviceTensor::read": "Tensor.numpy", "Dim::Dim": "a number", "Dim::symbol": "Graph.symbol",
    "Dim::is_constant": "a number then", "Dim::constant": "a number then", "Dim::lower_bound": "for whoever writes ops", "Dim::symbols": "for whoever writes ops",
    "Dim::str": "Dim.__repr__", "Dim::divided_by": "Dim.__floordiv__", "operator+": "Value.__add__", "operator*": "Value.__mul__",
    "contiguous_strides": "for whoever writes ops", "elements": "a product of sizes", "size_of": "NumPy has itemsize",
    "name_of": "names are strings", "byte_size": "NumPy has nbytes", "read_bytes": "HostTensor.numpy", "ConstantData": "for compilation", "utf8_name": "paths are Python's", "file_text": "Python has files of its own",
    "Graph::add_node": "for whoever writes ops", "Graph::as_image": "image_input() does it",
    "Graph::add_view": "for whoever writes ops", "Graph::constrain": "for whoever writes ops",
    "Graph::check_content": "for whoever writes ops", "Graph::linear_hook": "for whoever writes layers in C++",
    "Graph::str": "Graph.text", "Graph::storages": "Graph.inputs", "Graph::values": "for compilation", "Graph::constraints": "for compilation",
    "Graph::content_checks": "for compilation", "Graph::recomputed": "for differentiation",
    "Device::give_up_all": "done in the child of a fork", "Device::import_hardware_buffer": "Android's, where Python seldom is",
    "Program::download_i32": "Program.download", "Program::download_bits": "Program.download",
    "SharedBuffer::SharedBuffer": "Device makes them", "DeviceRequirements::DeviceRequirements": "Device.requirements",
    "DeviceRequirements::str": "DeviceRequirements.__str__", "State::State": "Device.make_state", "State::layout": "State.layout",
    "WeightLayout::WeightLayout": "make_weight_layout", "WeightLayout::none": "None is none", "Ticket::Ticket": "Program.submit",
    "Capabilities::leaves_out": "Capabilities.left_out", "Capabilities::why_left_out": "Capabilities.left_out",
    "stored_as": "make_weight_layout", "scaled_dot_product_attention": "attention",
    "load_decoder": "load_decoder_weights", "load_text_encoder": "load_text_encoder_weights",
    "require_memory": "DecoderPlan does it", "layer_options": "EncoderDecoderConfig is enough",
    "ModelMemory::add": "for whoever runs models of their own in C++", "FineTuner::trainer": "FineTuner.trainer_state",
    "DecoderPlan::load": "its own arguments", "ScoreMod::shader": "for whoever writes ops", "Cost::total": "Cost.total",
    "Transport": "local_communicators() makes them", "local_transports": "local_communicators", "Communicator::Communicator": "local_communicators",
    "cut": "DecoderPlan does it", "packed_shard": "DecoderPlan does it", "share_of": "for whoever writes layers", "check_rank": "Graph.set_rank() does it",
    "Safetensors::Safetensors": "Safetensors", "Decoder::Decoder": "DecoderCore",
    }
# What is an options struct in C++ is keywords in Python.
KEYWORDS = {
    "MatmulOptions": "matmul", "SoftmaxOptions": "log_sum_exp", "CrossEntropyOptions": "cross_entropy",
    "AttentionOptions": "attention", "ImageOptions": "image_input", "SelfAttentionOptions": "self_attention",
    "MultiHeadAttentionOptions": "multi_head_attention", "GroupedQueryAttentionOptions": "grouped_query_attention",
    "IncrementalAttentionOptions": "incremental_attention", "ScoreOptions": "attention_scores",
    "torch::MultiheadAttentionOptions": "torch.multihead_attention",
    "torch::TransformerLayerOptions": "torch.transformer_encoder_layer", "torch::TransformerMasks": "torch.transformer",
    "torch::TransformerOptions": "torch.transformer", "torch::DecoderInputs": "torch.DecoderInputs.__init__",
    "Mask": "Mask.__init__", "Rope": "Rope.__init__", "RopeScaling": "RopeScaling.__init__", "LoraOptions": "LoraOptions.__init__",
    "AdamW": "AdamW.__init__", "Sgd": "SGD.__init__", "Schedule": "Schedule.__init__", "UpdateOptions": "update",
    "TrainerOptions": "TrainerCore", "FineTuneOptions": "FineTuner", "DecoderOptions": "DecoderPlan",
    "TextEncoderOptions": "TextEncoderCore", "CompileOptions": "Device.compile", "DeviceOptions": "Device.create", "SelfTestOptions": "Device.self_test",
    "BorrowedDevice": "Device.borrow", "LoadOptions": "Device.load", "SamplerOptions": "Sampler.__init__",
    "BufferRange": "BufferRange.__init__", "ImageView": "ImageView.__init__", "Recording": "Program.record",
    "StagingRange": "Device.record_upload", "EncoderDecoderConfig": "EncoderDecoderConfig.__init__",
    "StatePart": "State.read", "KvCache": "KvCache.__init__", "RingRows": "RingRows.__init__",
    "PagedKvCache": "PagedKvCache.__init__", "CachedKv": "CachedKv.__init__",
}
# Members that are keywords of another name, or none.
MEMBERS = {
    "AdamW::learning_rate": "lr", "Sgd::learning_rate": "lr", "AdamW::beta1": "betas", "AdamW::beta2": "betas",
    "torch::TransformerOptions::layer": "its members are keywords", "DeviceOptions::get_instance_proc_addr": "a keyword of borrow alone",
    "BorrowedDevice::void": "lock and unlock, pointers to functions", "BorrowedDevice::user": "closures of Python", "BorrowedDevice::memory": "a host's allocator is C or C++",
    "BorrowedDevice::keep": "references of Python", "BufferRange::name": "the key of the dict", "ImageView::name": "the key of the dict",
    "DecoderOptions::progress": "progress", "FineTuneOptions::load": "matrices", "FineTuneOptions::trainer": "optimizer",
    "TrainerOptions::AdamW": "optimizer, of two types", "SelfTestOptions::progress": "the checks come back", "UpdateOptions::learning_rate": "learning_rate",
}


def python_object(path):
    found = vkf._vkformer
    for name in path.replace("::", ".").split("."):
        found = getattr(found, name, None)
        if found is None:
            found = vkf
            for again in path.replace("::", ".").split("."):
                found = getattr(found, again, None)
            return found
    return found


def signature(path):
    owner = python_object(path)
    if inspect.isclass(owner):
        return (owner.__new__.__doc__ or "") + (owner.__init__.__doc__ or "") + (owner.__doc__ or "")
    return owner.__doc__ or ""


def is_reason(text):
    return " " in text


def test_every_function_is_reachable():
    functions, _, _ = public_declarations(ROOT)
    assert len(functions) > 300
    missing, needless = [], set(TWINS) - {owner for owner, _ in functions}
    for owner, name in sorted(functions):
        full = f"{owner}::{name}" if owner else name
        needless.discard(full)
        if owner in CLASSES or owner.split("::")[-1] in KEYWORDS and name == owner:
            continue
        twin = TWINS.get(full)
        if twin is not None:
            assert is_reason(twin) or python_object(twin) is not None, f"{full}: there is no {twin} in Python"
            continue
        place = TWINS.get(owner, owner)
        if is_reason(place):
            continue
        path = place if name == owner.split("::")[-1] else f"{place}.{name}" if place else name
        if python_object(path) is None:
            missing.append(f"{full} is not in Python")
    assert not missing, "\n".join(missing)
    assert not needless, f"are not in C++ any more: {needless}"


def test_every_option_is_a_keyword():
    _, members, _ = public_declarations(ROOT)
    assert {"keys", "polarity", "bias", "alibi_slopes", "causal", "window", "fill"} <= {m for o, m in members if o == "Mask"}
    assert set(KEYWORDS) <= {o for o, _ in members}, set(KEYWORDS) - {o for o, _ in members}
    missing = []
    for owner, member in sorted(members):
        if owner not in KEYWORDS:
            continue
        want = MEMBERS.get(f"{owner}::{member}", member)
        if not is_reason(want) and not re.search(rf"\b{want}: ", signature(KEYWORDS[owner])):
            missing.append(f"{KEYWORDS[owner]} has no {want}, which {owner} has")
    assert not missing, "\n".join(missing)


def test_borrowed_devices_have_the_options_of_others():
    _, members, _ = public_declarations(ROOT)
    own = {"select", "validation"}  # of which a host has chosen
    options = {member for owner, member in members if owner == "DeviceOptions"} - own
    assert {"submit_budget", "cache_folder", "staging_bytes"} <= options
    for option in options:
        assert re.search(rf"\b{option}: ", signature("Device.borrow")), option


def test_enumerators_have_names():
    _, _, enums = public_declarations(ROOT)
    text = "".join((getattr(vkf._vkformer, n).__doc__ or "") for n in dir(vkf._vkformer))
    for owner in (vkf.Mask, vkf.Rope, vkf.RopeScaling, vkf.Schedule, vkf.Device, vkf.DecoderPlan):
        text += "".join(str(getattr(getattr(owner, n), "__doc__", "")) for n in dir(owner))
    for enum in ("Causal", "Polarity", "Activation", "RopeLayout", "RopeScaling::Kind", "WeightType", "Arithmetic", "PackOn",
                 "Schedule::Kind", "ScoreKind", "ImageFormat", "DecoderTask"):
        for name in enums[enum]:
            assert f"'{name}'" in text, f"{enum}::{name} is not in Python"


def test_the_package_has_what_the_extension_has():
    public = {n for n in dir(vkf._vkformer) if not n.startswith("_")} - {"has_text"}
    assert public <= set(vkf.__all__), public - set(vkf.__all__)
    assert all(hasattr(vkf, n) for n in vkf.__all__)


def test_everything_has_documentation():
    for name in vkf.__all__:
        assert inspect.getdoc(getattr(vkf, name)), name
