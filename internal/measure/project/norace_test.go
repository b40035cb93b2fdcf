//go:build !race

package project_test

const slowdown = 1
