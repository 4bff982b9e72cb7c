// Matrix products with any steps between elements: the last resort for what no BLAS library of a device takes.
//   c[entry, row, column] = alpha * (sum over term of a[entry, row, term] * b[entry, term, column]) + beta * c[...]
//
// Operands lie `entry`, `row`, `term` and `column` steps apart, in elements; a row of c is contiguous. ELEM is the type
// of a and b, ELEM_C that of c. One item is one element of c; with beta 0 nothing is read from c.
#include "portable.h"

typedef ELEM_C result_t;

struct GemmParams {
    int64 rows, columns, terms;
    int64 a_entry, a_row, a_term;
    int64 b_entry, b_term, b_column;
    int64 c_entry, c_row;
    double alpha, beta;
};

HF_KERNEL(gemm, const elem_t* HF_RESTRICT a, const elem_t* HF_RESTRICT b, result_t* HF_RESTRICT c, GemmParams p) {
    const acc_t alpha = acc_t(p.alpha), beta = acc_t(p.beta);
    HF_FOR_ITEMS(item) {
        const int64 line = quotient(item, p.columns), column = item - line * p.columns;
        const int64 entry = quotient(line, p.rows), row = line - entry * p.rows;
        const elem_t* left = a + entry * p.a_entry + row * p.a_row;
        const elem_t* right = b + entry * p.b_entry + column * p.b_column;
        result_t* result = c + entry * p.c_entry + row * p.c_row + column;
        acc_t sum = 0;
        for (int64 term = 0; term < p.terms; ++term) sum += load(left[term * p.a_term]) * load(right[term * p.b_term]);
        const acc_t value = alpha * sum;
        *result = store<result_t>(beta == 0 ? value : value + beta * acc_t(load(*result)));
    }
}
