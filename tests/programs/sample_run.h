// SPDX-License-Identifier: Apache-2.0
// Samples run by tests, on models that may be damaged, and what their ends should be.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "process.h"

constexpr int kSeconds = 240;  // more than any takes, on a busy machine and with sanitizers

/// A copy of a model's folder that a test may damage.
struct Copy {
    std::filesystem::path folder =
        std::filesystem::temp_directory_path() / ("vkformer-" + std::to_string(std::random_device{}()));

    explicit Copy(const std::filesystem::path& model) {
        std::filesystem::create_directories(folder);
        for (const auto& entry : std::filesystem::directory_iterator(model)) {
            const std::string kind = entry.path().extension().string();
            if (kind == ".json" || kind == ".safetensors") {
                std::filesystem::copy_file(entry.path(), folder / entry.path().filename());
            }
        }
    }
    ~Copy() { std::filesystem::remove_all(folder); }
    Copy(const Copy&) = delete;
    Copy& operator=(const Copy&) = delete;

    std::string read(const std::string& file) const {
        std::ifstream in(folder / file, std::ios::binary);
        return {std::istreambuf_iterator<char>(in), {}};
    }
    void write(const std::string& file, const std::string& bytes) const {
        std::ofstream(folder / file, std::ios::binary) << bytes;
    }
};

Outcome run(const std::vector<std::string>& words);
bool has(const std::string& text, const std::string& part);
/// Checks that the sample ended by itself with one of the two codes; an error is the sample's own.
void check_sane(const Outcome& o, const std::string& name);
/// Checks that the sample ended with an error, too, which has this part.
void check_refused(const Outcome& o, const std::string& name, const std::string& part);
