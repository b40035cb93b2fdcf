//go:build !race

package controller

const Slowdown = 1
