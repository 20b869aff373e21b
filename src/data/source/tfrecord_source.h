// TFRecord files of tf.train.Example messages that hold encoded images.
#pragma once

#include <memory>

#include "lockstep/data/source/data_source.h"

namespace lockstep {

// Opens every file, so that a rank that cannot read one says so at the start, and indexes their records.
std::unique_ptr<DataSource> open_tfrecord(const DataSourceOptions& options);

// The same of sparse samples: label, ids and values under the names of options.sparse.
std::unique_ptr<DataSource> open_sparse_tfrecord(const DataSourceOptions& options);

}  // namespace lockstep
