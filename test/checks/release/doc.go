// Package release tests .ci/release in small repositories of its own: its errors, and that the same
// commit results in the same bytes in any folder.
//
// It has tests only, and doesn't compile Underlay's programs: the tests of images check that the
// real ones are static and print their version.
package release
