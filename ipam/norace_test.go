//go:build !race

package ipam

const slowdown = 1
