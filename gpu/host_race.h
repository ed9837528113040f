/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * host_race.h - a shadow of all memory that a launch of a kernel on the host touches: who wrote
 * and read each byte last, and behind which barrier
 *
 * In kernels that are compiled with -fsanitize=thread and KVI_GPU_RACES the compiler announces all
 * accesses (host_race.c); in others these calls do nothing. An access of what another warp of the
 * block has written without a barrier between, another block without a lock, or another lane
 * without a warp_barrier, and a constant load of what the launch has written, end the program with
 * three lines; so do writes, with another value, of what others have read or written. Ballots and
 * shuffles are no barriers: they order no memory. One thread at a time may run kernels.
 */
#ifndef KVI_GPU_HOST_RACE_H
#define KVI_GPU_HOST_RACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Lanes: 0 to 31, or all of them, which do the same; accesses of none are not looked at. */
enum { RACE_ALL_LANES = 32, RACE_NO_LANE = 33 };
enum { RACE_ALL_WARPS = 8 }; /* of a block, which do the same */

#ifdef KVI_GPU_RACES
#ifdef __cplusplus
extern "C" {
#endif
/* Begins a kernel: all launches before it are done. stack: the frame of the function that runs it,
 * whose own variables are not looked at. */
void race_launch(const void *stack);
/* Ends a kernel. */
void race_ended(void);
/* Begins a block, with shared memory that nobody has written to. */
void race_block(uint32_t block, const void *shared, size_t bytes);
/* From here on a warp of the block runs; outside of a launch it ends the program. */
void race_warp(uint32_t warp);
/* A barrier of the block, behind which all warps run. */
void race_block_barrier(void);
/* A barrier of the warp that runs. */
void race_warp_barrier(void);
/* The warp that runs has taken a lock: its block sees what its former owners saw. */
void race_take(const void *lock);
/* The warp that runs releases a lock. */
void race_give(const void *lock);
/* Whether loads are constant from here on. */
void race_constant(bool constant);
/* The lane that runs. */
extern int race_lane_in_hand;
#ifdef __cplusplus
}
#endif
/* From here on a lane runs, which is returned. Accesses stay on their side of this call. */
static inline __attribute__((always_inline)) int race_lane(int lane)
{
	race_lane_in_hand = lane;
	__asm__ volatile("" ::: "memory");
	return lane;
}
#else
#define race_launch(stack) ((void)(stack))
#define race_ended() ((void)0)
#define race_block(block, shared, bytes) ((void)(block), (void)(shared), (void)(bytes))
#define race_warp(warp) ((void)(warp))
#define race_block_barrier() ((void)0)
#define race_warp_barrier() ((void)0)
#define race_take(lock) ((void)(lock))
#define race_give(lock) ((void)(lock))
#define race_constant(constant) ((void)(constant))
#define race_lane(lane) (lane)
#endif

#endif
