// Package experiment tries what no source tells about the cloud: it makes what it needs in a
// throw-away project, does something, and says what was seen.
//
// An [Experiment] is a function with a [Bench]. A file has those that belong together; the order
// stands in [All]. They share what costs money or time, a network, servers and a load balancer,
// which the Bench makes when they are asked for first.
//
// Its rules:
//
//   - It makes, changes and removes things through [project.Project] alone, in a project that was empty.
//     Nothing needs to be removed for the sake of the user: the project is swept in the end,
//     whatever happened. What an experiment takes back, it takes back for those after it.
//   - An answer is what was seen and nothing else. What may have another cause, an action that was
//     over too soon, an API that had no time, a packet that could be lost, is no answer; the
//     observation says why there is none.
//   - The end of the context ends an experiment at the next request.
//   - No error and no observation holds a token or a key.
package experiment
