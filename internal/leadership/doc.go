// Package leadership ends the work of a leader in order: nothing more is sent,
// what is under way is answered, what must not be left half done is completed, and
// the lease is given back, so that the next leader doesn't wait until it expires.
//
// It must never give back a lease while a write of this process may still arrive,
// and never one that another process holds. What a cloud has accepted may still go
// on there, as after any other end of a leader. Electing is client-go's business;
// only its own release can't be used, because upstream's application elects with
// a context that never ends (k8s.io/cloud-provider/app).
package leadership
