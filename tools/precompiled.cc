// The precompiled headers need a source to belong to; what they hold stands in tools/targets.cmake.
