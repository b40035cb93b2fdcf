// Package docs keeps the documents true: the reference pages of metrics and flags are
// generated from the code, those of events and variables are compared with it, alerts and
// their runbooks may name only what there is, links lead somewhere, and what readers copy
// can be decoded. To write the generated pages anew:
//
//	go test ./test/checks/docs -run TestDocument -update
//
// It never starts anything and needs no network: the commands in the documents are
// run by test/checks/docs/run.
package docs
