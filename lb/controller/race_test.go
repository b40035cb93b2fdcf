//go:build race

package controller

// Slowdown divides the number of random schedules with the race detector; all of them run without
// it.
const Slowdown = 12
