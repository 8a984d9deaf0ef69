// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cublaslt.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#define HAS_CUBLASLT 1
#endif

#include "kernels/cuda/internal.h"
#include "kernels/cuda/linear_cuda.h"

#ifdef HAS_CUBLASLT

#define WORKSPACE_BYTES ((size_t)64 << 20)
#define CHOICES_MAX     64
#define ALIGNMENT_MAX   256

// X(function) for each library function in use.
#define FUNCTIONS(X)                                                                               \
    X(cublasLtCreate)                                                                              \
    X(cublasLtDestroy)                                                                             \
    X(cublasLtMatmulDescCreate)                                                                    \
    X(cublasLtMatmulDescDestroy)                                                                   \
    X(cublasLtMatmulDescSetAttribute)                                                              \
    X(cublasLtMatrixLayoutCreate)                                                                  \
    X(cublasLtMatrixLayoutDestroy)                                                                 \
    X(cublasLtMatmulPreferenceCreate)                                                              \
    X(cublasLtMatmulPreferenceDestroy)                                                             \
    X(cublasLtMatmulPreferenceSetAttribute)                                                        \
    X(cublasLtMatmulAlgoGetHeuristic)                                                              \
    X(cublasLtMatmul)

// A cached product: the algorithm chosen for a shape, and its descriptors. The members before
// `product` are the key; in it, the alignments of the pointers stand for the pointers.
struct choice {
    struct gemm shape;     // pointers are NULL
    bool has_bias, wide;   // wide: C is fp32, whatever the dtype
    uint32_t alignment[4]; // of a, b, c, bias; bytes, at most ALIGNMENT_MAX
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
    bool usable; // false: the library does not support the product
};

struct cublaslt {
    void *library;
#define POINTER(name) __typeof__(&name) name;
    FUNCTIONS(POINTER)
#undef POINTER
    cublasLtHandle_t handle;
    void *workspace;
    struct choice choices[CHOICES_MAX];
    int count, oldest; // used entries; index of the oldest of a full cache
};

// ---- create and destroy ----

static bool functions_find(struct cublaslt *lt)
{
    char name[32];
    snprintf(name, sizeof(name), "libcublasLt.so.%d", CUBLAS_VER_MAJOR);
    lt->library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!lt->library)
        return false;
#define FIND(function)                                                                             \
    *(void **)&lt->function = dlsym(lt->library, #function);                                       \
    if (!lt->function)                                                                             \
        return false;
    FUNCTIONS(FIND)
#undef FIND
    return true;
}

// NULL: memory is short. If the library is missing, `handle` is NULL.
static struct cublaslt *cublaslt_create(void)
{
    struct cublaslt *lt = calloc(1, sizeof(*lt));
    if (lt && functions_find(lt) && lt->cublasLtCreate(&lt->handle) == CUBLAS_STATUS_SUCCESS &&
        cudaMalloc(&lt->workspace, WORKSPACE_BYTES) != cudaSuccess) {
        cudaGetLastError();
        lt->workspace = NULL;
    }
    return lt;
}

static void choice_drop(const struct cublaslt *lt, struct choice *c)
{
    if (c->product)
        lt->cublasLtMatmulDescDestroy(c->product);
    cublasLtMatrixLayout_t layouts[] = {c->a, c->b, c->c};
    for (int i = 0; i < 3; i++)
        if (layouts[i])
            lt->cublasLtMatrixLayoutDestroy(layouts[i]);
    memset(c, 0, sizeof(*c));
}

// State of the process's only backend. NULL until the first product.
static struct cublaslt *loaded;

void cublaslt_release(void)
{
    struct cublaslt *lt = loaded;
    loaded = NULL;
    if (!lt)
        return;
    for (int i = 0; i < lt->count; i++)
        choice_drop(lt, &lt->choices[i]);
    if (lt->handle)
        lt->cublasLtDestroy(lt->handle);
    cudaFree(lt->workspace);
    if (lt->library)
        dlclose(lt->library);
    free(lt);
}

// ---- choice of an algorithm ----

static uint32_t alignment_of(const void *data)
{
    uintptr_t address = (uintptr_t)data, low = address & -address;
    return low == 0 || low > ALIGNMENT_MAX ? ALIGNMENT_MAX : (uint32_t)low;
}

static cudaDataType type_of(enum case_dtype dtype)
{
    return dtype == DTYPE_BF16 ? CUDA_R_16BF : dtype == DTYPE_FP16 ? CUDA_R_16F : CUDA_R_32F;
}

// Creates the descriptors. cuBLASLt matrices are column-major, so it sees the transposes of our
// row-major matrices and computes C' = B' A': our B is its first factor.
static bool describe(const struct cublaslt *lt, const struct gemm *g, struct choice *c)
{
    cublasOperation_t first = g->form == PRODUCT_NT ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = g->form == PRODUCT_TN ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = g->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    cudaDataType type = type_of(g->dtype), result = c->wide ? CUDA_R_32F : type;
    int64_t b_rows = g->form == PRODUCT_NT ? g->k : g->n,
            b_columns = g->form == PRODUCT_NT ? g->n : g->k;
    int64_t a_rows = g->form == PRODUCT_TN ? g->m : g->k,
            a_columns = g->form == PRODUCT_TN ? g->k : g->m;
    return !lt->cublasLtMatmulDescCreate(&c->product, CUBLAS_COMPUTE_32F, CUDA_R_32F) &&
           !lt->cublasLtMatmulDescSetAttribute(c->product, CUBLASLT_MATMUL_DESC_TRANSA, &first,
                                               sizeof(first)) &&
           !lt->cublasLtMatmulDescSetAttribute(c->product, CUBLASLT_MATMUL_DESC_TRANSB, &second,
                                               sizeof(second)) &&
           !lt->cublasLtMatmulDescSetAttribute(c->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                               sizeof(epilogue)) &&
           !lt->cublasLtMatmulDescSetAttribute(c->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                               &g->bias, sizeof(g->bias)) &&
           !lt->cublasLtMatrixLayoutCreate(&c->b, type, (uint64_t)b_rows, (uint64_t)b_columns,
                                           b_rows) &&
           !lt->cublasLtMatrixLayoutCreate(&c->a, type, (uint64_t)a_rows, (uint64_t)a_columns,
                                           a_rows) &&
           !lt->cublasLtMatrixLayoutCreate(&c->c, result, (uint64_t)g->n, (uint64_t)g->m, g->n);
}

// Queries the heuristic for the best algorithm. False: there is none.
static bool choose(const struct cublaslt *lt, struct choice *c)
{
    static const cublasLtMatmulPreferenceAttributes_t sides[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES};
    cublasLtMatmulPreference_t wish = NULL;
    cublasLtMatmulHeuristicResult_t result;
    size_t workspace = lt->workspace ? WORKSPACE_BYTES : 0;
    uint32_t sums = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE; // split-K sums in fp32
    int found = 0;
    bool fine =
        !lt->cublasLtMatmulPreferenceCreate(&wish) &&
        !lt->cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                  &workspace, sizeof(workspace)) &&
        !lt->cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                  &sums, sizeof(sums));
    for (int i = 0; i < 3 && fine; i++)
        fine = !lt->cublasLtMatmulPreferenceSetAttribute(wish, sides[i], &c->alignment[i],
                                                         sizeof(c->alignment[i]));
    fine = fine && !lt->cublasLtMatmulPreferenceSetAttribute(
                       wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &c->alignment[2],
                       sizeof(c->alignment[2]));
    fine = fine &&
           !lt->cublasLtMatmulAlgoGetHeuristic(lt->handle, c->product, c->b, c->a, c->c, c->c, wish,
                                               1, &result, &found) &&
           found == 1 && result.state == CUBLAS_STATUS_SUCCESS;
    if (fine)
        c->algorithm = result.algo;
    if (wish)
        lt->cublasLtMatmulPreferenceDestroy(wish);
    return fine;
}

// True if the library rounds C only once. If a side is not a multiple of PRODUCT_VECTOR, or a
// pointer is not aligned to such a vector, it rounds the product before it adds a bias or beta C,
// and then rounds again. wide_run() computes such products with a bias in fp32 first.
static bool rounds_once(const struct gemm *g, const uint32_t alignment[4])
{
    uint32_t bytes = g->dtype == DTYPE_FP32 ? 4 : 2;
    bool whole =
        g->m % PRODUCT_VECTOR == 0 && g->n % PRODUCT_VECTOR == 0 && g->k % PRODUCT_VECTOR == 0;
    for (int i = 0; i < 4; i++)
        whole = whole && alignment[i] >= PRODUCT_VECTOR * bytes;
    return !g->bias || whole;
}

// Cache key of a product. `wide` > 0: C is fp32, and A is used in pieces of `wide` bytes; the
// alignment of A holds for each piece. 0: C has the dtype, and A is one piece.
static struct choice key_of(const struct gemm *g, int64_t wide)
{
    struct choice key;
    memset(&key, 0, sizeof(key));
    key.shape.dtype = g->dtype;
    key.shape.form = g->form;
    key.shape.m = g->m;
    key.shape.n = g->n;
    key.shape.k = g->k;
    const void *data[] = {(const void *)((uintptr_t)g->a | (uintptr_t)wide), g->b, g->c, g->bias};
    for (int i = 0; i < 4; i++)
        key.alignment[i] = alignment_of(data[i]);
    key.has_bias = g->bias != NULL;
    key.wide = wide > 0;
    return key;
}

// Returns the cached choice for a product, or makes one. A full cache evicts its oldest choice.
// NULL: the library does not support the product, or would round twice.
static struct choice *choice_of(const struct gemm *g, int64_t wide)
{
    struct cublaslt *lt = loaded;
    struct choice key = key_of(g, wide);
    if (!rounds_once(g, key.alignment))
        return NULL;
    for (int i = 0; i < lt->count; i++)
        if (memcmp(&lt->choices[i], &key, offsetof(struct choice, product)) == 0)
            return lt->choices[i].usable ? &lt->choices[i] : NULL;
    int place = lt->count < CHOICES_MAX ? lt->count++ : lt->oldest;
    if (lt->count == CHOICES_MAX)
        lt->oldest = (place + 1) % CHOICES_MAX;
    struct choice *c = &lt->choices[place];
    choice_drop(lt, c);
    memcpy(c, &key, sizeof(*c)); // with padding, since keys are compared by bytes
    c->usable = describe(lt, g, c) && choose(lt, c);
    return c->usable ? c : NULL;
}

static enum status choice_run(struct attention_backend *backend, const struct choice *c,
                              const struct gemm *g, struct error *error)
{
    const struct cublaslt *lt = loaded;
    float one = 1, zero = 0;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    if (g->bias)
        status = lt->cublasLtMatmulDescSetAttribute(c->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                    &g->bias, sizeof(g->bias));
    if (status == CUBLAS_STATUS_SUCCESS)
        status = lt->cublasLtMatmul(lt->handle, c->product, &one, g->b, c->b, g->a, c->a, &zero,
                                    g->c, c->c, g->c, c->c, &c->algorithm, lt->workspace,
                                    lt->workspace ? WORKSPACE_BYTES : 0, backend->queue.stream);
    if (status == CUBLAS_STATUS_SUCCESS)
        return STATUS_OK;
    return error_set(error, STATUS_INTERNAL, "cuBLASLt reports %d for %lld x %lld x %lld",
                     (int)status, (long long)g->m, (long long)g->n, (long long)g->k);
}

// ---- product in fp32, then the bias ----

// Rows of C in one fp32 piece of at most PRODUCT_WIDE_MAX bytes. 0: not possible. PRODUCT_TN needs
// all rows in one piece, because A is transposed and its rows are not contiguous.
static int64_t wide_rows(const struct gemm *g)
{
    int64_t rows = PRODUCT_WIDE_MAX / (int64_t)sizeof(float) / g->n;
    if (!g->wide || !g->bias || rows >= g->m)
        return g->wide && g->bias ? g->m : 0;
    rows -= rows % (rows < 128 ? PRODUCT_VECTOR : 128);
    return g->form == PRODUCT_TN ? 0 : rows;
}

// Bytes of a row of A, if A is not transposed.
static int64_t row_bytes(const struct gemm *g)
{
    return g->k * (g->dtype == DTYPE_FP32 ? 4 : 2);
}

// The product for up to `rows` rows of C from `first` on, without the bias, into g->wide.
static struct gemm piece_of(const struct gemm *g, int64_t first, int64_t rows)
{
    struct gemm piece = *g;
    piece.m = g->m - first < rows ? g->m - first : rows;
    piece.a = (const char *)g->a + first * row_bytes(g);
    piece.bias = NULL;
    piece.c = g->wide;
    return piece;
}

// The last piece may have fewer rows than the others, and a choice of its own.
static bool wide_supports(const struct gemm *g)
{
    int64_t rows = wide_rows(g);
    if (rows == 0)
        return false;
    int64_t step = rows * row_bytes(g);
    struct gemm first = piece_of(g, 0, rows), last = piece_of(g, (g->m - 1) / rows * rows, rows);
    return choice_of(&first, step) && choice_of(&last, step);
}

static enum status wide_run(struct attention_backend *backend, const struct gemm *g,
                            struct error *error)
{
    int64_t rows = wide_rows(g), step = rows * row_bytes(g);
    size_t bytes = g->dtype == DTYPE_FP32 ? 4 : 2;
    enum status status = STATUS_OK;
    for (int64_t first = 0; first < g->m && status == STATUS_OK; first += rows) {
        struct gemm piece = piece_of(g, first, rows);
        const struct choice *c = choice_of(&piece, step);
        status = c ? choice_run(backend, c, &piece, error)
                   : error_set(error, STATUS_INTERNAL, "cuBLASLt makes no product of %lld rows",
                               (long long)piece.m);
        if (status == STATUS_OK)
            bias_round_cuda(backend, g->dtype, piece.m, g->n, g->wide, g->bias,
                            (char *)g->c + (size_t)(first * g->n) * bytes);
    }
    return status;
}

// ---- the provider ----

static bool lt_supports(struct attention_backend *backend, const struct gemm *g)
{
    (void)backend;
    if (!loaded)
        loaded = cublaslt_create();
    if (!loaded || !loaded->handle || g->k == 0)
        return false;
    return choice_of(g, 0) || wide_supports(g);
}

static enum status lt_run(struct attention_backend *backend, const struct gemm *g,
                          struct error *error)
{
    const struct choice *c = choice_of(g, 0);
    return c ? choice_run(backend, c, g, error) : wide_run(backend, g, error);
}

static const struct gemm_provider gemm_cublaslt = {
    .name = "cublaslt", .supports = lt_supports, .run = lt_run};

#else

void cublaslt_release(void)
{
}

#endif

// ---- fallback: the project's kernel ----

static bool own_supports(struct attention_backend *backend, const struct gemm *g)
{
    (void)backend;
    (void)g;
    return true;
}

static enum status own_run(struct attention_backend *backend, const struct gemm *g,
                           struct error *error)
{
    (void)error; // stored for queue_report()
    product_cuda(backend, g);
    return STATUS_OK;
}

static const struct gemm_provider gemm_own = {
    .name = "own", .supports = own_supports, .run = own_run};

const struct gemm_provider *const cuda_gemm_providers[] = {
#ifdef HAS_CUBLASLT
    &gemm_cublaslt,
#endif
    &gemm_own, NULL};
