// What a program has set in cuDNN's descriptors, kept beside the real ones, which say little of it: so that a plan can
// be traced back to the tensors and operations that it was drawn from.
#pragma once

#include <cudnn.h>

#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace lockstep::fake_gpu {

struct Descriptor;
using DescriptorPtr = std::shared_ptr<Descriptor>;

struct Attribute {
  std::vector<std::byte> bytes;
  std::vector<DescriptorPtr> children;  // where the elements are descriptors
};

// Keeps what it was made of, as cuDNN does, which copies it.
struct Descriptor {
  cudnnBackendDescriptorType_t type{};
  std::map<int, Attribute> attributes;
  bool executed = false;  // a plan

  bool has(cudnnBackendAttributeName_t name) const { return attributes.contains(name); }
  const Attribute& at(cudnnBackendAttributeName_t name) const {
    const auto found = attributes.find(name);
    if (found == attributes.end()) {
      throw std::runtime_error("attribute " + std::to_string(name) + " of a descriptor was not set");
    }
    return found->second;
  }
  template <class T>
  std::vector<T> list(cudnnBackendAttributeName_t name) const {
    const std::vector<std::byte>& bytes = at(name).bytes;
    std::vector<T> values(bytes.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
    return values;
  }
  template <class T>
  T value(cudnnBackendAttributeName_t name) const {
    const std::vector<std::byte>& bytes = at(name).bytes;
    if (bytes.size() < sizeof(T)) throw std::runtime_error("an attribute of a descriptor is empty");
    T first{};
    std::memcpy(&first, bytes.data(), sizeof(T));
    return first;
  }
  const Descriptor& child(cudnnBackendAttributeName_t name) const { return *at(name).children.at(0); }
};

// By handle; null: none.
DescriptorPtr find_descriptor(cudnnBackendDescriptor_t handle);

// What lies behind `plan`: the graph of operations that it computes.
const Descriptor& graph_of(const Descriptor& plan);

}  // namespace lockstep::fake_gpu
