// Counted calls, injected faults, live objects, violations, error names, and the functions that tests call.
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "standin.h"

namespace standin {
namespace {

struct Fault {
    long nth;  // fires when the count reaches it
    int error;
};

struct State {
    std::map<std::string, long> calls;
    std::map<std::string, std::vector<Fault>> faults;
    std::map<std::string, std::set<const void*>> live;
    std::vector<std::string> violations;
};

State& state() {
    static State* instance = new State;  // never destroyed: Python frees objects while the process ends
    return *instance;
}

thread_local int last_error = 0;

}  // namespace

std::recursive_mutex& mutex() {
    static std::recursive_mutex* instance = new std::recursive_mutex;
    return *instance;
}

int count_call(const char* name) {
    const long count = ++state().calls[name];
    std::vector<Fault>& faults = state().faults[name];
    for (size_t i = 0; i < faults.size(); ++i)
        if (faults[i].nth == count) {
            const int error = faults[i].error;
            faults.erase(faults.begin() + i);
            return error;
        }
    return 0;
}

void violation(const char* format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    state().violations.push_back(text);
}

void track(const char* kind, const void* object) { state().live[kind].insert(object); }

bool tracked(const char* kind, const void* object) { return state().live[kind].count(object) != 0; }

bool untrack(const char* kind, const void* object) {
    if (state().live[kind].erase(object)) return true;
    violation("%s %p is not alive", kind, object);
    return false;
}

int remember(int error) {
    if (error) last_error = error;
    return error;
}

}  // namespace standin

using namespace standin;

extern "C" {

// ---- for tests -----------------------------------------------------------------------------------------------------

// The nth call of `name` from now on (1: the next) fails with `error`.
void standin_fail(const char* name, int nth, int error) {
    std::lock_guard<std::recursive_mutex> lock(mutex());
    state().faults[name].push_back({state().calls[name] + nth, error});
}

void standin_clear_faults() {
    std::lock_guard<std::recursive_mutex> lock(mutex());
    state().faults.clear();
}

long standin_calls(const char* name) {
    std::lock_guard<std::recursive_mutex> lock(mutex());
    return state().calls[name];
}

// Writes the names of the functions that were called so far, one a line.
void standin_called(char* text, size_t size) {
    std::lock_guard<std::recursive_mutex> lock(mutex());
    std::string lines;
    for (const auto& entry : state().calls)
        if (entry.second) lines += entry.first + "\n";
    snprintf(text, size, "%s", lines.c_str());
}

long standin_live(const char* kind) {
    std::lock_guard<std::recursive_mutex> lock(mutex());
    return long(state().live[kind].size());
}

// Writes the violations so far, one a line, and forgets them; returns how many there were.
long standin_violations(char* text, size_t size) {
    std::lock_guard<std::recursive_mutex> lock(mutex());
    std::string lines;
    for (const std::string& line : state().violations) lines += line + "\n";
    const long count = long(state().violations.size());
    state().violations.clear();
    if (size) snprintf(text, size, "%s", lines.c_str());
    return count;
}

// ---- errors --------------------------------------------------------------------------------------------------------

const char* hipGetErrorName(int error) {
    switch (error) {
#define X(name, value) \
    case value:        \
        return #name;
        STANDIN_ERRORS(X)
#undef X
    }
    return "hipErrorUnknown";
}

const char* hipGetErrorString(int error) {
    switch (error) {
        case 0: return "no error";
        case hipErrorInvalidValue: return "invalid argument";
        case hipErrorOutOfMemory: return "out of memory";
        case hipErrorNotInitialized: return "initialization error";
        case hipErrorInvalidConfiguration: return "invalid configuration argument";
        case hipErrorNoDevice: return "no ROCm-capable device is detected";
        case hipErrorInvalidDevice: return "invalid device ordinal";
        case hipErrorInvalidImage: return "device kernel image is invalid";
        case hipErrorNoBinaryForGpu: return "no kernel image is available for execution on the device";
        case hipErrorInvalidHandle: return "invalid resource handle";
        case hipErrorNotFound: return "named symbol not found";
        case hipErrorNotReady: return "device not ready";
        case hipErrorIllegalAddress: return "an illegal memory access was encountered";
        case hipErrorLaunchFailure: return "unspecified launch failure";
        case hipErrorNotSupported: return "operation not supported";
        case hipErrorStreamCaptureUnsupported: return "operation not permitted when stream is capturing";
        case hipErrorStreamCaptureInvalidated: return "operation failed due to a previous error during capture";
        case hipErrorStreamCaptureImplicit: return "operation would make the legacy stream depend on a capturing blocking stream";
    }
    return hipGetErrorName(error);
}

int hipDrvGetErrorName(int error, const char** text) { return *text = hipGetErrorName(error), 0; }

int hipDrvGetErrorString(int error, const char** text) { return *text = hipGetErrorString(error), 0; }

int hipPeekAtLastError() { return last_error; }

int hipGetLastError() {
    const int error = last_error;
    last_error = 0;
    return error;
}

}  // extern "C"
