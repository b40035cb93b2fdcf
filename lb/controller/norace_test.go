//go:build !race

package controller_test

const slowdown = 1
