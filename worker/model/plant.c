/* plant.c: negative controls.  A parity test that no planted bug can fail proves nothing. */
#include "worker/model/stage.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"

int plant_get(enum plant *ret, struct err *e)
{
    const char *s = getenv("DSLAUNCH_PLANT");
    if (!s || !*s) {
        *ret = PLANT_NONE;
        return 0;
    }
#ifdef DS_PLANT
    static const char *const names[PLANT_COUNT] = {
        [PLANT_NONE] = "none",
        [PLANT_TIED_GRAD] = "tied-grad",
        [PLANT_SP_NORM_GRAD] = "sp-norm-grad",
        [PLANT_DROP_BUCKET] = "drop-bucket",
        [PLANT_MICRO_LOSS] = "micro-loss",
        [PLANT_PAD_VOCAB] = "pad-vocab",
        [PLANT_LOCAL_CLIP] = "local-clip",
        [PLANT_NO_ATTENTION] = "no-attention",
    };
    for (int i = 0; i < PLANT_COUNT; i++) {
        if (!strcmp(s, names[i])) {
            *ret = (enum plant)i;
            return 0;
        }
    }
    return err_set(e, ERR_USAGE, "DSLAUNCH_PLANT: no such bug: %s", s);
#else
    return err_set(e, ERR_USAGE, "DSLAUNCH_PLANT=%s: this worker was built without -DDS_PLANT",
                   s);
#endif
}
