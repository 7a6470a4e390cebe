// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>

#include <exception>

#include "benches.h"

namespace {

/// The rows of the table are printed by main, from medians.
class Quiet : public benchmark::BenchmarkReporter {
public:
    bool ReportContext(const Context&) override { return true; }
    void ReportRuns(const std::vector<Run>&) override {}
};

}  // namespace

std::vector<double> sample(const std::string& name, std::size_t count, const std::function<double()>& body) {
    std::vector<double> samples;
    std::exception_ptr error;
    const auto run = [&](benchmark::State& state) {
        try {
            for (auto _ : state) {
                samples.push_back(body());
                state.SetIterationTime(samples.back() * 1e-3);
            }
        } catch (const std::exception& e) {
            error = std::current_exception();
            state.SkipWithError(e.what());
        }
    };
    benchmark::RegisterBenchmark(name.c_str(), run)
        ->UseManualTime()
        ->Iterations(static_cast<benchmark::IterationCount>(count));
    Quiet quiet;
    benchmark::RunSpecifiedBenchmarks(&quiet);
    benchmark::ClearRegisteredBenchmarks();
    if (error) {
        std::rethrow_exception(error);
    }
    return samples;
}
