// SPDX-License-Identifier: Apache-2.0
// Device::self_test().
#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "doctor/check_case.h"
#include "runtime/device/compile_options.h"
#include "runtime/device/device_core.h"
#include "runtime/device/insides.h"
#include "runtime/device/program.h"

namespace vkf {

namespace {

using namespace doctor;
using Clock = std::chrono::steady_clock;

/// Kernels that a device may have and not choose.
constexpr const char* kForced[] = {"attention_lanes",     "attention_shared", "attention_coopmat", "matmul_coopmat",
                                   "matmul_coopmat_int8", "matmul_half",      "matmul_dot"};

double ms_since(Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

bool has(const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

/// True where something of the plan multiplies in what was asked for.
bool is_taken(const Plan& plan, Arithmetic arithmetic) {
    return arithmetic == Arithmetic::f32 ||
           std::any_of(plan.dispatches.begin(), plan.dispatches.end(), [&](const PlannedDispatch& d) {
               return std::any_of(d.dispatch.kernels.begin(), d.dispatch.kernels.end(),
                                  [&](const Kernel& k) { return k.arithmetic == arithmetic; });
           });
}

class SelfTester {
public:
    SelfTester(const Device& device, DeviceCore& core, const SelfTestOptions& options)
        : device_(device), core_(core), options_(options) {
        if (std::isnan(options.seconds)) {
            throw Error("seconds is not a number", "SelfTestOptions");
        }
    }

    SelfTest run() {
        try {
            if (submissions_run()) {
                for (const auto& cases : {product_cases(), row_cases(), attention_cases(), gradient_cases()}) {
                    for (const CaseMaker& maker : cases) {
                        if (options_.thorough || !maker.thorough) {
                            test(maker);
                        }
                    }
                }
                // last, since what it takes may be refused
                report_.floats.f16_denormals = !over() && keeps_subnormal_f16();
            } else {
                report_.complete = false;
            }
        } catch (const Error& e) {
            if (!is_lost(e)) {
                throw;
            }
            if (report_.checks.empty() || report_.checks.back().problem.empty()) {
                add({.kernel = "device", .what = "self-test", .problem = e.what()});
            }
            report_.verdict = Verdict::unusable;
            report_.complete = false;
        }
        return std::move(report_);
    }

private:
    bool over() {
        const bool late = options_.seconds > 0 && ms_since(start_) > options_.seconds * 1e3;
        report_.complete = report_.complete && !late;
        return late;
    }

    void add(SelfCheck check) {
        if (options_.progress) {
            options_.progress(check);
        }
        report_.checks.push_back(std::move(check));
    }

    /// A check that found no memory says nothing of the device, nor of a kernel.
    void not_tested(const std::string& what, const Error& e) {
        add({.kernel = "memory",
             .what = what,
             .problem = std::string("not tested, for memory was short: ") + e.what()});
        report_.complete = false;
    }

    Capabilities capabilities(const std::vector<LeftOut>& without, const char* forced = nullptr) const {
        Capabilities c = device_.capabilities();
        c.left_out = without;
        c.variants = forced ? forced : c.variants;
        return c;
    }

    /// Work that is reported as done was done, and what is special in fp32 goes through.
    bool submissions_run() {
        const Clock::time_point start = Clock::now();
        Graph g;
        const Value x = g.input("x", {8}), one = g.input("one", {1});
        g.output("y", mul(x, one));
        CompileOptions options;
        options.name = "self-test";
        options.checked = true;
        SelfCheck check{.kernel = "submission", .what = "work that is reported as done"};
        try {
            Program program = device_.compile(g, {}, options);
            program.upload("one", std::vector<float>{1});
            for (int i = 1; i <= 8; ++i) {
                const float n = static_cast<float>(i);
                const std::vector<float> sent{
                    n, -n, n / 2, 0x1p-140f, -0.0f, std::numeric_limits<float>::infinity(), std::nanf(""), 2 * n};
                program.upload("x", sent);
                program.run();
                const std::vector<float> got = program.download("y");
                if (got[0] != n || got[1] != -n || got[2] != n / 2 || got[7] != 2 * n) {
                    check.problem = "run " + std::to_string(i) + " left what was there before, or something else";
                }
                report_.floats = {got[3] == sent[3], std::isnan(got[6]), std::isinf(got[5]), std::signbit(got[4])};
            }
        } catch (const Error& e) {
            if (is_lost(e)) {
                throw;
            }
            if (lacks_memory(e)) {  // what follows is asked itself whether it ran
                not_tested(check.what, e);
                return true;
            }
            check.problem = e.what();
        }
        const bool good = check.problem.empty();
        check.ms = ms_since(start);
        check.chosen = true;
        add(std::move(check));
        report_.verdict = good ? report_.verdict : Verdict::unusable;
        return good;
    }

    bool keeps_subnormal_f16() {
        const float number = 0x1p-20f;
        const HostTensor weight{"w", DType::f32, {1, 1}, std::as_bytes(std::span(&number, 1))};
        LoadOptions options;
        options.matrices = WeightType::f16;
        options.pack_on = PackOn::host;
        Graph g;
        g.output("y", linear(g.input("x", {1, 1}), g.weight("w", {1, 1})));
        try {
            Program program = device_.compile(g, device_.load({&weight, 1}, options));
            program.upload("x", std::vector<float>{1});
            program.run();
            return program.download("y") == std::vector<float>{number};
        } catch (const Error& e) {
            if (is_lost(e)) {
                add({.kernel = "device", .what = "a weight kept in f16", .problem = e.what()});
                throw;
            }
            report_.complete = report_.complete && !lacks_memory(e);
            return false;  // whose reason a check has told
        }
    }

    /// The case with its weights on the device; nothing where they cannot be put there, which the
    /// report says then.
    std::optional<LoadedCase> load(const CaseMaker& maker) {
        try {
            return LoadedCase(device_, maker.make());
        } catch (const Error& e) {
            if (lacks_memory(e)) {
                not_tested(maker.what, e);
                return {};
            }
            add({.kernel = is_lost(e) ? "device" : "weights", .what = maker.what, .problem = e.what()});
            if (is_lost(e)) {
                throw;
            }
            report_.verdict = Verdict::unusable;
            return {};
        }
    }

    void test(const CaseMaker& maker) {
        if (over()) {
            return;
        }
        const std::optional<LoadedCase> has_weights = load(maker);
        if (!has_weights) {
            return;
        }
        const LoadedCase& loaded = *has_weights;
        refused_now_.clear();
        std::vector<std::string> seen;
        std::vector<std::vector<LeftOut>> waiting{core_.left_out()};
        for (std::size_t i = 0; i < waiting.size() && !over(); ++i) {
            const std::vector<LeftOut> without = core_.left_out_since.behind(waiting[i]);
            std::string why;
            std::optional<Plan> plan = loaded.plan(capabilities(without), &why);
            if (!plan && i == 0) {  // what programs would take
                add({.kernel = "plan", .what = maker.what, .problem = "cannot be planned: " + why, .chosen = true});
                report_.verdict = Verdict::unusable;
            }
            if (!plan || !is_new(*plan, loaded, seen)) {
                continue;
            }
            const std::vector<std::string> kernels = kernels_of(*plan);
            const std::optional<LeftOut> failed = check(maker, loaded, std::move(*plan), without, i == 0 || failing_);
            if (failed) {  // whatever stands in for it is tested, too
                waiting.push_back(found_wrong());
            }
            for (const std::string& kernel : kernels) {
                if (options_.thorough && !(failed && kernel == failed->kernel)) {
                    waiting.push_back(without);
                    waiting.back().push_back({kernel, "another is tested"});
                }
            }
        }
        failing_ = false;
        for (const char* forced : kForced) {
            if (!options_.thorough || over()) {
                break;
            }
            const std::vector<LeftOut> without = core_.left_out();
            std::optional<Plan> plan = loaded.plan(capabilities(without, forced));
            if (plan && is_new(*plan, loaded, seen)) {
                check(maker, loaded, std::move(*plan), without, false);
            }
        }
    }

    /// True where the plan takes a kernel that this case has not run.
    static bool is_new(const Plan& plan, const LoadedCase& loaded, std::vector<std::string>& seen) {
        bool any = false;
        for (const std::string& kernel : kernels_of(plan)) {
            if (is_taken(plan, loaded.given_case.arithmetic) && !has(seen, kernel)) {
                seen.push_back(kernel);
                any = true;
            }
        }
        return any;
    }

    /// The kernel that failed and that another stands in for, if there is one.
    std::optional<LeftOut> check(const CaseMaker& maker, const LoadedCase& loaded, Plan plan,
                                 const std::vector<LeftOut>& without, bool chosen) {
        const std::vector<std::string> kernels = kernels_of(plan);
        std::string kernel;
        for (const std::string& name : kernels) {
            kernel += (kernel.empty() ? "" : " + ") + name;
        }
        const Clock::time_point start = Clock::now();
        Checked got;
        try {
            got = check_case(device_, loaded, std::move(plan), options_.repeats);
        } catch (const Error& e) {
            if (lacks_memory(e)) {
                not_tested(maker.what, e);
                return {};
            }
            // the device is lost, and the report ends with what lost it
            add({kernel, maker.what, e.what(), 0, ms_since(start), chosen});
            throw;
        }
        const double ms = ms_since(start);
        if (got.problem.empty()) {
            add({kernel, maker.what, "", got.error, ms, chosen});
            return {};
        }
        std::string guilty = got.kernel;
        try {
            guilty = guilty.empty() ? blame(loaded, kernels, without) : guilty;
        } catch (const Error& e) {
            got.problem += std::string("; another in its place: ") + e.what();
            if (!lacks_memory(e)) {  // the device is lost by what was to stand in
                add({kernel, maker.what, got.problem, got.error, ms, chosen});
                throw;
            }
            report_.complete = false;  // it cannot be told whose fault it is
        }
        add({guilty.empty() ? kernel : guilty, maker.what, got.problem, got.error, ms, chosen});
        if (guilty.empty() || !stands_in(loaded, guilty)) {
            // what the device chooses is right all the same
            const bool hypothetical = !chosen || without.size() > found_wrong().size();
            report_.verdict = std::max(report_.verdict, hypothetical ? Verdict::degraded : Verdict::unusable);
            return {};
        }
        report_.verdict = std::max(report_.verdict, Verdict::degraded);
        LeftOut out{guilty, got.kernel.empty() ? "the self-test found it wrong: " + got.problem : got.problem};
        if (got.lasts) {
            core_.left_out_since.add(out);
            report_.left_out.push_back(out);
        } else {
            refused_now_.push_back(out);
        }
        failing_ = chosen;
        return out;
    }

    /// What is left out from now on, and what this case found no memory for.
    std::vector<LeftOut> found_wrong() const {
        std::vector<LeftOut> out = core_.left_out();
        out.insert(out.end(), refused_now_.begin(), refused_now_.end());
        return out;
    }

    /// True where the case is planned without this kernel and those that were found wrong. What is
    /// left out only so that this is tested stands in.
    bool stands_in(const LoadedCase& loaded, const std::string& kernel) const {
        std::vector<LeftOut> without = found_wrong();
        without.push_back({kernel, "another is looked for"});
        const std::optional<Plan> other = loaded.plan(capabilities(without));
        return other && !has(kernels_of(*other), kernel);
    }

    /// The kernel to blame for what these compute together: the only one; the one that can be
    /// replaced by itself, and results are right then; the one with most of the work, if results
    /// are right at the end of the row of those that stand in for it. Empty: it cannot be told.
    std::string blame(const LoadedCase& loaded, const std::vector<std::string>& kernels,
                      const std::vector<LeftOut>& without) const {
        if (kernels.size() == 1) {
            return kernels.front();
        }
        for (const bool whole_row : {false, true}) {
            for (const std::string& kernel : kernels) {
                if (is_right_without(loaded, kernel, kernels, without, whole_row)) {
                    return kernel;
                }
            }
        }
        return {};
    }

    bool is_right_without(const LoadedCase& loaded, std::string kernel, std::vector<std::string> kernels,
                          std::vector<LeftOut> without, bool whole_row) const {
        while (true) {
            without.push_back({kernel, "another is tried"});
            std::optional<Plan> other = loaded.plan(capabilities(without));
            if (!other || has(kernels_of(*other), kernel)) {
                return false;  // there is no other
            }
            std::vector<std::string> next = kernels_of(*other), fresh;
            std::copy_if(next.begin(), next.end(), std::back_inserter(fresh),
                         [&](const std::string& name) { return !has(kernels, name); });
            const bool by_itself = fresh.size() == 1 && next.size() == kernels.size();
            const bool right = (whole_row || by_itself) &&
                               check_case(device_, loaded, std::move(*other), options_.repeats).problem.empty();
            if (right || !whole_row || fresh.empty()) {
                return right;
            }
            kernel = fresh.front();
            kernels = std::move(next);
        }
    }

    const Device& device_;
    DeviceCore& core_;
    const SelfTestOptions& options_;
    const Clock::time_point start_ = Clock::now();
    SelfTest report_;
    std::vector<LeftOut> refused_now_;  ///< kernels for which this case found no memory
    bool failing_ = false;              ///< what would be chosen failed: the next stands in for it
};

}  // namespace

SelfTest Device::self_test(const SelfTestOptions& options) const {
    core_->check_alive();
    if (core_->deferred) {
        throw Error("the host submits for this device (BorrowedDevice::host_submits)", "Device::self_test");
    }
    return SelfTester(*this, *core_, options).run();
}

}  // namespace vkf
