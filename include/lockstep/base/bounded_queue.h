// A blocking queue of limited length between threads, which also carries the end and the reason of it.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

namespace lockstep {

// Any number of producers and consumers. close() lets consumers drain what is left and then see the end;
// fail() wakes everybody: push and pop rethrow the exception from then on.
template <class T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) {}

  // Blocks while full. False: the queue was closed and `value` was dropped.
  bool push(T value) {
    std::unique_lock lock(mutex_);
    space_.wait(lock, [&] { return closed_ || error_ || items_.size() < capacity_; });
    if (error_) std::rethrow_exception(error_);
    if (closed_) return false;
    items_.push_back(std::move(value));
    ready_.notify_one();
    return true;
  }

  // Blocks while empty. nullopt: closed and drained.
  std::optional<T> pop() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [&] { return closed_ || error_ || !items_.empty(); });
    if (error_) std::rethrow_exception(error_);
    if (items_.empty()) return std::nullopt;
    T value = std::move(items_.front());
    items_.pop_front();
    space_.notify_one();
    return value;
  }

  void close() {
    std::lock_guard lock(mutex_);
    closed_ = true;
    ready_.notify_all();
    space_.notify_all();
  }

  void fail(std::exception_ptr error) {
    std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
    ready_.notify_all();
    space_.notify_all();
  }

  size_t size() const {
    std::lock_guard lock(mutex_);
    return items_.size();
  }

 private:
  const size_t capacity_;
  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::condition_variable space_;
  std::deque<T> items_;
  bool closed_ = false;
  std::exception_ptr error_;
};

}  // namespace lockstep
