// Package archtest checks what the compiler does not: that the tree keeps the
// shape which its documentation promises. Who may import whom, and why, is a
// table in rules.go; beside it stand names that may not exist, package docs,
// file lengths, and a few habits of tests.
//
// It reads the tree and changes nothing. A violation is one line that names the
// place and the reason of the rule; whoever has a better reason changes the
// table in the same commit.
package archtest
