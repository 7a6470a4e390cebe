// SPDX-License-Identifier: Apache-2.0
#include "lock.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>
#if defined(__GLIBC__)
#include <unistd.h>
#endif

namespace py {

namespace {

std::atomic<bool> g_ending = false;
/// Threads that gave the interpreter's lock up, or took it for a callback.
std::atomic<int> g_inside = 0;
std::thread::id g_last_thread;  ///< the one that ends the interpreter; written ahead of g_ending
/// The one that calls handlers of signals, as Python numbers it.
std::atomic<unsigned long> g_main_thread = 0;

/// True while a Released lives in this thread, and no Locked within it.
bool& lock_given_up() {
    thread_local bool given_up = false;
    return given_up;
}

/// The end of a thread, which is inside, where the interpreter has ended.
void sleep_if_ended() noexcept {
    if (!g_ending || std::this_thread::get_id() == g_last_thread) return;
    --g_inside;
    while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

bool g_device_made = false, g_forked = false;

}  // namespace

void require_no_fork() {
    if (g_forked) {
        throw vkf::Error(
            "this process was forked from one that had made a device; make devices after the fork, or start "
            "processes with the method \"spawn\"",
            "vkformer", kForked);
    }
    if (in_queue_hook()) {
        throw vkf::Error("the lock functions of a queue cannot use its device", "Device.borrow", kBusy);
    }
}

void making_device() {
    require_no_fork();
    g_device_made = true;
}

void forked() {
    g_inside = 0;  // the threads that were are not here
    vkf::Device::give_up_all();
    if (g_forked || !g_device_made) return;
    g_forked = true;
#if defined(__GLIBC__)
    // drivers wait in their own handlers of exit() for threads that this process does not have;
    // this one is called before theirs
    on_exit(
        [](int status, void*) {
            std::fflush(nullptr);
            _exit(status);
        },
        nullptr);
#endif
}

bool& in_queue_hook() {
    thread_local bool inside = false;
    return inside;
}

bool may_release() {
    return Py_IsInitialized() != 0 && !g_ending && !g_forked && !lock_given_up() &&
           PyGILState_GetThisThreadState() != nullptr;
}

Released::Released() {
    ++g_inside;
    lock_given_up() = true;
    state_ = PyEval_SaveThread();
}

Released::~Released() {
    sleep_if_ended();
    PyEval_RestoreThread(state_);
    lock_given_up() = false;
    --g_inside;
}

Locked::Locked() : given_up_(lock_given_up()), foreign_(PyGILState_GetThisThreadState() == nullptr) {
    if (foreign_) ++g_inside;
    // a thread that has the lock may not sleep with it
    if (given_up_ || foreign_) sleep_if_ended();
    state_ = PyGILState_Ensure();
    lock_given_up() = false;
}

Locked::~Locked() {
    PyGILState_Release(state_);
    lock_given_up() = given_up_;
    if (foreign_) --g_inside;
}

void check_signals() {
    if (lock_given_up()) sleep_if_ended();
    if (PyThread_get_thread_ident() != g_main_thread) return;
    const Locked lock;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

void become_main(unsigned long thread) { g_main_thread = thread; }

void ending() {
    constexpr auto kMost = std::chrono::seconds(2);
    const auto start = std::chrono::steady_clock::now();
    g_last_thread = std::this_thread::get_id();
    g_ending = true;
    PyThreadState* state = PyEval_SaveThread();
    while (g_inside > 0 && std::chrono::steady_clock::now() - start < kMost) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    PyEval_RestoreThread(state);
}

}  // namespace py
