// SPDX-License-Identifier: Apache-2.0
// What the doctor found, and how it is written. Nothing in it tells whose machine it was: no serial
// number, name of a host or user, or path.
#pragma once

#include <vkformer/vkformer.h>

#include <string>
#include <vector>

/// One op, or a ceiling, timed.
struct Measured {
    std::string name, kernel;
    double ms = 0;  ///< median
    double gflops = 0, gbps = 0;
    double share = 0;  ///< of the ceiling that binds it; 0: it is one itself, or none is known
};

struct Report {
    std::string version, day;
    bool quick = false;
    std::vector<vkf::Capabilities> devices;  ///< all that there are
    std::vector<std::string> broken;         ///< texts about those whose drivers could not be asked
    vkf::Capabilities device;                ///< the one that was examined
    std::size_t examined = 0;                ///< its index among `devices`
    vkf::SelfTest test;
    std::vector<Measured> ceilings, ops;
    std::string not_measured;  ///< why, where something failed
    double seconds = 0;
};

/// The checks of one kernel together. One of several kernels counts for each.
struct KernelSummary {
    std::string kernel, problem;
    std::size_t checks = 0;
    double error = 0;  ///< the largest
    double ms = 0;     ///< of all
    bool chosen = false;
};
/// In the order of the first check of each.
std::vector<KernelSummary> summaries(const vkf::SelfTest& test);

/// FloatFacts were looked at, the one of f16 too. Reports say nothing of what was not.
bool knows_f32(const vkf::SelfTest& test);
bool knows_f16(const vkf::SelfTest& test);

/// Puts what a later device found behind what the ones before did. A check that both passed is
/// there once.
void put_behind(vkf::SelfTest& all, vkf::SelfTest more);

/// What programs did without until now, and Capabilities::left_out_damage.
struct KeptBefore {
    std::vector<vkf::LeftOut> list;
    std::string damage = {};
};
/// What programs do without from now on, and what is said of it.
struct Kept {
    std::vector<vkf::LeftOut> list;
    std::string said;
    bool leave_file = false;  ///< it may hold what could not be read
};
/// A kernel is taken off the list again only if all was examined and it was run and was right: an
/// examination that was quick or cut short has not seen what another found. For the same reason
/// only a whole one replaces a list that is damaged.
Kept kept_of(const Report& report, const KeptBefore& before);

const char* name_of(vkf::Verdict verdict);
const char* name_of(vkf::DeviceType type);

std::string json_of(const Report& report);
/// One page, with its pictures in it.
std::string html_of(const Report& report);
