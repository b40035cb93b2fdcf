// Package docs keeps the documents true: the reference pages of metrics and flags are generated
// from the code, those of events and variables are compared with it, alerts and their runbooks may
// name only existing things, links have existing targets, and blocks that readers copy can be
// decoded. To update the generated pages:
//
//	go test ./test/checks/docs -run TestDocument -update
//
// It never starts a program and needs no network: test/checks/docs/run runs the commands in the
// documents.
package docs
