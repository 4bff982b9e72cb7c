// What the stand-in's four libraries share: one lock, counted calls with injected faults, the table of live objects,
// device memory, and the work queues of streams. It lives in libamdhip64.so; the others link to it, as the real ones do.
//
// The stand-in is stricter than hardware on purpose. Queued work runs as late as the rules allow: only when somebody
// waits for it. Device addresses cannot be read or written by the host. Memory starts as NaN and its surroundings trap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>

#include "hip_enums.h"  // generated from hip-python: STANDIN_ERRORS(X), STANDIN_ATTRIBUTES(X)

namespace standin {

#define X(name, value) constexpr int name = value;
STANDIN_ERRORS(X)
STANDIN_ATTRIBUTES(X)
#undef X

struct Stream;
using Work = std::function<int()>;  // runs on the device, returns a hipError_t

std::recursive_mutex& mutex();

// Counts a use of an API function and returns the fault to inject, or 0.
int count_call(const char* name);
// Notes wrong use that a real runtime might let pass; tests ask for the list.
void violation(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Live objects by kind ("memory", "stream", "event", "module", "graph", "program", "blas", ...).
void track(const char* kind, const void* object);
bool tracked(const char* kind, const void* object);
bool untrack(const char* kind, const void* object);  // false: not alive, which is also a violation

// Devices. The current device is a thread's own.
int device_count();
int current_device();
const char* device_arch();  // "gfx942"
int device_error(int device);  // stays until the process ends, as after a memory fault
void set_device_error(int device, int error);
int remember(int error);  // sets the thread's last error

// A HIP call: locked, counted, faults injected, failing when the device failed before.
template <class Body>
int hip_call(const char* name, Body body) {
    std::lock_guard<std::recursive_mutex> lock(mutex());
    int error = count_call(name);
    if (!error && !device_count()) error = hipErrorNoDevice;
    if (!error) error = device_error(current_device());
    if (!error) error = body();
    return remember(error);
}

// A call of another library, or one that answers whatever the device's state.
template <class Body>
int plain_call(const char* name, Body body) {
    std::lock_guard<std::recursive_mutex> lock(mutex());
    int error = count_call(name);
    return error ? error : body();
}

// Device memory. `resolve` gives the host's view of `bytes` bytes at a device address on `device`, or null when they do
// not lie in one live allocation there.
bool is_device_address(const void* address);
void* resolve(const void* address, size_t bytes, int device);
bool surroundings_intact(const void* address);  // nothing was written beside this address's allocation

// Streams. 0 is the current device's default stream. Null result: not a live stream.
Stream* find_stream(void* handle);
int stream_device(Stream* stream);
int enqueue(Stream* stream, Work work);  // captured into a graph while the stream captures
void drain(Stream* stream);
void drain_device(int device);
int step(Stream* stream);  // runs one piece of queued work; 0 when none is left
// The error of a call that must not be made while a stream captures, or 0; makes the capture invalid.
int forbidden_in_capture();

// Runs work that may trap; returns 0, hipErrorIllegalAddress or hipErrorLaunchFailure.
int guarded(const std::function<void()>& work);

}  // namespace standin
