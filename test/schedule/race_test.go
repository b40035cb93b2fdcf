//go:build race

package schedule

// slowdown is the factor by which random trials take longer with the race detector; all of them run
// without it.
const slowdown = 16
