//go:build race

package ipam

// slowdown is how many times longer random trials take with the race detector; they run
// in full without it.
const slowdown = 8
