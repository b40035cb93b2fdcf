// Package measure knows what no source tells about the cloud, what the simulator assumes in its
// place, and how what was seen is shown: the table, the report and the profile of "hcloud-sim
// measure".
//
// It decides and does nothing: what was seen and the time are arguments. Its folders do:
//
//	project      throw-away servers, networks, load balancers, in a cloud project
//	robot        the same for vSwitches, by the web service of dedicated servers
//	inside       the program inside throw-away servers, which sends and listens
//	experiment   what is tried with them, and what follows from what was seen
//
// Nothing here may change or remove what it has not made itself, and nothing that it shows or
// writes may hold a secret.
package measure
