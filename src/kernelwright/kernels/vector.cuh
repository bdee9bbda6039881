#pragma once
// Several neighbouring elements moved at once: one access of up to 16 bytes, the widest there is.

constexpr int MAX_ACCESS_BYTES = 16;

constexpr int access_bytes(int bytes) {
  return bytes < MAX_ACCESS_BYTES ? bytes : MAX_ACCESS_BYTES;
}

// The alignment is what makes the compiler move it in 16-byte accesses.
template <class T, int WIDTH>
struct alignas(access_bytes(WIDTH * sizeof(T))) Vector {
  static_assert(WIDTH > 0 && (WIDTH & (WIDTH - 1)) == 0, "a vector has a power of two of elements");
  T element[WIDTH];
};

// `address` must be a multiple of the vector's alignment.
template <int WIDTH, class T>
__device__ __forceinline__ Vector<T, WIDTH> load_vector(const T* address) {
  return *reinterpret_cast<const Vector<T, WIDTH>*>(address);
}

template <class T, int WIDTH>
__device__ __forceinline__ void store_vector(T* address, const Vector<T, WIDTH>& value) {
  *reinterpret_cast<Vector<T, WIDTH>*>(address) = value;
}
