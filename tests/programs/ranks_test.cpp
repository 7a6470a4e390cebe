// SPDX-License-Identifier: Apache-2.0
// Processes that mpirun starts: the transport between them, and samples/generate shared out.
#ifdef RANKS_PROGRAM

#include <doctest/doctest.h>

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <sstream>

#include "sample_run.h"

namespace {

/// The words by which so many ranks of a program are started.
std::vector<std::string> ranks_of(int ranks, std::vector<std::string> words, const std::string& streams = "2>&1") {
    // Root runs tests in containers, of fewer cores than ranks, and without ssh.
    for (const char* name :
         {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_rmaps_base_oversubscribe"}) {
        setenv(name, "1", 1);
    }
    setenv("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe", 1);
    setenv("OMPI_MCA_plm_rsh_agent", "", 1);
    words.insert(words.begin(),
                 {"/bin/sh", "-c", "exec \"$0\" \"$@\" " + streams, MPIEXEC, "-n", std::to_string(ranks)});
    return words;
}

/// Runs so many ranks of a program.
Outcome on_ranks(int ranks, const std::vector<std::string>& words, const std::string& streams = "2>&1") {
    return run(ranks_of(ranks, words, streams));
}

std::vector<std::string> sorted_lines(const std::string& text, const std::string& start) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
        if (line.starts_with(start)) {
            lines.push_back(line);
        }
    }
    std::sort(lines.begin(), lines.end());
    return lines;
}

/// What one process says, but for errors.
std::string alone(std::vector<std::string> words) {
    words.insert(words.begin(), {"/bin/sh", "-c", "exec \"$0\" \"$@\" 2>/dev/null"});
    return run(words).output;
}

/// The answer to these words, which is the same with this one behind them: of one process, and of
/// several ranks.
std::string same_answer(std::vector<std::string> words, const char* parallel) {
    std::string want = alone(words);
    CHECK(want.size() > 20);
    words.emplace_back(parallel);
    CHECK(alone(words) == want);
    for (const int ranks : {2, 3}) {
        const Outcome o = on_ranks(ranks, words, "2>/dev/null");
        CHECK(o.code == 0);
        CHECK(o.output == want);
    }
    return want;
}

}  // namespace

TEST_CASE("ranks: sums over processes have the bits of the ranks' order") {
    for (const int ranks : {1, 2, 3}) {
        const Outcome o = on_ranks(ranks, {RANKS_PROGRAM, "sums"});
        CHECK_MESSAGE(o.code == 0, o.output);
        const auto said = sorted_lines(o.output, "rank ");
        CHECK(said.size() == static_cast<std::size_t>(ranks));
        for (const std::string& line : said) {
            CHECK(line.ends_with(": same bits"));
        }
    }
}

TEST_CASE("ranks: one that ends, hangs or differs is named, and all end") {
    Outcome o = on_ranks(3, {RANKS_PROGRAM, "ends"});
    CHECK(o.code != 0);
    CHECK_MESSAGE(has(o.output, "rank 2: error: out of memory"), o.output);
    CHECK_MESSAGE(has(o.output, "error: rank 2: has ended, and rank "), o.output);
    o = on_ranks(2, {RANKS_PROGRAM, "hangs"});
    CHECK(o.code != 0);
    CHECK_MESSAGE(has(o.output, "rank 0: error: rank 1: did not answer rank 0 within 0.5"), o.output);
    o = on_ranks(2, {RANKS_PROGRAM, "differs"});
    CHECK(o.code != 0);
    CHECK_MESSAGE(has(o.output, "does all_reduce of 100"), o.output);
}

TEST_CASE("generate: --layer-parallel and --parallel auto answer on several ranks as on one") {
    std::vector<std::string> words{GENERATE_PROGRAM, "--prompt", "98765 is", "--weights", "int8", "--chunk", "3"};
    const std::string want = same_answer(words, "--layer-parallel");
    words.push_back("--layer-parallel");
    Outcome o = on_ranks(4, words);
    CHECK(o.code != 0);
    CHECK_MESSAGE(has(o.output, "3 layers cannot be shared out over 4 ranks"), o.output);
    // draws are the first rank's
    words.insert(words.end(), {"--temperature", "1.5", "--seed", "3"});
    const Outcome drawn = on_ranks(2, words, "2>/dev/null");
    words.erase(std::find(words.begin(), words.end(), "--layer-parallel"));
    CHECK(drawn.output == alone(words));
    words.erase(words.end() - 4, words.end());
    words.insert(words.end(), {"--parallel", "auto"});
    CHECK(alone(words) == want);
    o = on_ranks(2, words, "2>/dev/null");
    CHECK(o.code == 0);
    CHECK(o.output == want);
    o = on_ranks(2, words);
    CHECK_MESSAGE(sorted_lines(o.output, "link ").size() == 1, o.output);
    CHECK_MESSAGE(has(o.output, ", by the model of time: rank "), o.output);
    check_refused(run({GENERATE_PROGRAM, "--layer-parallel", "--check"}), "--layer-parallel", "goes with an answer");
}

TEST_CASE("ranks: one that is killed at any moment ends all, and mpirun names it") {
    for (int again = 0; again < 4; ++again) {
        const auto before = std::chrono::steady_clock::now();
        const Outcome o = on_ranks(2, {RANKS_PROGRAM, "killed"});
        CHECK(std::chrono::steady_clock::now() - before < std::chrono::seconds(20));
        CHECK(o.code != 0);
        CHECK_MESSAGE((has(o.output, "rank 1") && has(o.output, "ignal 9")), o.output);
    }
}

TEST_CASE("generate: an interrupt of mpirun, or of any rank alone, ends all") {
    const Copy folder(VKFORMER_SOURCE_DIR "/samples/generate");
    // each rank leaves its number behind
    const std::string script =
        "echo $$ >" + (folder.folder / "rank-").string() + "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; exec \"$0\" \"$@\"";
    for (const char* way : {"--tensor-parallel", "--layer-parallel"}) {
        for (const int whom : {-1, 0, 1}) {
            CAPTURE(way);
            CAPTURE(whom);
            Process p(ranks_of(2, {"/bin/sh", "-c", script, GENERATE_PROGRAM, way, "--ignore-eos", "-n", "200"}));
            REQUIRE(p.wait_for("rank 0 of 2: memory: ", kSeconds));
            const auto before = std::chrono::steady_clock::now();
            if (whom < 0) {
                p.interrupt();
            } else {
                kill(std::stoi(folder.read("rank-" + std::to_string(whom))), SIGINT);
            }
            const Outcome o = p.wait(kSeconds);
            CHECK_FALSE(o.hung);
            CHECK_MESSAGE((o.code != 0 || o.signal != 0), o.output);
            CHECK(std::chrono::steady_clock::now() - before < std::chrono::seconds(20));
        }
    }
}

TEST_CASE("generate: --tensor-parallel answers on several ranks as on one") {
    std::vector<std::string> words{GENERATE_PROGRAM, "--prompt", "98765 is", "--weights", "int8"};
    const std::string want = same_answer(words, "--tensor-parallel");
    words.push_back("--tensor-parallel");
    // and where its devices are not alike, by their speeds
    words.insert(words.end(), {"--speeds", "3,1"});
    Outcome unlike = on_ranks(2, words, "2>/dev/null");
    CHECK(unlike.code == 0);
    CHECK(unlike.output == want);
    unlike = on_ranks(3, words);
    CHECK(unlike.code != 0);
    CHECK_MESSAGE(has(unlike.output, "2 speeds of 3 ranks"), unlike.output);
    words.erase(words.end() - 2, words.end());
    check_refused(run({GENERATE_PROGRAM, "--speeds", "3,1"}), "--speeds", "goes with --tensor-parallel");
    check_refused(run({GENERATE_PROGRAM, "--limit", "5"}), "--limit", "goes with --tensor-parallel");
    // each rank says what it takes
    const Outcome o = on_ranks(2, words);
    CHECK_MESSAGE(sorted_lines(o.output, "rank 0 of 2: memory: ").size() == 1, o.output);
    CHECK_MESSAGE(sorted_lines(o.output, "rank 1 of 2: memory: ").size() == 1, o.output);
    // draws are the first rank's
    words.insert(words.end(), {"--temperature", "1.5", "--seed", "3"});
    const Outcome drawn = on_ranks(2, words, "2>/dev/null");
    words.erase(std::find(words.begin(), words.end(), "--tensor-parallel"));
    CHECK(drawn.output == alone(words));
    check_refused(run({GENERATE_PROGRAM, "--tensor-parallel", "--check"}), "--tensor-parallel", "goes with an answer");
}

#endif
