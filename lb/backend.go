package lb

import (
	"context"
	"errors"
	"fmt"
)

// Backend is the cloud, as the controller needs it.
type Backend interface {
	// Carrying are all load balancers that carry a Service's label, also those that it shares.
	Carrying(ctx context.Context, owner Owner) ([]State, error)
	// Candidates are the load balancers that an owner without one might take over: that of the
	// given name, unless it is empty, and those that LabelPeer assigns to the owner.
	Candidates(ctx context.Context, owner Owner, name string) ([]State, error)
	// Certificates are all the project has, in as few requests as the cloud allows.
	Certificates(ctx context.Context) ([]Certificate, error)
	// PrimaryIPs are those among the named that there are, by ID or name; what is a number is an
	// ID.
	PrimaryIPs(ctx context.Context, named []string) ([]PrimaryIP, error)
	// List finds all load balancers of a cluster, in as few requests as the cloud allows.
	List(ctx context.Context, cluster string) ([]State, error)
	// Apply does one thing to the load balancer that was observed, and returns when it is done.
	// Create finds out by itself whether an earlier Create got through after all. That something is
	// gone which was observed is no refusal but an ordinary error: whoever looks again does better.
	Apply(ctx context.Context, have State, op Op) error
	// ApplyTargets adds and removes targets, in the ops' order, and returns what became of each
	// when all are done. None is left out because another failed, unless the cloud takes no change
	// of the load balancer for now.
	ApplyTargets(ctx context.Context, have State, ops []Op) []error
}

// Errors of a Backend that only a person can mend. Their texts are stable from one attempt to the
// next.
var (
	// ErrNotOwned: the name is taken by a load balancer without our labels.
	ErrNotOwned = errors.New("belongs to somebody else")
	// ErrAmbiguous: more than one load balancer carries the labels of one Service.
	ErrAmbiguous = errors.New("more than one load balancer carries the labels of this Service: remove the underlay.dev labels from the copies")
	// ErrProtected: the load balancer is protected against deletion.
	ErrProtected = errors.New("is protected against deletion: remove the protection in the cloud, or keep it by removing its underlay.dev labels")
)

// ErrFailed: the cloud took a change on, and then failed to carry it out. The next attempt may
// succeed.
var ErrFailed = errors.New("failed in the cloud")

// ErrGone: what a Delete or a DeleteCertificate is about is not there, so nothing is left to be
// done unless it is another project that answers.
var ErrGone = errors.New("is not there")

// What to do about a server that is no target, because it has no address where targets are reached.
const (
	RemedyPrivate = "attach the server to the network, or set use-private-ip to false"
	RemedyPublic  = "give the server a public IPv4 address, or set use-private-ip to true"
)

// CodeNotFound is the API's error code for what the project does not have.
const CodeNotFound = "not_found"

// RejectedError is a request that the cloud understood and refused. The same request will be
// refused again until something else changes.
type RejectedError struct {
	Code    string // the API's error code
	Message string
	// Target is true when the cloud found fault with a target, not with the load balancer.
	Target bool
	// Remedy is what to do, where the message leaves that open.
	Remedy string
}

func (e *RejectedError) Error() string {
	text := fmt.Sprintf("%s (%s)", e.Message, e.Code)
	if e.Remedy != "" {
		text += ": " + e.Remedy
	}
	return text
}
