// SPDX-License-Identifier: Apache-2.0
// Device::self_test().
#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <new>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "doctor/check_case.h"
#include "doctor/kernel_names.h"
#include "ops/variants.h"
#include "runtime/device/compile_options.h"
#include "runtime/device/device_core.h"
#include "runtime/device/insides.h"
#include "runtime/device/program.h"

namespace vkf {

namespace {

using namespace doctor;
using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
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
        if (options.repeats == 0) {
            throw Error("repeats is 0, and each check runs at least once", "SelfTestOptions");
        }
    }

    SelfTest run() {
        try {
            if (submissions_run()) {
                test_all();
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
        } catch (const std::bad_alloc& e) {  // between the cases
            not_tested("self-test", e);
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
    void not_tested(const std::string& what, const std::exception& e) {
        add({.kernel = "memory",
             .what = what,
             .problem = std::string("not tested, for memory was short: ") + e.what()});
        report_.complete = false;
    }

    void test_all() {
        std::vector<CaseMaker> makers;
        for (const auto& cases : {product_cases(), row_cases(), attention_cases(), gradient_cases()}) {
            std::copy_if(cases.begin(), cases.end(), std::back_inserter(makers),
                         [&](const CaseMaker& maker) { return options_.thorough || !maker.thorough; });
        }
        std::vector<std::vector<std::string>> took(makers.size());
        for (std::size_t i = 0; i < makers.size(); ++i) {
            ask(makers, i, i, took);
        }
    }

    /// Tests a case. What stands in for a kernel that it finds wrong was not asked by the other
    /// cases up to the last, which that had passed: those are asked again. The long form asks it
    /// anyway.
    void ask(const std::vector<CaseMaker>& makers, std::size_t index, std::size_t last,
             std::vector<std::vector<std::string>>& took) {
        const std::size_t known = report_.left_out.size();
        took[index] = test(makers[index]);
        for (std::size_t k = known; !options_.thorough && k < report_.left_out.size(); ++k) {
            const std::string kernel = report_.left_out[k].kernel;
            for (std::size_t other = 0; other <= last; ++other) {
                if (other != index && has(took[other], kernel)) {
                    ask(makers, other, last, took);
                }
            }
        }
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

    /// Returns the kernels that programs take for the case.
    std::vector<std::string> test(const CaseMaker& maker) {
        try {
            return test_case(maker);
        } catch (const std::bad_alloc& e) {
            not_tested(maker.what, e);
            return {};
        }
    }

    /// What is left out for one plan of a case; `chosen`: programs do so too.
    struct Without {
        std::vector<LeftOut> kernels;
        bool chosen;
    };

    std::vector<std::string> test_case(const CaseMaker& maker) {
        std::vector<std::string> taken;
        if (over()) {
            return taken;
        }
        const std::optional<LoadedCase> has_weights = load(maker);
        if (!has_weights) {
            return taken;
        }
        const LoadedCase& loaded = *has_weights;
        refused_now_.clear();
        std::vector<std::string> seen;
        std::vector<Without> waiting{{core_.left_out(), true}};
        for (std::size_t i = 0; i < waiting.size() && !over(); ++i) {
            const bool chosen = waiting[i].chosen;
            const std::vector<LeftOut> without = core_.left_out_since.behind(waiting[i].kernels);
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
            if (chosen) {
                taken.insert(taken.end(), kernels.begin(), kernels.end());
            }
            const std::optional<LeftOut> failed = check(maker, loaded, std::move(*plan), without, chosen);
            if (failed) {  // whatever stands in for it is tested, too
                waiting.push_back({found_wrong(), chosen});
            }
            for (const std::string& kernel : kernels) {
                if (options_.thorough && !(failed && kernel == failed->kernel)) {
                    waiting.push_back({without, false});
                    waiting.back().kernels.push_back({kernel, "another is tested"});
                }
            }
        }
        for (const char* forced : variants()) {
            if (!options_.thorough || over()) {
                break;
            }
            const std::vector<LeftOut> without = core_.left_out();
            std::optional<Plan> plan = loaded.plan(capabilities(without, forced));
            if (plan && is_new(*plan, loaded, seen)) {
                check(maker, loaded, std::move(*plan), without, false);
            }
        }
        return taken;
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
        const std::string kernel = together(kernels);
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
            add({together(by_absence(loaded, kernels, without)), maker.what, e.what(), 0, ms_since(start), chosen});
            throw;
        }
        const double ms = ms_since(start);
        if (got.problem.empty()) {
            passed_.insert(kernels.begin(), kernels.end());
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
        } catch (const std::bad_alloc& e) {
            got.problem += std::string("; another in its place: ") + e.what();
            report_.complete = false;
        }
        add({guilty.empty() ? kernel : guilty, maker.what, got.problem, got.error, ms, chosen});
        if (guilty.empty() || !stands_in(loaded, guilty)) {
            // what the device chooses is right all the same
            report_.verdict = std::max(report_.verdict, chosen ? Verdict::unusable : Verdict::degraded);
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

    /// A plan without one kernel of another plan, and how many kernels differ. It tells of that
    /// kernel where all others that it does without have passed a check.
    struct Guess {
        std::string kernel;
        Plan plan;
        std::size_t differ = 0;
        bool tells = true;
    };

    /// The kernel to blame for what these compute together: the only one; the one without which
    /// results are right, where that tells of it, and of several that whose absence changes least;
    /// or the one with most of the work, if results are right at the end of the row of those that
    /// stand in for it. Empty: it cannot be told.
    std::string blame(const LoadedCase& loaded, const std::vector<std::string>& kernels,
                      const std::vector<LeftOut>& without) const {
        if (kernels.size() == 1) {
            return kernels.front();
        }
        for (auto& [differ, guess] : guesses_of(loaded, kernels, without)) {
            if (guess.tells && is_right(loaded, std::move(guess.plan))) {
                return guess.kernel;
            }
        }
        for (const std::string& kernel : kernels) {
            if (is_right_behind(loaded, kernel, kernels, without)) {
                return kernel;
            }
        }
        return {};
    }

    /// Of the kernels for which something stands in, by how many differ without them.
    std::multimap<std::size_t, Guess> guesses_of(const LoadedCase& loaded, const std::vector<std::string>& kernels,
                                                 const std::vector<LeftOut>& without) const {
        std::multimap<std::size_t, Guess> out;
        for (const std::string& kernel : kernels) {
            if (std::optional<Guess> guess = guess_of(loaded, kernel, kernels, without)) {
                out.emplace(guess->differ, std::move(*guess));
            }
        }
        return out;
    }

    /// The kernels in the order of guesses_of(), and behind them those that nothing stands in for.
    std::vector<std::string> by_absence(const LoadedCase& loaded, const std::vector<std::string>& kernels,
                                        const std::vector<LeftOut>& without) const {
        std::vector<std::string> out;
        for (const auto& [differ, guess] : guesses_of(loaded, kernels, without)) {
            out.push_back(guess.kernel);
        }
        std::copy_if(kernels.begin(), kernels.end(), std::back_inserter(out),
                     [&](const std::string& kernel) { return !has(out, kernel); });
        return out;
    }

    /// Nothing where nothing stands in for the kernel.
    std::optional<Guess> guess_of(const LoadedCase& loaded, const std::string& kernel,
                                  const std::vector<std::string>& kernels, std::vector<LeftOut> without) const {
        without.push_back({kernel, "another is tried"});
        std::optional<Plan> other = loaded.plan(capabilities(without));
        if (!other || has(kernels_of(*other), kernel)) {
            return {};
        }
        const std::vector<std::string> next = kernels_of(*other);
        Guess out{kernel, std::move(*other)};
        for (const std::string& name : next) {
            out.differ += has(kernels, name) ? 0 : 1;
        }
        for (const std::string& name : kernels) {
            const bool gone = !has(next, name);
            out.differ += gone ? 1 : 0;
            out.tells = out.tells && (!gone || name == kernel || passed_.contains(name));
        }
        return out;
    }

    bool is_right(const LoadedCase& loaded, Plan plan) const {
        return check_case(device_, loaded, std::move(plan), options_.repeats).problem.empty();
    }

    /// True where results are right once not only the kernel is left out, but also what stands in
    /// for it, and so on.
    bool is_right_behind(const LoadedCase& loaded, std::string kernel, std::vector<std::string> kernels,
                         std::vector<LeftOut> without) const {
        for (bool first = true;; first = false) {
            std::optional<Guess> guess = guess_of(loaded, kernel, kernels, without);
            if (!guess) {
                return false;
            }
            const std::vector<std::string> next = kernels_of(guess->plan);
            const auto fresh =
                std::find_if(next.begin(), next.end(), [&](const std::string& name) { return !has(kernels, name); });
            if (!first && is_right(loaded, std::move(guess->plan))) {
                return true;
            }
            if (fresh == next.end()) {
                return false;
            }
            without.push_back({kernel, "another is tried"});
            kernel = *fresh;
            kernels = next;
        }
    }

    const Device& device_;
    DeviceCore& core_;
    const SelfTestOptions& options_;
    const Clock::time_point start_ = Clock::now();
    SelfTest report_;
    std::vector<LeftOut> refused_now_;  ///< kernels for which this case found no memory
    std::set<std::string> passed_;      ///< kernels of the checks that passed
};

}  // namespace

SelfTest Device::self_test(const SelfTestOptions& options) const {
    core_->check_alive();
    if (core_->deferred) {
        throw Error("the host submits for this device (BorrowedDevice::host_submits)", "Device::self_test");
    }
    check_variants(core_->capabilities);
    return SelfTester(*this, *core_, options).run();
}

}  // namespace vkf
