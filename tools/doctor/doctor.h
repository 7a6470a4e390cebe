// SPDX-License-Identifier: Apache-2.0
// Examines a device, and keeps what is wrong with it for later programs.
#pragma once

#include <vkformer/vkformer.h>

#include <cstdio>
#include <filesystem>
#include <string>

struct DoctorOptions {
    std::string device = {};  ///< as DeviceOptions::select
    bool quick = false;
    bool measure = true;
    bool keep = true;     ///< keeps the list of kernels that are left out
    bool forget = false;  ///< removes that list, and does nothing else
    /// for report.json and report.html; empty: neither is written
    std::filesystem::path folder = {};
    std::filesystem::path cache_folder = {};
    vkf::GetInstanceProcAddr get_instance_proc_addr = nullptr;
    std::FILE* out = stdout;
};

/// Exit code of a device that can be used, where the report could not be written.
constexpr int kNoReport = 3;

/// Gives the exit code, a vkf::Verdict (0 healthy, 1 degraded, 2 unusable) or kNoReport. Throws
/// Error where there is no such device, or a variable decides already.
int run_doctor(const DoctorOptions& options);
