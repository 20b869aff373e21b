// Which parts of other files an HDF5 file may bring in.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include "io/hdf5_internal.h"
#include "lockstep/base/printable.h"
#include "lockstep/io/file.h"

namespace lockstep::hdf5 {
namespace {

bool exists_and_is_special(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode);
}

// Where the library looks for `named`, which the file `parent` refers to: the name itself, and beside the parent, which
// may be a symbolic link.
std::vector<std::string> candidates(const std::string& parent, const std::string& named) {
  std::error_code ignored;
  std::vector<std::string> paths{named};
  for (const std::string& file : {parent, std::filesystem::weakly_canonical(parent, ignored).string()}) {
    const std::string directory = parent_directory(file) + "/";
    paths.insert(paths.end(), {directory + named, directory + named.substr(named.rfind('/') + 1)});
  }
  return paths;
}

// Whether `named` is a pipe, a device or a directory: the library would wait for it or read without end.
bool is_special(const std::string& parent, const std::string& named) {
  return std::ranges::any_of(candidates(parent, named), exists_and_is_special);
}

// Whether the library cannot open a source that is not special; it then takes fill values for what the file has. Where
// the library looks elsewhere or numbers its sources by a pattern, this is not known.
bool is_missing(const std::string& parent, const std::string& source) {
  if (source.find('%') != std::string::npos || std::getenv("HDF5_VDS_PREFIX") != nullptr) return false;
  return std::ranges::none_of(candidates(parent, source),
                              [](const std::string& path) { return ::access(path.c_str(), R_OK) == 0; });
}

// The files that a virtual data set names as sources; "." is its own.
std::vector<std::string> sources_of(hid_t creation, const Context& context) {
  size_t count = 0;
  check(H5Pget_virtual_count(creation, &count), context, "count the sources");
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) {
    const ssize_t length = check(H5Pget_virtual_filename(creation, i, nullptr, 0), context, "get a source");
    std::string name(static_cast<size_t>(length) + 1, '\0');
    check(H5Pget_virtual_filename(creation, i, name.data(), name.size()), context, "get a source");
    name.pop_back();
    if (std::ranges::find(names, name) == names.end()) names.push_back(std::move(name));
  }
  return names;
}

// The path of the file that an object lies in.
std::string file_of(hid_t object, const Context& context) {
  const ssize_t length = check(H5Fget_name(object, nullptr, 0), context, "get the file's name");
  std::string name(static_cast<size_t>(length) + 1, '\0');
  check(H5Fget_name(object, name.data(), name.size()), context, "get the file's name");
  name.pop_back();
  return name;
}

constexpr int kMostSoftLinks = 16;  // as many as the library follows

// The text or the parts that a link of the user's kinds holds.
std::vector<char> value_of(hid_t location, const std::string& path, size_t bytes, const LinkAccess& access,
                           const Context& context) {
  std::vector<char> value(bytes + 1, '\0');
  access.check(H5Lget_val(location, path.c_str(), value.data(), bytes, access.list()), context,
               "read the link " + path);
  return value;
}

void require_sound_links(hid_t location, const std::string& path, const LinkAccess& access, const Context& context,
                         int soft_links) {
  // Part by part, so that what lies on the way has been found sound.
  for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string part = path.substr(0, slash);
    H5L_info_t info = {};
    if (part == "/" || H5Lget_info(location, part.c_str(), &info, access.list()) < 0) {
      H5Eclear2(H5E_DEFAULT);  // no such link: opening it reports that
      return;
    }
    if (info.type == H5L_TYPE_EXTERNAL) {
      const std::vector<char> value = value_of(location, part, info.u.val_size, access, context);
      unsigned flags = 0;
      const char* file = nullptr;
      const char* object = nullptr;
      access.check(H5Lunpack_elink_val(value.data(), info.u.val_size, &flags, &file, &object), context,
                   "read the external link " + part);
    } else if (info.type == H5L_TYPE_SOFT && soft_links < kMostSoftLinks) {
      std::string target = value_of(location, part, info.u.val_size, access, context).data();
      if (!target.starts_with('/')) target.insert(0, part, 0, part.rfind('/') + 1);
      require_sound_links(location, target, access, context, soft_links + 1);
    }
    if (slash == std::string::npos) return;
  }
}

}  // namespace

void require_sound_links(hid_t location, const std::string& path, const LinkAccess& access, const Context& context) {
  require_sound_links(location, path, access, context, 0);
}

LinkAccess::LinkAccess(bool stands_alone, const Context& context)
    : stands_alone_(stands_alone), list_(check_id(H5Pcreate(H5P_LINK_ACCESS), context, "make an access list")) {
  hdf5::check(H5Pset_elink_cb(list_.get(), follow, this), context, "watch for external links");
}

herr_t LinkAccess::follow(const char* parent, const char*, const char* child, const char* object, unsigned*, hid_t,
                          void* self) {
  auto& way = *static_cast<LinkAccess*>(self);
  way.left_file_ = true;
  const std::string target = fmt::format("{} in {}", printable(object), printable(child));
  if (way.stands_alone_) {
    way.refusal_ = fmt::format("it is a link to {}; copy what it links to into this file", target);
  } else if (is_special(parent, child)) {
    way.refusal_ = fmt::format("it is a link to {}, which is not a regular file", target);
  }
  return way.refusal_.empty() ? 0 : -1;
}

void LinkAccess::fail_refused(const Context& context, const std::string& what) const {
  H5Eclear2(H5E_DEFAULT);
  fail(context.blame, "{}: cannot {}: {}", context.where, what, refusal_);
}

void require_own_values(hid_t dataset, hid_t creation, bool stands_alone, const Context& context) {
  const int external = H5Pget_external_count(creation);
  if (external > 0) {
    std::string name(kPrintedBytes, '\0');
    check(H5Pget_external(creation, 0, name.size() - 1, name.data(), nullptr, nullptr), context, "get the other file");
    fail(context.blame, "{}: keeps its values in another file, {}, which is refused; copy them into this one",
         context.where, printable(name.c_str()));
  }
  if (H5Pget_layout(creation) != H5D_VIRTUAL) return;
  if (stands_alone) {
    fail(context.blame, "{}: is a virtual data set, whose values lie elsewhere; copy them into this file",
         context.where);
  }
  for (const std::string& source : sources_of(creation, context)) {
    if (source == ".") continue;
    const std::string parent = file_of(dataset, context);
    if (is_special(parent, source)) {
      fail(context.blame, "{}: takes values from {}, which is not a regular file", context.where, printable(source));
    }
    if (is_missing(parent, source)) {
      fail(context.blame, "{}: takes values from {}, which does not exist or cannot be read; put it beside {}",
           context.where, printable(source), printable(parent));
    }
  }
}

}  // namespace lockstep::hdf5
