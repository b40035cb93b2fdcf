//go:build race

package experiment

// slowdown is how many times longer the many runs take with the race detector; they are all tried
// without it.
const slowdown = 8
