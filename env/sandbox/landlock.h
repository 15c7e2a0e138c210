#pragma once
// Landlock: file access by path, enforced by the kernel for this process and all it starts. Irrevocable.

#include <filesystem>
#include <vector>

namespace kevin {

// Afterwards only the system's folders (/usr, /lib*, /bin, the linker's cache) and `readable` can be read and
// executed, and only what lies under `writable` can be changed; TCP is closed where the kernel can (ABI 4).
// False when the kernel has no Landlock. Needs no_new_privs.
bool RestrictWithLandlock(const std::vector<std::filesystem::path>& readable,
                          const std::vector<std::filesystem::path>& writable);

}  // namespace kevin
