// Package measure finds out what a real cloud does where its documentation is silent, and records
// it in the profile that the simulator reads.
//
// A [Fact] is a question, the function that finds it out, and what a cloud with a given profile
// does, in words. [Project.Measure] makes servers, networks and load balancers in a cloud project
// that was empty, and [Project.Sweep] deletes everything that bears [Label]. Servers run
// program.py, which sends and receives packets.
//
// A result is what was observed and nothing else: where the observation may have another cause, as
// when an action ended too early to look meanwhile, the fact has an error instead. No error and no
// result contains the token or the key of a server's program.
package measure
