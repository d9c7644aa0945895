// Marks functions that CUDA compiles for the device as well.
#pragma once

#ifdef __CUDACC__
#define FLEET_HOST_DEVICE __host__ __device__
#else
#define FLEET_HOST_DEVICE
#endif
