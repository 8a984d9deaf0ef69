// SPDX-License-Identifier: Apache-2.0
// Building blocks of sm_90a kernels: mbarriers in shared memory, TMA copies of tensor tiles, and
// matrix products (wgmma) of warpgroups: four warps, 128 threads, the first a multiple of 128.
//
// Tiles of 16-bit elements lie in panels of 64 columns. A panel is `rows` x 128 bytes, begins at a
// multiple of 1024 bytes and has the swizzle CU_TENSOR_MAP_SWIZZLE_128B of the tensor maps.
#ifndef CPATTN_KERNELS_CUDA_SM90_CUH
#define CPATTN_KERNELS_CUDA_SM90_CUH

#include <cuda.h>

#include "kernels/cuda/mma.cuh"

#define SM90_PANEL_COLUMNS   64
#define SM90_PANEL_ROW_BYTES 128

// ---- registers and threads ----------------------------------------------------------------------

// Lowers or raises the registers of each thread to COUNT, a multiple of 8. Called by all threads of
// a warpgroup, once per warpgroup.
template <int COUNT> __device__ __forceinline__ void registers_release()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

template <int COUNT> __device__ __forceinline__ void registers_acquire()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// Waits until `threads` threads have arrived at the named barrier `id`, 1..15.
static __device__ __forceinline__ void threads_sync(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Returns x, which all lanes of a warp share, such that the compiler knows it to be uniform.
static __device__ __forceinline__ uint32_t warp_uniform(uint32_t x)
{
    return __reduce_or_sync(0xffffffffu, x);
}

// ---- mbarriers ----------------------------------------------------------------------------------
// 8 bytes each. A phase ends with its `count`th arrival and its last expected byte. A wait with
// parity p passes once the phase of that parity has ended; the phase before the first has parity 1.

static __device__ __forceinline__ void barrier_init(uint32_t barrier, int count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

// Called after barrier_init() by the initializing threads, before other threads use the mbarriers.
static __device__ __forceinline__ void barrier_init_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

static __device__ __forceinline__ void barrier_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Counts as `times` arrivals.
static __device__ __forceinline__ void barrier_arrive_times(uint32_t barrier, uint32_t times)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(times)
                 : "memory");
}

// Arrives, and makes the phase wait for `bytes` more bytes of copies.
static __device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

// True if the phase has ended; does not wait. If true, copied data is visible as after
// barrier_wait(). The answer takes 40 clocks or more, so ask early.
static __device__ __forceinline__ bool barrier_test(uint32_t barrier, uint32_t parity)
{
    uint32_t done;
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
                 "selp.b32 %0, 1, 0, done;\n"
                 "}\n"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return done != 0;
}

static __device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra through;\n"
                 "bra again;\n"
                 "through:\n"
                 "}\n" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

// ---- copies -------------------------------------------------------------------------------------

// Makes this thread's writes to shared memory visible to bulk copies and wgmma (the async proxy)
// that begin after a subsequent barrier.
static __device__ __forceinline__ void shared_fence()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

static __device__ __forceinline__ void tensor_prefetch(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// L2 policy for copies. `once`: the data is accessed only once and is evicted before other data.
static __device__ __forceinline__ uint64_t l2_policy(bool once)
{
    uint64_t policy;
    if (once)
        asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    else
        asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// Copies the map's box at these coordinates, innermost first, to shared memory; its bytes count at
// the mbarrier. Elements outside the tensor become 0. Called by one thread.
static __device__ __forceinline__ void tensor_load_4d(uint32_t to, const CUtensorMap *map, int c0,
                                                      int c1, int c2, int c3, uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(to),
                 "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(barrier)
                 : "memory");
}

// Copies a box of a matrix, with a policy of l2_policy(). Otherwise like tensor_load_4d().
static __device__ __forceinline__ void tensor_load_2d(uint32_t to, const CUtensorMap *map, int c0,
                                                      int c1, uint64_t policy, uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
                 "l"(map), "r"(c0), "r"(c1), "r"(barrier), "l"(policy)
                 : "memory");
}

// ---- operands of matrix products ----------------------------------------------------------------
// wgmma takes operands in shared memory as descriptors, 16 elements of the summed dimension k at a
// time. If k lies along the rows of a panel (operand_rows()), the next 16 elements are 32 bytes
// further, and after four such steps in the next panel. If k goes across the rows
// (operand_columns()), they are 2048 bytes further.

static __device__ __forceinline__ uint64_t operand_of(uint32_t address, uint32_t leading)
{
    return (uint64_t)1 << 62 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)(leading >> 4) << 16 |
           (uint64_t)((address & 0x3ffff) >> 4);
}

// k lies along the rows: A [m][k], B [n][k].
static __device__ __forceinline__ uint64_t operand_rows(uint32_t panel)
{
    return operand_of(panel, 16);
}

// k goes across the rows: A [k][m], B [k][n] ("transposed"). Panels are `panel_bytes` apart.
static __device__ __forceinline__ uint64_t operand_columns(uint32_t panel, uint32_t panel_bytes)
{
    return operand_of(panel, panel_bytes);
}

// The operand `bytes` bytes further on.
static __device__ __forceinline__ uint64_t operand_step(uint64_t operand, int bytes)
{
    return (operand & UINT64_C(0xffffffff00000000)) | ((uint32_t)operand + (uint32_t)(bytes >> 4));
}

// ---- matrix products ----------------------------------------------------------------------------
// Asynchronous: product_begin(), products, product_commit(). product_wait<n>() waits until at most
// the n youngest commit groups are pending. Until then the registers of their products must not be
// accessed; registers_settle() after the wait keeps the compiler from doing so earlier.
//
// With w the warp in the warpgroup, g = lane / 4 and t = lane % 4, a thread's accumulator
// d[4 i + 2 half + j] is row 16 w + g + 8 half and column 8 i + 2 t + j. Accumulators packed in
// pairs are A fragments as in mma.cuh.

static __device__ __forceinline__ void product_begin()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ __forceinline__ void product_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int PENDING> __device__ __forceinline__ void product_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

template <int COUNT> __device__ __forceinline__ void registers_settle(float (&d)[COUNT])
{
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        asm volatile("" : "+f"(d[i])::"memory");
}

// Of a row of accumulators a thread has the columns 8 i + j, j 0 or 1, counted from its first;
// masks have bit 2 i + j for each. Returns how many of the thread's columns lie before `column`.
static __device__ __forceinline__ int columns_before(int column)
{
    column = max(column, 0);
    return column / 8 * 2 + min(column % 8, 2);
}

// Mask of the thread's columns in [begin, end). Tests of bits take fewer instructions than
// comparisons of columns.
static __device__ __forceinline__ uint32_t columns_between(int begin, int end)
{
    int first = columns_before(begin), count = max(columns_before(end) - first, 0);
    uint32_t bits;
    asm("bmsk.clamp.b32 %0, %1, %2;" : "=r"(bits) : "r"(first), "r"(count));
    return bits;
}

// D (64 x N) = A B, or D += A B with `add`, for 16 elements of k. ss(): A and B in shared memory;
// rs(): A in registers. Operands with A_COLUMNS or B_COLUMNS are operand_columns(), others
// operand_rows().
template <typename T, int N> struct product;

// asm operands of n accumulators: SM90_NAMES_n are their names %0, %1, ...; SM90_REGISTERS_n their
// constraints.
#define SM90_TEN(t)                                                                                \
    "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t         \
    "8, %" #t "9"
#define SM90_NAMES_16  SM90_TEN() ", %10, %11, %12, %13, %14, %15"
#define SM90_NAMES_20  SM90_TEN() ", " SM90_TEN(1)
#define SM90_NAMES_24  SM90_NAMES_20 ", %20, %21, %22, %23"
#define SM90_NAMES_28  SM90_NAMES_20 ", %20, %21, %22, %23, %24, %25, %26, %27"
#define SM90_NAMES_32  SM90_TEN() ", " SM90_TEN(1) ", " SM90_TEN(2) ", %30, %31"
#define SM90_NAMES_40  SM90_TEN() ", " SM90_TEN(1) ", " SM90_TEN(2) ", " SM90_TEN(3)
#define SM90_NAMES_48  SM90_NAMES_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define SM90_NAMES_56  SM90_NAMES_48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define SM90_NAMES_60  SM90_NAMES_40 ", " SM90_TEN(4) ", " SM90_TEN(5)
#define SM90_NAMES_64  SM90_NAMES_60 ", %60, %61, %62, %63"
#define SM90_NAMES_80  SM90_NAMES_60 ", " SM90_TEN(6) ", " SM90_TEN(7)
#define SM90_NAMES_90  SM90_NAMES_60 ", " SM90_TEN(6) ", " SM90_TEN(7) ", " SM90_TEN(8)
#define SM90_NAMES_96  SM90_NAMES_90 ", %90, %91, %92, %93, %94, %95"
#define SM90_NAMES_120 SM90_NAMES_90 ", " SM90_TEN(9) ", " SM90_TEN(10) ", " SM90_TEN(11)
#define SM90_NAMES_128 SM90_NAMES_120 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define SM90_REGISTERS_8(i)                                                                        \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]),    \
        "+f"(d[i + 6]), "+f"(d[i + 7])
#define SM90_REGISTERS_16 SM90_REGISTERS_8(0), SM90_REGISTERS_8(8)
#define SM90_REGISTERS_28 SM90_REGISTERS_24, "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27])
#define SM90_REGISTERS_20                                                                          \
    SM90_REGISTERS_8(0), SM90_REGISTERS_8(8), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19])
#define SM90_REGISTERS_24 SM90_REGISTERS_8(0), SM90_REGISTERS_8(8), SM90_REGISTERS_8(16)
#define SM90_REGISTERS_32                                                                          \
    SM90_REGISTERS_8(0), SM90_REGISTERS_8(8), SM90_REGISTERS_8(16), SM90_REGISTERS_8(24)
#define SM90_REGISTERS_40 SM90_REGISTERS_32, SM90_REGISTERS_8(32)
#define SM90_REGISTERS_48 SM90_REGISTERS_40, SM90_REGISTERS_8(40)
#define SM90_REGISTERS_56 SM90_REGISTERS_48, SM90_REGISTERS_8(48)
#define SM90_REGISTERS_64 SM90_REGISTERS_48, SM90_REGISTERS_8(48), SM90_REGISTERS_8(56)
#define SM90_REGISTERS_80 SM90_REGISTERS_64, SM90_REGISTERS_8(64), SM90_REGISTERS_8(72)
#define SM90_REGISTERS_96                                                                          \
    SM90_REGISTERS_64, SM90_REGISTERS_8(64), SM90_REGISTERS_8(72), SM90_REGISTERS_8(80),           \
        SM90_REGISTERS_8(88)
#define SM90_REGISTERS_128                                                                         \
    SM90_REGISTERS_96, SM90_REGISTERS_8(96), SM90_REGISTERS_8(104), SM90_REGISTERS_8(112),         \
        SM90_REGISTERS_8(120)

// Products with N columns of type T, in COUNT = N / 2 accumulators. n0..n6 are the numbers of the
// asm operands after the accumulators.
#define SM90_PRODUCT(T, TYPE, N, COUNT, n0, n1, n2, n3, n4, n5, n6)                                \
    template <> struct product<T, N> {                                                             \
        template <bool A_COLUMNS, bool B_COLUMNS>                                                  \
        static __device__ __forceinline__ void ss(float (&d)[COUNT], uint64_t a, uint64_t b,       \
                                                  bool add)                                        \
        {                                                                                          \
            asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #n2 ", 0;\n"                     \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE           \
                         " {" SM90_NAMES_##COUNT "}, %" #n0 ", %" #n1 ", add, 1, 1, %" #n3         \
                                                 ", %" #n4 ";\n}\n"                                \
                         : SM90_REGISTERS_##COUNT                                                  \
                         : "l"(a), "l"(b), "r"((int)add), "n"(A_COLUMNS), "n"(B_COLUMNS));         \
        }                                                                                          \
        template <bool B_COLUMNS>                                                                  \
        static __device__ __forceinline__ void rs(float (&d)[COUNT], const uint32_t (&a)[4],       \
                                                  uint64_t b, bool add)                            \
        {                                                                                          \
            asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #n5 ", 0;\n"                     \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE           \
                         " {" SM90_NAMES_##COUNT "}, {%" #n0 ", %" #n1 ", %" #n2 ", %" #n3         \
                                                 "}, %" #n4 ", add, 1, 1, %" #n6 ";\n}\n"          \
                         : SM90_REGISTERS_##COUNT                                                  \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add),      \
                           "n"(B_COLUMNS));                                                        \
        }                                                                                          \
    };
#define SM90_PRODUCTS(N, COUNT, ...)                                                               \
    SM90_PRODUCT(__nv_bfloat16, "bf16", N, COUNT, __VA_ARGS__)                                     \
    SM90_PRODUCT(__half, "f16", N, COUNT, __VA_ARGS__)

SM90_PRODUCTS(32, 16, 16, 17, 18, 19, 20, 21, 22)
SM90_PRODUCTS(40, 20, 20, 21, 22, 23, 24, 25, 26)
SM90_PRODUCTS(48, 24, 24, 25, 26, 27, 28, 29, 30)
SM90_PRODUCTS(56, 28, 28, 29, 30, 31, 32, 33, 34)
SM90_PRODUCTS(64, 32, 32, 33, 34, 35, 36, 37, 38)
SM90_PRODUCTS(80, 40, 40, 41, 42, 43, 44, 45, 46)
SM90_PRODUCTS(96, 48, 48, 49, 50, 51, 52, 53, 54)
SM90_PRODUCTS(112, 56, 56, 57, 58, 59, 60, 61, 62)
SM90_PRODUCTS(128, 64, 64, 65, 66, 67, 68, 69, 70)
SM90_PRODUCTS(160, 80, 80, 81, 82, 83, 84, 85, 86)
SM90_PRODUCTS(192, 96, 96, 97, 98, 99, 100, 101, 102)
SM90_PRODUCTS(256, 128, 128, 129, 130, 131, 132, 133, 134)

#endif
