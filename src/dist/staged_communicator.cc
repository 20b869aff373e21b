#include "lockstep/dist/staged_communicator.h"

#include "lockstep/base/log.h"

namespace lockstep {
namespace {

// What the host's communicator waits for before it reads: nothing, the memory has arrived.
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
    log_warning("waiting for gradients on their way to the host: {}", error.what());
  }
}

void StagedCommunicator::sum(Stream& stream, std::span<float> values, std::string_view label) {
  enqueue(stream, {Kind::sum_floats, std::as_writable_bytes(values), 0, std::string(label)});
}

void StagedCommunicator::sum(Stream& stream, std::span<double> values, std::string_view label) {
  enqueue(stream, {Kind::sum_doubles, std::as_writable_bytes(values), 0, std::string(label)});
}

void StagedCommunicator::broadcast(Stream& stream, std::span<std::byte> bytes, int root, std::string_view label) {
  enqueue(stream, {Kind::broadcast, bytes, root, std::string(label)});
}

void StagedCommunicator::enqueue(Stream& stream, Request request) {
  if (size() == 1) return;
  const size_t index = requests_.size();
  if (index == places_.size()) places_.push_back({{}, backend_.make_event(), backend_.make_event()});
  Place& place = places_[index];
  if (place.memory.bytes() < request.memory.size()) place.memory = backend_.allocate_pinned(request.memory.size());
  // The copy back of the last join is on a compute stream, before this.
  stream.record(*place.ready);
  transfer_->wait_for(*place.ready);
  backend_.copy(*transfer_, place.memory.data(), request.memory.data(), request.memory.size());
  transfer_->record(*place.arrived);
  requests_.push_back(std::move(request));
  start_arrived();
}

void StagedCommunicator::start(size_t index) {
  const Request& request = requests_[index];
  const Buffer& memory = places_[index].memory;
  const size_t bytes = request.memory.size();
  HostMemoryStream host_stream;
  switch (request.kind) {
    case Kind::sum_floats:
      host_->sum(host_stream, as<float>(memory, bytes), request.label);
      break;
    case Kind::sum_doubles:
      host_->sum(host_stream, as<double>(memory, bytes), request.label);
      break;
    case Kind::broadcast:
      host_->broadcast(host_stream, as<std::byte>(memory, bytes), request.root, request.label);
      break;
  }
}

// Ranks start operations at different moments, but in one order.
void StagedCommunicator::start_arrived() {
  while (started_ < requests_.size() && places_[started_].arrived->passed()) start(started_++);
}

double StagedCommunicator::join(Stream& stream) {
  if (size() == 1) return 0;
  while (started_ < requests_.size()) {
    places_[started_].arrived->wait();
    start(started_++);
  }
  HostMemoryStream host_stream;
  const double waited = host_->join(host_stream);
  for (size_t i = 0; i < requests_.size(); ++i) {
    backend_.copy(stream, requests_[i].memory.data(), places_[i].memory.data(), requests_[i].memory.size());
  }
  requests_.clear();
  started_ = 0;
  return waited;
}

}  // namespace lockstep
