// Streams as their own source files see them: queues of work, and captures into graphs.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "standin.h"

namespace standin {

struct Graph {
    std::vector<Work> nodes;
    int device;
};

struct Capture {
    Graph* graph;
    int mode;
    std::thread::id thread;
    bool valid = true;
};

using Point = std::pair<long, long>;  // stream id and how much of its work

struct Piece {
    Work work;
    std::vector<Point> after;
};

struct Stream {
    long id;
    int device;
    bool is_default, blocking;  // blocking: ordered with the default stream
    std::deque<Piece> queue;
    long issued = 0, done = 0;
    std::vector<Point> next_after;  // what the next piece must wait for
    std::unique_ptr<Capture> capture;
};

enum CaptureMode { Global, ThreadLocal, Relaxed };

std::map<long, Stream*>& live_streams();  // by id
void wait_for(const std::vector<Point>& points);

}  // namespace standin
