// Package leadership ends the work of a leader in order: no new requests are sent, pending
// requests complete, multi-request changes are completed, and the lease is released, so that the
// next leader doesn't wait until it expires.
//
// It must never release a lease while a write of this process may still arrive, and never a
// lease that another process holds. Operations that a cloud has accepted may continue there, as
// after any other end of a leader. client-go does the election. Its own release can't be used,
// because upstream's application elects with a context that never ends
// (k8s.io/cloud-provider/app).
package leadership
