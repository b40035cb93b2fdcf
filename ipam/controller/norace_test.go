//go:build !race

package controller

const slowdown = 1
