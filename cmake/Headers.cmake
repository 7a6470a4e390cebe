# SPDX-License-Identifier: Apache-2.0
# What of the library others see, header by header. A header that is in neither list stays at home:
# it is not installed, and no installed one includes it (tests/unit/headers_test.cpp).

# For C++: installed by room, and in <vkformer/vkformer.h>. C's is <vkformer/vkformer_c.h>.
set(public_headers
    layers/attention.h
    layers/attention_scores.h
    layers/feed_forward.h
    layers/kv_cache.h
    layers/linear.h
    layers/lora.h
    layers/parallel.h
    layers/sequences.h
    layers/torch.h
    models/adapter.h
    models/blocks/decoder_facts.h
    models/blocks/encoder_facts.h
    models/decoder.h
    models/decoder_logits.h
    models/decoder_model.h
    models/decoder_plan.h
    models/encoder_decoder.h
    models/files/checkpoint.h
    models/files/safetensors.h
    models/model_memory.h
    models/sampler.h
    models/state_file.h
    models/text_encoder.h
    ops/collectives.h
    ops/gradients.h
    ops/mask.h
    ops/ops.h
    ops/optimizer.h
    ops/recompute.h
    ops/scaled_dot_product.h
    ops/score_mod.h
    ops/tuning.h
    parallel/communicator.h
    parallel/transport.h
    runtime/base/error.h
    runtime/base/export.h
    runtime/base/map_file.h
    runtime/compile/arithmetic_use.h
    runtime/compile/capabilities.h
    runtime/compile/glsl.h
    runtime/compile/load_options.h
    runtime/compile/memory_sizes.h
    runtime/compile/weight_layout.h
    runtime/device/borrowed_device.h
    runtime/device/compile_options.h
    runtime/device/device.h
    runtime/device/device_options.h
    runtime/device/device_tensor.h
    runtime/device/left_out.h
    runtime/device/program.h
    runtime/device/recording.h
    runtime/device/requirements.h
    runtime/device/self_test.h
    runtime/device/shared_buffer.h
    runtime/device/state.h
    runtime/device/status.h
    runtime/device/ticket.h
    runtime/device/tuning.h
    runtime/device/vulkan_handles.h
    runtime/device/weights.h
    runtime/graph/dim.h
    runtime/graph/dtype.h
    runtime/graph/graph.h
    runtime/graph/host_tensor.h
    runtime/graph/shard.h
    runtime/graph/value.h
    runtime/graph/views.h
    train/fine_tuner.h
    train/trainer.h
    train/trainer_options.h)

# For op authors: <vkformer/advanced/NAME.h> each, and in no other header.
set(advanced_headers
    ops/gradient.h
    runtime/compile/dispatch.h
    runtime/compile/kernel.h
    runtime/compile/lowering.h
    runtime/compile/plan.h
    runtime/compile/planned.h
    runtime/compile/planner.h
    runtime/compile/spirv_code.h
    runtime/graph/node.h
    runtime/graph/op.h
    runtime/graph/packed.h
    runtime/graph/rewrite.h)

set(VKFORMER_INCLUDES ${public_headers})
list(TRANSFORM VKFORMER_INCLUDES REPLACE "(.+)" "#include \"\\1\"")
list(JOIN VKFORMER_INCLUDES "\n" VKFORMER_INCLUDES)
configure_file(cmake/vkformer.h.in include/vkformer/vkformer.h @ONLY)
configure_file(c/vkformer_c.h include/vkformer/vkformer_c.h COPYONLY)

# In a build the advanced headers lead to the source. What is installed is the headers themselves,
# their includes told where the others are then.
foreach(header ${advanced_headers})
    get_filename_component(name "${header}" NAME)
    get_filename_component(room "${header}" DIRECTORY)
    file(CONFIGURE OUTPUT "include/vkformer/advanced/${name}" CONTENT "#pragma once\n#include \"${header}\"\n")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${header}")
    file(READ "${header}" text)
    string(REGEX MATCHALL "#include \"[^\"]+\"" includes "${text}")
    foreach(include ${includes})
        string(REGEX REPLACE "#include \"([^\"]+)\"" "${room}/\\1" other "${include}")
        string(REGEX REPLACE "[^/]+/\\.\\./" "" other "${other}")
        if(other IN_LIST advanced_headers)
            get_filename_component(other "${other}" NAME)
        elseif(other IN_LIST public_headers)
            set(other "../${other}")
        else()
            message(FATAL_ERROR "${header} is installed, and includes ${other}, which is not")
        endif()
        string(REPLACE "${include}" "#include \"${other}\"" text "${text}")
    endforeach()
    file(WRITE "${PROJECT_BINARY_DIR}/advanced/${name}" "${text}")
endforeach()
