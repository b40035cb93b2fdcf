// Package release tries .ci/release in small repositories of its own: what it
// refuses, and that the same commit makes the same bytes wherever it lies.
//
// It has tests only, and doesn't compile Underlay's programs: that the real ones
// are static and tell their version is tested where images are.
package release
