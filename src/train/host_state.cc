#include "lockstep/train/host_state.h"

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep {
namespace {

// Returns new arenas of the same sizes. `allocate` takes a number of bytes and returns a Buffer.
template <class Allocate>
ModelState arenas_like(const ModelState& state, const Allocate& allocate) {
  ModelState like;
  like.trained_elements = state.trained_elements;
  like.moment_elements = state.moment_elements;
  like.parameters = allocate(state.parameters.bytes());
  like.statistics = allocate(state.statistics.bytes());
  for (const Buffer& slot : state.slots) like.slots.push_back(allocate(slot.bytes()));
  if (state.average_parameters.data()) {
    like.average_parameters = allocate(state.average_parameters.bytes());
    like.average_statistics = allocate(state.average_statistics.bytes());
  }
  return like;
}

void copy_arenas(const Backend& backend, Stream& stream, const ModelState& from, const ModelState& to) {
  const std::vector<const Buffer*> sources = saved_arenas(from), targets = saved_arenas(to);
  for (size_t i = 0; i < sources.size(); ++i) {
    backend.copy(stream, targets[i]->data(), sources[i]->data(), sources[i]->bytes());
  }
}

void copy_and_wait(const Backend& backend, const ModelState& from, const ModelState& to) {
  const auto stream = backend.make_stream();
  copy_arenas(backend, *stream, from, to);
  stream->wait();
}

}  // namespace

std::vector<const Buffer*> saved_arenas(const ModelState& state) {
  std::vector<const Buffer*> arenas = {&state.parameters, &state.statistics};
  for (const Buffer& slot : state.slots) arenas.push_back(&slot);
  if (state.average_parameters.data()) {
    arenas.insert(arenas.end(), {&state.average_parameters, &state.average_statistics});
  }
  return arenas;
}

HostState::HostState(const CompiledModel& model) : model_(model) {
  const Backend& backend = model.backend();
  if (backend.host_addressable()) return;
  copy_ = std::make_unique<ModelState>(
      arenas_like(model.state(), [&](size_t bytes) { return backend.allocate_pinned(bytes); }));
}

void HostState::download() const {
  if (copy_) copy_and_wait(model_.backend(), model_.state(), *copy_);
}

void HostState::upload() const {
  if (copy_) copy_and_wait(model_.backend(), *copy_, model_.state());
}

std::span<float> HostState::parameter(ParameterId id, Weights weights) const {
  return model_.parameter_in(arenas(), id, weights);
}

Snapshot::Snapshot(const CompiledModel& model)
    : model_(model),
      transfer_(model.backend().make_stream()),
      copied_(model.backend().make_event()),
      downloaded_(model.backend().make_event()) {
  const Backend& backend = model.backend();
  require(!backend.host_addressable(), "a snapshot of memory that the host can read");
  device_ = arenas_like(model.state(), [&](size_t bytes) { return backend.allocate(bytes); });
  host_ = arenas_like(model.state(), [&](size_t bytes) { return backend.allocate_pinned(bytes); });
}

Snapshot::~Snapshot() {
  try {
    transfer_->wait();
  } catch (const std::exception& error) {
    log_warning("waiting for a snapshot under way: {}", error.what());
  }
}

void Snapshot::take(Stream& compute) {
  const Backend& backend = model_.backend();
  compute.wait_for(*downloaded_);  // the previous snapshot has left the device copy
  copy_arenas(backend, compute, model_.state(), device_);
  compute.record(*copied_);
  transfer_->wait_for(*copied_);
  copy_arenas(backend, *transfer_, device_, host_);
  transfer_->record(*downloaded_);
}

}  // namespace lockstep
