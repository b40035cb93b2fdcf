//go:build !race

package experiment

const slowdown = 1
