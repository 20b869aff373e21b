// Finds links that lead out of an HDF5 file, and the files that they name.
#include <sys/stat.h>

#include <algorithm>
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

constexpr int kMostSoftLinks = 16;  // as many as the library follows
// The parts of all paths through which one path leads: links multiply if their targets contain links.
constexpr int kMostParts = 1000;

// Returns the value of a soft or external link.
std::vector<char> value_of(hid_t location, const std::string& path, size_t bytes, const LinkAccess& access,
                           const Context& context) {
  std::vector<char> value(bytes + 1, '\0');
  access.check(H5Lget_val(location, path.c_str(), value.data(), bytes, access.list()), context,
               "read the link " + path);
  return value;
}

void require_sound_links(hid_t location, const std::string& path, const LinkAccess& access, const Context& context,
                         int soft_links, int& parts) {
  // The path is followed part by part, so that each group on the way is checked before it is used.
  for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string part = path.substr(0, slash);
    if (++parts > kMostParts) {
      fail(context.blame, "{}: the links lead through more than {} groups", context.where, kMostParts);
    }
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
      require_sound_links(location, target, access, context, soft_links + 1, parts);
    }
    if (slash == std::string::npos) return;
  }
}

}  // namespace

std::vector<std::string> paths_of(const std::string& parent, const std::string& named) {
  std::error_code ignored;
  const std::string resolved = std::filesystem::weakly_canonical(parent, ignored).string();
  const std::string beside = parent_directory(parent) + "/", beside_resolved = parent_directory(resolved) + "/";
  if (!named.starts_with('/')) return {beside + named, named, beside_resolved + named};
  const std::string last = named.substr(named.rfind('/') + 1);
  return {named, beside + last, beside_resolved + last};
}

bool is_special(const std::string& parent, const std::string& named) {
  return std::ranges::any_of(paths_of(parent, named), exists_and_is_special);
}

void require_sound_links(hid_t location, const std::string& path, const LinkAccess& access, const Context& context) {
  int parts = 0;
  require_sound_links(location, path, access, context, 0, parts);
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

}  // namespace lockstep::hdf5
