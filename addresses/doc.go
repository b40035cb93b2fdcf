// Package addresses decides which Service has which addresses, and which node holds each of them,
// where no load balancer of a provider does it.
//
// A [Pool] has ranges of addresses. [Ledger.Assign] gives each Service one address of each family
// that it wants; a Service keeps what it has for its life, and several share one address only by a
// key that all of them have. [Ledger.Place] gives each address a node that holds it: a node is
// eligible by what the caller knows of it.
//
// What must never happen:
//   - one address on two Services that do not share it;
//   - a Service loses an address that it uses because of what another one asks for, or because a
//     node comes or goes;
//   - the same epoch of an address stands for two holders: each change of the holder is a higher
//     one, also after the address was given back and handed out again;
//   - an address that a node holds is left without a holder while no other one is eligible.
//
// The package is pure: no clock, no logging, no Kubernetes. Outputs are sorted, and the same inputs
// give the same outputs. A Ledger is a value: what returns one leaves the one that it was given as
// it was.
package addresses
