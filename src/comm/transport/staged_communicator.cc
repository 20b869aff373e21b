#include "lockstep/comm/transport/staged_communicator.h"

#include "lockstep/base/clock.h"
#include "lockstep/base/log.h"

namespace lockstep {
namespace {

// The stream that the host communicator waits for. There is nothing to wait for, because the memory has already
// arrived.
class HostMemoryStream final : public Stream {
 public:
  void wait() override {}
  void record(Event&) override {}
  void wait_for(const Event&) override {}
};

template <class T>
std::span<T> as(const Buffer& memory, size_t bytes) {
  return {memory.as<T>(), bytes / sizeof(T)};
}

}  // namespace

StagedCommunicator::StagedCommunicator(const Backend& backend, std::unique_ptr<Communicator> host)
    : backend_(backend), host_(std::move(host)), transfer_(backend.make_stream()) {}

StagedCommunicator::~StagedCommunicator() {
  try {
    transfer_->wait();
  } catch (const std::exception& error) {
    log_warning("waiting for copies of gradients to the host: {}", error.what());
  }
}

void StagedCommunicator::all_reduce(Stream& stream, std::span<float> values, std::string_view label) {
  enqueue(stream, {Kind::all_reduce_floats, std::as_writable_bytes(values), std::string(label)});
}

void StagedCommunicator::all_reduce(Stream& stream, std::span<double> values, std::string_view label) {
  enqueue(stream, {Kind::all_reduce_doubles, std::as_writable_bytes(values), std::string(label)});
}

void StagedCommunicator::all_reduce(Stream& stream, HalfSpan values, std::string_view label) {
  enqueue(stream, {Kind::all_reduce_halves, std::as_writable_bytes(values.values), std::string(label), 0, values.type});
}

// Blocks the host. Other operations stay in flight.
double StagedCommunicator::all_reduce_now(Stream& stream, std::span<float> values, std::string_view label) {
  if (size() == 1) return 0;
  const double begin = monotonic_seconds();
  download(stream, immediate_, std::as_bytes(values));
  immediate_.arrived->wait();
  start_arrived();
  HostMemoryStream host_stream;
  host_->all_reduce_now(host_stream, as<float>(immediate_.memory, values.size_bytes()), label);
  backend_.copy(stream, values.data(), immediate_.memory.data(), values.size_bytes());
  return monotonic_seconds() - begin;
}

void StagedCommunicator::broadcast(Stream& stream, std::span<std::byte> bytes, int root, std::string_view label) {
  enqueue(stream, {Kind::broadcast, bytes, std::string(label), root});
}

// The slot may be reused without a wait: the copy out of it in an earlier step precedes this one on the compute stream.
void StagedCommunicator::download(Stream& stream, Slot& slot, std::span<const std::byte> memory) {
  if (slot.memory.bytes() < memory.size()) {
    stream.wait();  // for a copy out of the memory that is freed here
    slot.memory = backend_.allocate_pinned(memory.size());
  }
  stream.record(*slot.ready);
  transfer_->wait_for(*slot.ready);
  backend_.copy(*transfer_, slot.memory.data(), memory.data(), memory.size());
  transfer_->record(*slot.arrived);
}

void StagedCommunicator::enqueue(Stream& stream, Request request) {
  if (size() == 1) return;
  const size_t index = requests_.size();
  if (index == slots_.size()) slots_.push_back(make_slot());
  download(stream, slots_[index], request.memory);
  requests_.push_back(std::move(request));
  start_arrived();
}

void StagedCommunicator::start(size_t index) {
  const Request& request = requests_[index];
  const Buffer& memory = slots_[index].memory;
  const size_t bytes = request.memory.size();
  HostMemoryStream host_stream;
  switch (request.kind) {
    case Kind::all_reduce_floats:
      host_->all_reduce(host_stream, as<float>(memory, bytes), request.label);
      break;
    case Kind::all_reduce_doubles:
      host_->all_reduce(host_stream, as<double>(memory, bytes), request.label);
      break;
    case Kind::all_reduce_halves:
      host_->all_reduce(host_stream, HalfSpan{as<uint16_t>(memory, bytes), request.half_type}, request.label);
      break;
    case Kind::broadcast:
      host_->broadcast(host_stream, as<std::byte>(memory, bytes), request.root, request.label);
      break;
  }
}

// Ranks start operations at different times but in the same order.
void StagedCommunicator::start_arrived() {
  while (started_ < requests_.size() && slots_[started_].arrived->passed()) start(started_++);
}

double StagedCommunicator::wait(Stream& stream) {
  if (size() == 1) return 0;
  while (started_ < requests_.size()) {
    slots_[started_].arrived->wait();
    start(started_++);
  }
  HostMemoryStream host_stream;
  const double waited = host_->wait(host_stream);
  for (size_t i = 0; i < requests_.size(); ++i) {
    backend_.copy(stream, requests_[i].memory.data(), slots_[i].memory.data(), requests_[i].memory.size());
  }
  requests_.clear();
  started_ = 0;
  return waited;
}

}  // namespace lockstep
