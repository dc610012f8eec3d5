/* blas_core.h: which OpenBLAS kernels this processor is to use.
 *
 * Debian's OpenBLAS goes by the model number and takes a processor it does not know for a
 * Prescott, five times slower.  What counts is what the processor can do.  The choice is the
 * same for all processors of a class, so that a mixed fleet gives the same bits.
 */
#ifndef DS_BASE_BLAS_CORE_H
#define DS_BASE_BLAS_CORE_H

/* OpenBLAS reads it before main, so it must stand in the environment of the exec. */
#define BLAS_CORE_ENV "OPENBLAS_CORETYPE"

/* The variable's value, NULL to let OpenBLAS look for itself. */
const char *blas_core(void);

#endif
