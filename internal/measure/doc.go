// Package measure determines undocumented behavior of a real cloud, and records it in the profile
// that the simulator reads.
//
// A [Fact] consists of a question, a function that determines it, and a description of the
// behavior of a cloud with a given profile. [Project.Measure] creates servers, networks and load
// balancers in an empty cloud project, and [Project.Sweep] deletes every resource with [Label].
// Servers run program.py, which sends and receives packets.
//
// A result contains only observations. If an observation may have another cause, such as an
// action that ended too early to be observed while running, the fact has an error instead. No
// error and no result contains the token or the key of a server's program.
package measure
