// Package converge makes one load balancer be what one Service asks for, once: it reads what there is, lets
// package lb decide what differs, and executes only that. The controller and the provider beside it are two
// ways to call it: the one is told of changes and remembers, the other is called by upstream's controller.
//
// It translates Services, Nodes and their endpoints into lb's words, and back into a Service's status. It
// must never write to the API server, and never touch a load balancer that package lb does not call the
// Service's own.
//
// Its node predicates are those of the service controller in k8s.io/cloud-provider.
package converge
