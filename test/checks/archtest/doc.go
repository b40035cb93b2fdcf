// Package archtest checks properties that the compiler doesn't: that the tree has the structure
// which its documentation promises. The allowed imports, with reasons, are a table in rules.go;
// beside it are names that may not exist, package docs, file lengths, and a few habits of tests.
//
// It reads the tree and changes nothing. A violation is one line that names the place and the
// reason of the rule; a contributor with a better reason changes the table in the same commit.
package archtest
