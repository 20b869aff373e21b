// The one move-only owner of any C handle (hid_t, MPI_Comm, file descriptor, ...).
#pragma once

#include <utility>

namespace lockstep {

// Traits: `using type`, `static type invalid()`, `static void destroy(type) noexcept` (logs, never throws).
template <class Traits>
class UniqueHandle {
 public:
  using type = typename Traits::type;

  UniqueHandle() = default;
  explicit UniqueHandle(type handle) : handle_(handle) {}
  UniqueHandle(UniqueHandle&& other) noexcept : handle_(other.release()) {}
  UniqueHandle& operator=(UniqueHandle&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  UniqueHandle(const UniqueHandle&) = delete;
  UniqueHandle& operator=(const UniqueHandle&) = delete;
  ~UniqueHandle() { reset(); }

  type get() const { return handle_; }
  explicit operator bool() const { return handle_ != Traits::invalid(); }
  type release() { return std::exchange(handle_, Traits::invalid()); }
  void reset(type handle = Traits::invalid()) {
    if (handle_ != Traits::invalid()) Traits::destroy(handle_);
    handle_ = handle;
  }

 private:
  type handle_ = Traits::invalid();
};

}  // namespace lockstep
