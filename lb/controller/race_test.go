//go:build race

package controller_test

// slowdown is how many times fewer random schedules run with the race detector; all of them
// run without it.
const slowdown = 12
