// HDF5 files with /images [N,C,H,W] or [N,H,W,C] and /labels [N] or [N,1].
#pragma once

#include <memory>

#include "lockstep/data/source/data_source.h"

namespace lockstep {

// Images are uint8, or floating-point of any kind and then delivered as float32; labels are integers. Images that lie
// in the file in one piece are read by offset, without the HDF5 library and its lock; others (chunked, compressed, of
// another byte order) through it, one thread at a time.
std::unique_ptr<DataSource> open_hdf5(const DataSourceOptions& options);

}  // namespace lockstep
