// SPDX-License-Identifier: Apache-2.0
#include "doctor/check_case.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>
#include <utility>

#include "runtime/device/compile_options.h"
#include "runtime/device/pipeline.h"
#include "runtime/device/program.h"
#include "runtime/graph/sixteen.h"

namespace vkf::doctor {

namespace {

/// An output's elements as they lie in memory, widened to 32 bits.
using Bits = std::vector<std::uint32_t>;

Bits bits_of(Program& program, const Case::Wanted& wanted) {
    Bits out;
    if (wanted.dtype == DType::i32) {
        for (const std::int32_t x : program.download_i32(wanted.name)) {
            out.push_back(static_cast<std::uint32_t>(x));
        }
    } else if (wanted.dtype == DType::f16) {
        for (const std::uint16_t x : program.download_bits(wanted.name)) {
            out.push_back(x);
        }
    } else {
        for (const float x : program.download(wanted.name)) {
            out.push_back(std::bit_cast<std::uint32_t>(x));
        }
    }
    return out;
}

double number_of(std::uint32_t bits, DType dtype) {
    switch (dtype) {
        case DType::i32: return static_cast<std::int32_t>(bits);
        case DType::f16: return static_cast<double>(sixteen::from_half(static_cast<std::uint16_t>(bits)));
        default: return static_cast<double>(std::bit_cast<float>(bits));
    }
}

/// The error as a share of what is allowed; infinite where it is no matter of size.
double share_of(double got, double want, double allowed, bool zero_signs) {
    constexpr double kWrong = std::numeric_limits<double>::infinity();
    if (std::isnan(want) || std::isinf(want)) {
        return (std::isnan(want) && std::isnan(got)) || got == want ? 0 : kWrong;
    }
    if (!std::isfinite(got) || (zero_signs && want == 0 && std::signbit(want) != std::signbit(got))) {
        return kWrong;
    }
    return got == want ? 0 : std::abs(got - want) / allowed;
}

std::string text_of(double number) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.9g", number);
    return text;
}

void look(const Case::Wanted& wanted, const Bits& bits, Checked& out) {
    std::size_t wrong = 0, worst = 0;
    double most = 0;
    const Doubles& values = wanted.expected.values;
    if (bits.size() != values.size()) {
        out.problem = wanted.name + " has " + std::to_string(bits.size()) + " elements";
        return;
    }
    for (std::size_t i = 0; i < bits.size(); ++i) {
        const double share =
            share_of(number_of(bits[i], wanted.dtype), values[i], wanted.expected.allowed[i], wanted.zero_signs);
        wrong += share <= 1 ? 0 : 1;
        if (share > most) {
            most = share;
            worst = i;
        }
    }
    out.error = std::max(out.error, most);
    if (wrong != 0 && out.problem.empty()) {
        out.problem = std::to_string(wrong) + " of " + std::to_string(bits.size()) +
                      " results are wrong: " + text_of(number_of(bits[worst], wanted.dtype)) + " instead of " +
                      text_of(values[worst]);
    }
}

void upload(Program& program, const Case& c) {
    for (const Case::Given& given : c.given) {
        if (given.dtype == DType::i32) {
            program.upload(given.name, std::vector<std::int32_t>(given.numbers.begin(), given.numbers.end()));
        } else {
            program.upload(given.name, std::vector<float>(given.numbers.begin(), given.numbers.end()));
        }
    }
}

Checked run(const Device& device, const LoadedCase& loaded, Plan plan, std::uint32_t repeats) {
    CompileOptions options;
    options.name = "self-test";
    options.checked = true;  // each submission is asked whether it ran
    Program program = device.compile(std::move(plan), options);
    if (!loaded.given_case.weights.empty()) {
        program.set_weights(loaded.weights);
    }
    const Case& c = loaded.given_case;
    upload(program, c);
    Checked out;
    std::vector<Bits> first;
    for (std::uint32_t i = 0; i < std::max(repeats, 1u); ++i) {
        program.run();
        for (std::size_t k = 0; k < c.wanted.size(); ++k) {
            Bits bits = bits_of(program, c.wanted[k]);
            if (i != 0) {
                if (bits != first[k] && out.problem.empty()) {
                    out.problem = "run " + std::to_string(i + 1) + " gave other bits than the first";
                }
                continue;
            }
            look(c.wanted[k], bits, out);
            first.push_back(std::move(bits));
        }
    }
    return out;
}

}  // namespace

bool is_lost(const Error& error) { return error.result() == VK_ERROR_DEVICE_LOST || error.result() == VK_TIMEOUT; }

bool lacks_memory(const Error& error) {
    switch (error.result()) {
        case VK_ERROR_OUT_OF_HOST_MEMORY:
        case VK_ERROR_OUT_OF_DEVICE_MEMORY:
        case VK_ERROR_OUT_OF_POOL_MEMORY:
        case VK_ERROR_FRAGMENTATION:
        case VK_ERROR_FRAGMENTED_POOL:
        case VK_ERROR_TOO_MANY_OBJECTS: return dynamic_cast<const RefusedKernel*>(&error) == nullptr;
        default: return false;
    }
}

LoadedCase::LoadedCase(const Device& device, Case given) : given_case(std::move(given)) {
    std::vector<HostTensor> tensors;
    for (const Case::Weight& w : given_case.weights) {
        tensors.push_back({w.name, DType::f32, w.shape, std::as_bytes(std::span(w.numbers))});
    }
    if (!tensors.empty()) {
        LoadOptions options;
        options.matrices = given_case.weights.front().type;
        options.pack_on = PackOn::host;
        weights = device.load(tensors, options);
    }
}

std::optional<Plan> LoadedCase::plan(const Capabilities& capabilities, std::string* why) const {
    try {
        Plan plan = make_plan(*given_case.graph, capabilities, weights.layout(), {.arithmetic = given_case.arithmetic});
        plan.source.reset();
        return plan;
    } catch (const Error& e) {
        if (why) {
            *why = e.what();
        }
        return std::nullopt;
    }
}

std::vector<std::string> kernels_of(const Plan& plan) {
    std::vector<std::pair<double, std::string>> all;
    for (const PlannedDispatch& d : plan.dispatches) {
        Command command;
        plan.prepare(d, {}, command);
        for (std::size_t k = 0; k < d.dispatch.kernels.size(); ++k) {
            if (!d.may_choose(k)) {
                continue;
            }
            const std::string name = d.dispatch.kernels[k].shader->name;
            auto at = std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.second == name; });
            at = at == all.end() ? all.insert(at, {0, name}) : at;
            at->first += command.flops();
        }
    }
    std::vector<std::string> out;
    double most = -1;
    for (auto& [flops, name] : all) {
        out.insert(flops > most ? out.begin() : out.end(), std::move(name));
        most = std::max(most, flops);
    }
    return out;
}

Checked check_case(const Device& device, const LoadedCase& loaded, Plan plan, std::uint32_t repeats) {
    try {
        return run(device, loaded, std::move(plan), repeats);
    } catch (const RefusedKernel& refused) {
        return {refused.why(), 0, refused.kernel(), refused.lasts()};
    } catch (const Error& e) {
        if (is_lost(e) || lacks_memory(e)) {
            throw;
        }
        return {e.what(), 0, {}, true};
    }
}

}  // namespace vkf::doctor
