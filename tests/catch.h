#pragma once
// Catch2 under one name: 2.x has a single header, 3.x has many.
#ifdef KEVIN_CATCH3
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif
