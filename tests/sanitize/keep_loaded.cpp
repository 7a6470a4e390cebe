// SPDX-License-Identifier: Apache-2.0
// Linked into programs under the address sanitizer: drivers and layers stay loaded, so that a leak
// can be laid to the library that made it, and only ours count.
extern "C" __attribute__((visibility("default"))) int dlclose(void*) { return 0; }
