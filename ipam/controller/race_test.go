//go:build race

package controller

// slowdown divides the number of random trials with the race detector; they run in full without it.
const slowdown = 8
