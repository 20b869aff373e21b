// The functions that open the data formats, and that list image folders (formats.cc has the table).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/data/source/data_source.h"

namespace lockstep {

// TFRecord files of tf.train.Example messages that hold encoded images. Opens every file, so that a rank that cannot
// read one reports it at the start, and indexes their records.
std::unique_ptr<DataSource> open_tfrecord(const DataSourceOptions& options);
// The same for sparse samples: label, ids and values under the names of options.sparse.
std::unique_ptr<DataSource> open_sparse_tfrecord(const DataSourceOptions& options);

// The binary versions of CIFAR-10 and CIFAR-100: records of one or two label bytes and 3 x 32 x 32 pixel bytes. A file
// whose length is not a multiple of a record is an error; under BadRecords::skip its tail is left out with a warning.
std::unique_ptr<DataSource> open_cifar10(const DataSourceOptions& options);
// The label is the class ("fine"), not the superclass.
std::unique_ptr<DataSource> open_cifar100(const DataSourceOptions& options);

// HDF5 files with /images [N,C,H,W] or [N,H,W,C] and /labels [N] or [N,1]. Images are uint8, or floating-point of any
// kind and then delivered as float32; labels are integers. Images that are contiguous in the file are read by offset,
// without the HDF5 library and its lock; others (chunked, compressed, of another byte order) are read through the
// library, by one thread at a time.
std::unique_ptr<DataSource> open_hdf5(const DataSourceOptions& options);

// Generated images that a model can learn, for benchmarks and first trials.
std::unique_ptr<DataSource> open_synthetic(const DataSourceOptions& options);

// Image folders, <root>/<class>/<image>: opens what list_image_folders() listed. Classes are numbered in the order of
// their names' bytes; directories of one name under several roots are one class.
std::unique_ptr<DataSource> open_folder(const DataSourceOptions& options);

// Returns the class directories (with a final '/') and images under `roots`. Classes are the directories whose names do
// not begin with a dot; images are files that end in .jpg, .jpeg, .jpe or .png, whatever the case. Everything else is
// ignored, and counted in one log line. Empty classes are listed, so they keep their numbers, with one warning for all.
// Throws Error(data) if a root has no class directory, no image in any of them, or a link among the classes that cannot
// be followed.
std::vector<std::string> list_image_folders(const std::vector<std::string>& roots);

// Returns whether `path` is a directory, or a link to one.
bool is_directory(const std::string& path);

}  // namespace lockstep
