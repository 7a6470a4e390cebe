# SPDX-License-Identifier: Apache-2.0
"""Each file includes what it uses, itself or through a header of ours: of the standard library, and
in the library also the types and constants of its own headers.

Builds precompile the headers that most files include and compile files several at a time, so their
compilers do not see what a file forgot. Nor is it enough that one standard header brings another
along: libraries differ in that.
"""
import collections
import functools
import pathlib
import re
import unittest

SOURCE = pathlib.Path(__file__).resolve().parent.parent
LIBRARY = ("runtime", "ops", "layers", "models", "doctor", "train", "parallel", "text", "c")
ROOMS = (*LIBRARY, "python", "samples", "tests", "tools")
NAMES = {
    "algorithm": "adjacent_find all_of any_of clamp copy copy_if copy_n count count_if equal fill fill_n find find_first_of"
                 " find_if find_if_not for_each is_sorted lower_bound max max_element merge min min_element minmax next_permutation"
                 " none_of nth_element partial_sort partition partition_point replace replace_if reverse rotate search"
                 " set_difference shuffle sort stable_partition stable_sort transform unique upper_bound",
    "array": "array",
    "atomic": "atomic",
    "bit": "bit_cast bit_ceil bit_floor bit_width countl_zero countr_zero endian has_single_bit popcount",
    "cctype": "isalnum isalpha isdigit isspace isupper isxdigit tolower toupper",
    "charconv": "chars_format from_chars to_chars",
    "chrono": "chrono",
    "clocale": "localeconv setlocale",
    "cmath": "acos atan2 cbrt ceil copysign cos erf erfc exp exp2 expm1 floor fma fmod hypot ilogb isfinite isinf isnan"
             " ldexp lerp llround log log10 log1p log2 lround nan nanf nearbyint nextafter pow rint round signbit sin"
             " sqrt tan tanh trunc",
    "condition_variable": "condition_variable",
    "csignal": "raise sig_atomic_t signal",
    "cstdarg": "va_list",
    "cstdint": "int16_t int32_t int64_t int8_t intptr_t uint16_t uint32_t uint64_t uint8_t uintmax_t uintptr_t",
    "cstdio": "FILE fclose ferror fflush fopen fprintf fputc fputs fread fseek fwrite printf putchar puts rewind snprintf"
              " sscanf tmpfile vsnprintf",
    "cstdlib": "abort atoi calloc exit free getenv malloc quick_exit realloc strtod strtof strtol strtoll strtoul strtoull",
    "cstring": "memchr memcmp memcpy memmove memset strcmp strcpy strerror strlen strncmp strncpy strstr",
    "ctime": "clock clock_t gmtime localtime strftime time time_t tm",
    "deque": "deque",
    "exception": "current_exception exception_ptr rethrow_exception terminate uncaught_exceptions",
    "filesystem": "filesystem",
    "fstream": "fstream ifstream ofstream",
    "functional": "bind_front divides equal_to function greater hash invoke less minus multiplies plus ref reference_wrapper",
    "future": "async future future_status launch packaged_task promise",
    "initializer_list": "initializer_list",
    "iomanip": "quoted setfill setprecision setw",
    "iostream": "cerr cin cout",
    "iterator": "back_inserter distance istreambuf_iterator make_move_iterator prev",
    "limits": "numeric_limits",
    "list": "list",
    "locale": "locale",
    "map": "map multimap",
    "memory": "addressof align enable_shared_from_this make_shared make_unique shared_ptr unique_ptr weak_ptr",
    "mutex": "adopt_lock call_once lock_guard mutex once_flag recursive_mutex recursive_timed_mutex scoped_lock"
             " timed_mutex unique_lock",
    "new": "align_val_t bad_alloc nothrow",
    "numbers": "numbers",
    "numeric": "accumulate gcd inner_product iota lcm partial_sum reduce",
    "optional": "nullopt optional",
    "queue": "priority_queue queue",
    "random": "mt19937 mt19937_64 normal_distribution random_device uniform_int_distribution uniform_real_distribution",
    "regex": "regex regex_match regex_replace regex_search smatch sregex_iterator",
    "set": "multiset set",
    "shared_mutex": "shared_lock shared_mutex",
    "span": "as_bytes as_writable_bytes span",
    "sstream": "istringstream ostringstream stringstream",
    "stdexcept": "invalid_argument length_error logic_error out_of_range overflow_error runtime_error",
    "string": "getline stod stof stoi stol stoll stoul stoull string to_string u8string",
    "string_view": "string_view",
    "system_error": "errc error_category error_code generic_category make_error_code system_category system_error",
    "thread": "jthread this_thread thread",
    "tuple": "make_tuple tie tuple",
    "type_traits": "conditional_t decay_t false_type invoke_result_t is_base_of_v is_enum_v is_integral_v is_invocable_v"
                   " is_floating_point_v is_pointer_v is_same_v is_trivially_copyable_v is_void_v remove_cvref_t remove_reference_t true_type"
                   " underlying_type_t",
    "typeinfo": "bad_cast",
    "unordered_map": "unordered_map",
    "unordered_set": "unordered_set",
    "utility": "as_const cmp_less declval exchange forward in_place in_range make_pair move pair swap",
    "variant": "get_if holds_alternative monostate variant visit",
    "vector": "vector",
}
# What several headers are said to declare.
SEVERAL = {
    "abs": "cmath cstdlib",
    "byte": "cstddef span",
    "erase": "deque map string vector",
    "erase_if": "deque map set string unordered_map vector",
    "exception": "exception stdexcept",
    "get": "array tuple utility variant",
    "ios": "ios fstream iostream sstream",
    "micro": "ratio chrono",
    "milli": "ratio chrono",
    "ostream": "ostream iostream sstream fstream",
    "streamsize": "ios fstream iostream sstream",
    "to_integer": "cstddef span",
}
ANYWHERE = {"begin", "end", "ptrdiff_t", "size", "size_t", "ssize"}  # of every container's header


def headers_of(name):
    if name in SEVERAL:
        return set(SEVERAL[name].split())
    return {header for header, names in NAMES.items() if name in names.split()}


@functools.cache
def public_headers():
    """What <vkformer/vkformer.h> includes."""
    listed = re.search(r"set\(public_headers\s+([^)]*)\)", (SOURCE / "cmake/Headers.cmake").read_text())[1]
    return {SOURCE / name for name in listed.split()}


@functools.cache
def read(path):
    """A file without texts and comments, its standard headers, and its headers of ours."""
    text = path.read_text()
    standard = set(re.findall(r"^#include <([^>]+)>", text, re.M))
    ours = {(folder / name).resolve() for name in re.findall(r'^#include "([^"]+)"', text, re.M)
            for folder in (path.parent, SOURCE) if (folder / name).is_file()}
    if "vkformer/vkformer.h" in standard:
        ours |= public_headers()
    text = re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', text)
    return re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.S), standard, ours


@functools.cache
def reached(path):
    """The file and every header of ours that it includes, also through others."""
    files, left = set(), [path]
    while left:
        file = left.pop()
        if file not in files:
            files.add(file)
            left.extend(read(file)[2])
    return files


def forgotten(path):
    """(name, its headers) for each that the file uses of the standard library and does not include."""
    text = read(path)[0]
    standard = set().union(*(read(file)[1] for file in reached(path)))
    missing = []
    for name in sorted(set(re.findall(r"\bstd::(?:ranges::)?([A-Za-z_]\w*)", text)) - ANYWHERE):
        headers = headers_of(name)
        if not headers & standard:
            missing.append((name, " or ".join(sorted(headers)) or "no header that this test knows"))
    return missing


@functools.cache
def declared(path):
    """The types and constants that a header declares outside of others."""
    text = read(path)[0]
    types = r"^(?:template <[^\n]*>\s*)?(?:class|struct|enum class|enum)\s+(?:[A-Z_]+\s+)?(\w+)\s*(?:final\s*)?(?::[^;{]*)?\{"
    return {name for pattern in (types, r"^using (\w+) =", r"^(?:inline )?constexpr [\w:<> ]+ (\w+)")
            for name in re.findall(pattern, text, re.M)}


def names(path):
    return set(re.findall(r"\b[A-Za-z_]\w*\b", read(path)[0]))


def forgotten_of_ours(path, header_of):
    """(name, its header) for each that the file uses and whose header it does not include. A name may
    be declared ahead, or mean something else that the file itself declares."""
    files = reached(path)
    ahead = r"\b(?:class|struct|using|constexpr [\w:<> ]+)\s+(?:[A-Z_]+\s+)?{}\b"
    return [(name, str(header_of[name].relative_to(SOURCE))) for name in sorted(names(path) & header_of.keys())
            if header_of[name] not in files
            and not any(re.search(ahead.format(name), read(file)[0]) for file in files)]


def files(rooms):
    return sorted(path for room in rooms for kind in ("*.h", "*.cpp") for path in (SOURCE / room).rglob(kind)
                  if "shaders" not in path.relative_to(SOURCE).parts)


class Includes(unittest.TestCase):
    def test_of_the_standard_library(self):
        self.assertGreater(len(files(ROOMS)), 400)
        for path in files(ROOMS):
            with self.subTest(path.relative_to(SOURCE)):
                self.assertEqual([], forgotten(path))

    def test_of_our_own_in_the_library(self):
        headers = collections.defaultdict(list)
        for path in files(LIBRARY):
            if path.suffix == ".h":
                for name in declared(path):
                    headers[name].append(path)
        header_of = {name: paths[0] for name, paths in headers.items() if len(paths) == 1}
        self.assertGreater(len(header_of), 300)
        for path in files(LIBRARY):
            with self.subTest(path.relative_to(SOURCE)):
                self.assertEqual([], forgotten_of_ours(path, header_of))


if __name__ == "__main__":
    unittest.main()
