// Events: points in a stream's work, with the time at which it got there.
#include <chrono>

#include "streams.h"

namespace standin {
namespace {

struct Event {
    int device;
    bool timed;
    bool captured = false;
    Point point{0, 0};  // its last recording; stream 0: never recorded
    long recordings = 0, completed = 0;
    double milliseconds = 0;
};

using Events = std::map<void*, std::shared_ptr<Event>>;

Events& events() {
    static Events* instance = new Events;
    return *instance;
}

std::shared_ptr<Event> find_event(void* handle) {
    const auto found = events().find(handle);
    if (found != events().end()) return found->second;
    violation("event %p is not alive", handle);
    return nullptr;
}

double now() {
    using namespace std::chrono;
    return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

int create(const char* call, void** result, unsigned flags) {
    return hip_call(call, [&] {
        auto event = std::make_shared<Event>();
        event->device = current_device();
        event->timed = !(flags & 2);  // hipEventDisableTiming
        *result = event.get();
        events()[*result] = event;
        track("event", *result);
        return 0;
    });
}

}  // namespace
}  // namespace standin

using namespace standin;

extern "C" {

int hipEventCreateWithFlags(void** result, unsigned flags) { return create("hipEventCreateWithFlags", result, flags); }

int hipEventCreate(void** result) { return create("hipEventCreate", result, 0); }

int hipEventDestroy(void* handle) {
    return hip_call("hipEventDestroy", [&] {
        if (!find_event(handle)) return int(hipErrorInvalidHandle);
        events().erase(handle);
        untrack("event", handle);
        return 0;
    });
}

int hipEventRecord(void* handle, void* stream_handle) {
    return hip_call("hipEventRecord", [&] {
        Stream* stream = find_stream(stream_handle);
        const std::shared_ptr<Event> event = find_event(handle);
        if (!stream || !event) return int(hipErrorInvalidHandle);
        if (event->device != stream->device) {
            violation("an event of device %d was recorded on a stream of device %d", event->device, stream->device);
            return int(hipErrorInvalidHandle);
        }
        event->captured = stream->capture != nullptr;
        const long recording = ++event->recordings;
        const int error = enqueue(stream, [event, recording] {
            event->milliseconds = now();
            event->completed = recording;
            return 0;
        });
        event->point = {stream->id, stream->issued};
        return error;
    });
}

int hipEventSynchronize(void* handle) {
    return hip_call("hipEventSynchronize", [&] {
        const std::shared_ptr<Event> event = find_event(handle);
        if (!event) return int(hipErrorInvalidHandle);
        if (event->captured) return int(hipErrorCapturedEvent);
        wait_for({event->point});
        return device_error(event->device);
    });
}

int hipEventQuery(void* handle) {
    return hip_call("hipEventQuery", [&] {
        const std::shared_ptr<Event> event = find_event(handle);
        if (!event) return int(hipErrorInvalidHandle);
        if (event->completed == event->recordings) return device_error(event->device);
        const auto found = live_streams().find(event->point.first);
        if (found != live_streams().end()) step(found->second);
        return int(hipErrorNotReady);
    });
}

int hipEventElapsedTime(float* milliseconds, void* start_handle, void* stop_handle) {
    return hip_call("hipEventElapsedTime", [&] {
        const std::shared_ptr<Event> start = find_event(start_handle), stop = find_event(stop_handle);
        if (!start || !stop || !start->timed || !stop->timed) return int(hipErrorInvalidHandle);
        if (!start->recordings || !stop->recordings || start->device != stop->device) return int(hipErrorInvalidHandle);
        if (start->captured || stop->captured) return int(hipErrorCapturedEvent);
        if (start->completed != start->recordings || stop->completed != stop->recordings) return int(hipErrorNotReady);
        *milliseconds = float(stop->milliseconds - start->milliseconds);
        return 0;
    });
}

int hipStreamWaitEvent(void* handle, void* event_handle, unsigned) {
    return hip_call("hipStreamWaitEvent", [&] {
        Stream* stream = find_stream(handle);
        const std::shared_ptr<Event> event = find_event(event_handle);
        if (!stream || !event) return int(hipErrorInvalidHandle);
        stream->next_after.push_back(event->point);
        return 0;
    });
}

}  // extern "C"
