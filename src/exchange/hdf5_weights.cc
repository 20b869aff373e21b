#include "lockstep/exchange/hdf5_weights.h"

#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/schema.h"

namespace lockstep {

Hdf5Image encode_hdf5_weights(std::span<const NamedTensor> tensors, const Metadata& metadata, const std::string& name) {
  auto file = Hdf5File::create_in_memory(name, {.blame = ExitCode::checkpoint});
  for (const NamedTensor& tensor : tensors) {
    const std::vector<int64_t> dims(tensor.shape.begin(), tensor.shape.end());
    file.write<float>("/" + tensor.name, dims, tensor.values);
  }
  for (const auto& [key, value] : metadata) file.write_attribute("/", key, value);
  return std::move(file).finish();
}

std::vector<NamedTensor> read_hdf5_weights(const std::string& path, const ShapeCheck& check) {
  const CheckpointReader file = CheckpointReader::open_weights(path);
  const std::string group = file.model_group();
  std::vector<NamedTensor> tensors;
  for (const CheckpointReader::Array& array : file.arrays(group)) {
    const std::string name = array.path.substr(group == "/" ? 1 : group.size() + 1);
    if (!name.ends_with("num_batches_tracked")) tensors.push_back({name, array.shape, {}});
  }
  if (check) check(tensors);
  for (NamedTensor& tensor : tensors) {
    tensor.values.resize(static_cast<size_t>(tensor.shape.elements()));
    file.read(array_path(group, tensor.name), tensor.values);
  }
  return tensors;
}

}  // namespace lockstep
