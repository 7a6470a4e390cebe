// SPDX-License-Identifier: Apache-2.0
// The interpreter's lock, and the turns that threads take.
#pragma once

#include "errors.h"
#include "nanobind.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace py {

/// The interpreter's lock is given up while it lives. Where the interpreter has ended meanwhile, a
/// daemon's thread sleeps from then on: Python would end it in a destructor, and so the process.
class Released {
public:
    Released();
    ~Released();
    Released(const Released&) = delete;
    Released& operator=(const Released&) = delete;

private:
    PyThreadState* state_;
};
/// True where this thread has the interpreter's lock, and may wait without it: the interpreter has
/// not ended, and the process was not forked.
bool may_release();
/// The interpreter's lock is held while it lives, whether or not the thread had it: for what C++
/// calls. A thread that has to take it after the interpreter has ended sleeps likewise.
class Locked {
public:
    Locked();
    ~Locked();
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;

private:
    bool given_up_, foreign_;
    PyGILState_STATE state_;
};
/// The interpreter is about to end. Waits for threads that are in vkformer, two seconds at most:
/// the drivers that they are in end soon, too.
void ending();
/// Throws what the handler of a signal raised, Ctrl-C's too. The main thread alone calls handlers:
/// no other takes the interpreter's lock here, but it sleeps where the interpreter has ended.
void check_signals();
/// Tells which thread is the main one, as Python numbers it.
void become_main(unsigned long thread);

/// Deletes what holds objects of Python's, with or without the interpreter's lock. It stays where
/// the interpreter is gone already, as when C++'s own globals go last.
template <class T>
void delete_locked(T* holder) {
    if (Py_IsInitialized() == 0) return;
    const Locked lock;
    delete holder;
}
/// An object that C++ may copy and destroy without the interpreter's lock.
inline std::shared_ptr<nb::object> held(nb::object object) {
    return {new nb::object(std::move(object)), delete_locked<nb::object>};
}

/// What threads take in turn. A thread that has it already is told so instead of waiting for
/// itself: a callback, or the handler of a signal, called what called it.
class Mutex {
public:
    void lock() {
        refuse_owner();
        mutex_.lock();
        owner_ = std::this_thread::get_id();
    }
    /// False where others have it until then.
    bool try_lock_until(std::chrono::steady_clock::time_point end) {
        refuse_owner();
        if (!mutex_.try_lock_until(end)) return false;
        owner_ = std::this_thread::get_id();
        return true;
    }
    void unlock() {
        owner_ = std::thread::id();
        mutex_.unlock();
    }

    /// The last run that submit() began, of all programs that share the mutex: what changes their
    /// State waits for it. It changes behind the mutex.
    vkf::Ticket last_run;
    /// Who waits for a ticket takes this too, behind the mutex. The end of a program or model, that
    /// waits for the same runs, takes it alone: garbage is collected in threads that are at work
    /// with other programs, and two of these could wait for each other's mutex. Who has this waits
    /// for runs alone.
    std::recursive_timed_mutex waiting;

private:
    void refuse_owner() const {
        if (owner_ == std::this_thread::get_id()) {
            throw vkf::Error(
                "is at work already in this thread, and waits for the function that calls it now: a callback, or the "
                "handler of a signal, cannot use what called it",
                "vkformer", kBusy);
        }
    }

    std::timed_mutex mutex_;
    std::atomic<std::thread::id> owner_;
};
/// Deletes what waits for its runs as it ends, without the interpreter's lock.
struct DeleteUnlocked {
    std::shared_ptr<Mutex> mutex = std::make_shared<Mutex>();  ///< of those who call it
    template <class T>
    void operator()(T* object) const {
        if (!may_release()) {
            delete object;
            return;
        }
        const Released release;
        const std::lock_guard lock(mutex->waiting);
        delete object;
    }
};
template <class T>
using Owned = std::unique_ptr<T, DeleteUnlocked>;
template <class T>
Owned<T> owned(T object, std::shared_ptr<Mutex> mutex = std::make_shared<Mutex>()) {
    return Owned<T>(new T(std::move(object)), DeleteUnlocked{std::move(mutex)});
}

/// Throws in a child of a process that had made a device: what is made of it has threads and memory
/// that a fork does not bring along. Throws within the lock functions of a host's queue, too.
void require_no_fork();
/// Tells that a device is made now.
void making_device();
/// Called in the child of a fork.
void forked();
/// True while this thread is in the lock functions of a host's queue.
bool& in_queue_hook();

/// Runs `work` without the interpreter's lock, behind the mutex.
template <class F>
auto unlocked(Mutex& mutex, F work) {
    require_no_fork();
    const Released release;
    const std::lock_guard lock(mutex);
    return work();
}
template <class F>
auto unlocked(F work) {
    require_no_fork();
    const Released release;
    return work();
}

/// The turn of a thread that keeps the interpreter's lock, and waits without it.
inline std::unique_lock<Mutex> turn_of(Mutex& mutex) {
    require_no_fork();
    const Released release;
    return std::unique_lock(mutex);
}

/// Waits for a run of a program, behind its mutex.
inline void wait(Mutex& mutex, const vkf::Ticket& run) {
    const std::lock_guard lock(mutex.waiting);
    run.wait();
}

}  // namespace py
