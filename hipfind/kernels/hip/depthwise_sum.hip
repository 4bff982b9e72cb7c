// Last step of depthwise_wrw: each weight's parts added up, in one order. A group takes WEIGHTS neighbouring weights,
// its members share the parts of each.
#include "portable.h"

struct SumParams {
    int64 weights, parts;
};

constexpr int WEIGHTS = 16, SHARES = 16;

HF_KERNEL(depthwise_sum, const acc_t* HF_RESTRICT partials, elem_t* HF_RESTRICT dw, SumParams p) {
    HF_SHARED acc_t shares[SHARES * WEIGHTS];
    HF_FOR_GROUPS(group) {
        HF_FOR_MEMBERS(t, SHARES * WEIGHTS) {
            const int64 weight = group * WEIGHTS + t % WEIGHTS;
            acc_t sum = 0;
            if (weight < p.weights)
                for (int64 part = t / WEIGHTS; part < p.parts; part += SHARES)
                    sum += partials[part * p.weights + weight];
            shares[t] = sum;
        }
        HF_BARRIER();
        HF_FOR_MEMBERS(t, WEIGHTS) {
            acc_t sum = 0;
            for (int share = 0; share < SHARES; ++share) sum += shares[share * WEIGHTS + t];
            if (group * WEIGHTS + t < p.weights) dw[group * WEIGHTS + t] = store<elem_t>(sum);
        }
        HF_BARRIER();  // before the next group's shares
    }
}
