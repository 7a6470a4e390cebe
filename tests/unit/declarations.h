// SPDX-License-Identifier: Apache-2.0
// What headers declare, for tests that compare interfaces: names, parameters, members, enumerators.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace vkf::test {

struct Parameter {
    std::string type, name;
};

/// "Program::run", "torch::transformer", "matmul". Overloads stand behind each other.
struct Function {
    std::string name;
    std::vector<Parameter> parameters;
};

struct Struct {
    std::vector<Parameter> members;
    std::string comment;
};

struct Enum {
    std::vector<std::string> enumerators;
    std::string comment;
};

/// Everything public in some headers, by name without the outer namespace. Of a class without
/// public members only the functions are here. C's enums have the name that stands before them in
/// a typedef, or else that of their first enumerator.
struct Declarations {
    std::vector<Function> functions;
    std::map<std::string, Struct> structs;
    std::map<std::string, Enum> enums;
};

/// Gives the names that the declaration below a comment of C's header stands for: "C++: Rope,
/// RopeScaling."
std::vector<std::string> stands_for(const std::string& comment);
/// True for a sentence, where a name would be one word: then it says why there is no such name.
inline bool is_reason(const std::string& text) { return text.find(' ') != std::string::npos; }
/// Gives the names in a type.
std::set<std::string> words(const std::string& type);

/// Reads C++ or C as this project writes it. Adds to `out`.
void read_declarations(const std::filesystem::path& header, Declarations& out);
/// Reads the headers that cmake/Headers.cmake calls public.
Declarations public_declarations();
/// Reads c/vkformer_c.h.
Declarations declarations_of_c();

}  // namespace vkf::test
