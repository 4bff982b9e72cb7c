// Streams: work waits in its stream's queue until somebody waits for it; then it runs in order, after the work of other
// streams that the rules put before it.
#include "streams.h"

namespace standin {
namespace {

Stream* make_stream(int device, bool is_default, bool blocking) {
    static long next_id = 1;
    Stream* stream = new Stream;
    stream->id = next_id++;
    stream->device = device;
    stream->is_default = is_default;
    stream->blocking = blocking;
    return live_streams()[stream->id] = stream;
}

void run_next(Stream* stream) {
    Piece piece = std::move(stream->queue.front());
    stream->queue.pop_front();
    wait_for(piece.after);
    const int error = piece.work();
    if (error) set_device_error(stream->device, error);
    ++stream->done;
}

void drain_to(Stream* stream, long count) {
    while (stream->done < count && !stream->queue.empty()) run_next(stream);
}

std::vector<Point> order_with_default(Stream* stream) {
    std::vector<Point> after;
    if (!stream->blocking) return after;
    for (const auto& entry : live_streams()) {
        Stream* other = entry.second;
        if (other->device != stream->device || other == stream || !other->blocking) continue;
        if (stream->is_default || other->is_default) after.emplace_back(other->id, other->issued);
    }
    return after;
}

// Work on the default stream while a stream that is ordered with it captures would tie the two together.
bool spoils_a_capture(Stream* stream) {
    if (!stream->is_default) return false;
    for (const auto& entry : live_streams())
        if (entry.second->capture && entry.second->blocking && entry.second->device == stream->device) {
            entry.second->capture->valid = false;
            return true;
        }
    return false;
}

int create(const char* call, void** result, unsigned flags) {
    return hip_call(call, [&] {
        if (flags > 1) return int(hipErrorInvalidValue);
        *result = make_stream(current_device(), false, !(flags & 1));
        track("stream", *result);
        return 0;
    });
}

}  // namespace

std::map<long, Stream*>& live_streams() {
    static auto* instance = new std::map<long, Stream*>;
    return *instance;
}

void wait_for(const std::vector<Point>& points) {
    for (const Point& point : points) {
        const auto found = live_streams().find(point.first);  // a destroyed stream has run all it had
        if (found != live_streams().end()) drain_to(found->second, point.second);
    }
}

Stream* find_stream(void* handle) {
    if (!handle) {
        static auto* defaults = new std::map<int, Stream*>;  // by device
        Stream*& stream = (*defaults)[current_device()];
        if (!stream) stream = make_stream(current_device(), true, true);
        return stream;
    }
    if (tracked("stream", handle)) return static_cast<Stream*>(handle);
    violation("stream %p is not alive", handle);
    return nullptr;
}

int stream_device(Stream* stream) { return stream->device; }

int enqueue(Stream* stream, Work work) {
    if (stream->capture) {
        if (!stream->capture->valid) return hipErrorStreamCaptureInvalidated;
        stream->capture->graph->nodes.push_back(std::move(work));
        return 0;
    }
    if (spoils_a_capture(stream)) return hipErrorStreamCaptureImplicit;
    std::vector<Point> after = order_with_default(stream);
    after.insert(after.end(), stream->next_after.begin(), stream->next_after.end());
    stream->next_after.clear();
    stream->queue.push_back({std::move(work), std::move(after)});
    ++stream->issued;
    return 0;
}

void drain(Stream* stream) {
    wait_for(order_with_default(stream));
    wait_for(stream->next_after);
    drain_to(stream, stream->issued);
}

void drain_device(int device) {
    for (const auto& entry : live_streams())
        if (entry.second->device == device) drain_to(entry.second, entry.second->issued);
}

int step(Stream* stream) {
    if (stream->queue.empty()) return 0;
    run_next(stream);
    return 1;
}

int forbidden_in_capture() {
    for (const auto& entry : live_streams()) {
        Capture* capture = entry.second->capture.get();
        if (!capture || capture->mode == Relaxed) continue;
        if (capture->mode == ThreadLocal && capture->thread != std::this_thread::get_id()) continue;
        capture->valid = false;
        return hipErrorStreamCaptureUnsupported;
    }
    return 0;
}

}  // namespace standin

using namespace standin;

extern "C" {

int hipStreamCreateWithFlags(void** result, unsigned flags) {
    return create("hipStreamCreateWithFlags", result, flags);
}

int hipStreamCreate(void** result) { return create("hipStreamCreate", result, 0); }

int hipStreamDestroy(void* handle) {
    return hip_call("hipStreamDestroy", [&] {
        Stream* stream = handle ? find_stream(handle) : nullptr;
        if (!stream) return int(hipErrorInvalidHandle);
        drain(stream);
        untrack("stream", handle);
        live_streams().erase(stream->id);
        if (stream->capture) violation("stream %p was destroyed while it captured", handle);
        delete stream;
        return 0;
    });
}

int hipStreamSynchronize(void* handle) {
    return hip_call("hipStreamSynchronize", [&] {
        Stream* stream = find_stream(handle);
        if (!stream) return int(hipErrorInvalidHandle);
        if (stream->capture) return stream->capture->valid = false, int(hipErrorStreamCaptureUnsupported);
        drain(stream);
        return device_error(stream->device);
    });
}

int hipStreamQuery(void* handle) {
    return hip_call("hipStreamQuery", [&] {
        Stream* stream = find_stream(handle);
        if (!stream) return int(hipErrorInvalidHandle);
        return step(stream) ? int(hipErrorNotReady) : device_error(stream->device);
    });
}

int hipStreamGetDevice(void* handle, int* device) {
    return hip_call("hipStreamGetDevice", [&] {
        Stream* stream = find_stream(handle);
        if (!stream) return int(hipErrorInvalidHandle);
        return *device = stream->device, 0;
    });
}

int hipDeviceSynchronize() {
    return hip_call("hipDeviceSynchronize", [] {
        const int error = forbidden_in_capture();
        if (error) return error;
        drain_device(current_device());
        return device_error(current_device());
    });
}

}  // extern "C"
