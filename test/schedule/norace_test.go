//go:build !race

package schedule

const slowdown = 1
