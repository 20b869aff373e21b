// The fuzz targets by name: one function in <name>_fuzz.cc each.
#pragma once

#include <array>
#include <string_view>

#include "test/fuzz/fuzz.h"

namespace lockstep::fuzz {

void tfrecord(Bytes input);
void record_index(Bytes input);
void example(Bytes input);
void jpeg(Bytes input);
void png(Bytes input);
void exif(Bytes input);
void cifar(Bytes input);
void safetensors(Bytes input);
void hdf5_data(Bytes input);
void hdf5_weights(Bytes input);
void checkpoint_header(Bytes input);
void checkpoint(Bytes input);
void config(Bytes input);
void model_file(Bytes input);
void onnx(Bytes input);
void command_line(Bytes input);
void environment(Bytes input);

struct Target {
  std::string_view name;
  void (*run)(Bytes);
};

inline constexpr std::array kTargets = {
    Target{"tfrecord", tfrecord},
    Target{"record_index", record_index},
    Target{"example", example},
    Target{"jpeg", jpeg},
    Target{"png", png},
    Target{"exif", exif},
    Target{"cifar", cifar},
    Target{"safetensors", safetensors},
    Target{"hdf5_data", hdf5_data},
    Target{"hdf5_weights", hdf5_weights},
    Target{"checkpoint_header", checkpoint_header},
    Target{"checkpoint", checkpoint},
    Target{"config", config},
    Target{"model_file", model_file},
    Target{"onnx", onnx},
    Target{"command_line", command_line},
    Target{"environment", environment},
};

}  // namespace lockstep::fuzz
