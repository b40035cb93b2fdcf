//go:build race

package controller

// Slowdown is how many times fewer random schedules run with the race detector; all of them
// run without it.
const Slowdown = 12
